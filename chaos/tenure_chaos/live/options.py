"""What a live run is to be like."""

from dataclasses import dataclass
from typing import Final, Literal

from tenure_chaos.live.proxies.serving import Choice
from tenure_chaos.sim.options import WORK

NODES: Final = (3, 5)


@dataclass(frozen=True)
class LiveOptions:
    """Units are in the names."""

    nodes: int = 3
    clients: int = 3
    """Processes."""
    programs: int = 6
    """Programs of each client process, side by side."""
    seconds: float = 40.0
    """How long there is work under faults."""
    seed: int = 1
    """Of the schedule of faults and of what the programs intend. What comes of it is up to the machine."""
    keys: int = 6
    ttl_ms: tuple[int, ...] = (3_000, 5_000)
    think_s: float = 0.1
    work: tuple[str, ...] = WORK
    gap_s: float = 3.0
    """Mean time from the end of a fault to the beginning of the next, in the random mode."""
    at_once: int = 2
    """Most faults that are on at a time, in the random mode."""
    leader_bound_s: float = 15.0
    """After healing there must be a leader within this; a machine with much else to do may need more."""
    network: Literal["proxies", "netns"] = "proxies"
    """What the lines are cut by."""
    proxies: Choice = "any"
    mutant: str = ""
