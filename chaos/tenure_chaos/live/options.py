"""What a live run is to be like."""

from dataclasses import dataclass
from typing import Final, Literal

from tenure_chaos.live.proxies.serving import Choice
from tenure_chaos.sim.options import WORK

NODES: Final = (3, 5)
TTL_MS_MIN: Final = 3_000
"""The shortest that nodes without other settings take."""


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

    def wrong(self) -> str:
        """What of it can't be, and what can; empty if all is well."""
        if self.nodes not in NODES:
            return f"nodes = {self.nodes}: there can be {' or '.join(map(str, NODES))}"
        for name in ("clients", "programs", "seconds", "keys", "gap_s", "at_once", "leader_bound_s"):
            if not getattr(self, name) > 0:
                return f"{name} = {getattr(self, name)}: it must be above 0"
        if not self.ttl_ms or min(self.ttl_ms) < TTL_MS_MIN:
            return f"ttl_ms = {list(self.ttl_ms)}: these are TTLs of {TTL_MS_MIN} ms or more"
        if not self.work or (strange := set(self.work) - set(WORK)):
            named = ", ".join(sorted(strange)) if self.work else "nothing"
            return f"work = {named}: there is: {', '.join(WORK)}"
        return ""
