"""What differs from run to run: drawn per seed, so that each seed has its own subset of faults and sizes."""

import random
from dataclasses import dataclass

FAULTS = (
    "kill one",
    "kill leader",
    "kill all",
    "power loss one",
    "power loss all",
    "pause node",
    "pause client",
    "isolate leader",
    "split in halves",
    "cut one way",
    "bridge",
    "slow link",
    "reset links",
    "slow disk",
    "sync error",
    "lost replies",
    "wall clock step",
)


@dataclass
class Options:
    """Units are in the names."""

    nodes: int = 3
    clients: int = 4
    keys: int = 4
    safety_s: float = 60.0
    faults: tuple[str, ...] = ()
    fault_gap_s: float = 4.0
    think_s: float = 0.5
    ttl_ms: tuple[int, ...] = (3_000, 5_000, 10_000)
    snapshot_entries: int = 200
    segment_bytes: int = 262_144
    entry_bytes_max: int = 131_072
    clock_rate_bound: float = 0.005
    digest_every: int = 50
    lose_reply: float = 0.0
    breaks: bool = True

    @classmethod
    def draw(cls, rng: random.Random) -> "Options":
        chosen = tuple(fault for fault in FAULTS if rng.random() < 0.4)
        return cls(
            nodes=5 if rng.random() < 0.25 else 3,
            clients=rng.randint(2, 6),
            keys=rng.randint(1, 6),
            safety_s=rng.choice((30.0, 60.0, 120.0)),
            faults=chosen,
            fault_gap_s=rng.choice((1.0, 3.0, 8.0)),
            think_s=rng.choice((0.1, 0.4, 1.0)),
            snapshot_entries=rng.choice((10, 50, 200, 1_000)),
            segment_bytes=rng.choice((262_144, 524_288)),
            clock_rate_bound=rng.choice((0.0, 0.001, 0.005)),
            lose_reply=rng.choice((0.0, 0.0, 0.02, 0.1)),
        )
