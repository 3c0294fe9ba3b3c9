"""What differs from run to run: drawn per seed, so that each seed has its own subset of faults and sizes."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_origin, get_type_hints

FAULTS = (
    "kill one",
    "kill leader",
    "kill majority",
    "kill all",
    "power loss one",
    "power loss leader",
    "power loss majority",
    "power loss all",
    "rolling restart",
    "pause node",
    "pause client",
    "crash in a sync",
    "crash at a point",
    "crash at a disk operation",
    "isolate leader",
    "split in halves",
    "ring of majorities",
    "bridge",
    "cut one way",
    "cut clients off",
    "slow link",
    "jitter",
    "slicing",
    "reset links",
    "half-open connection",
    "half a message",
    "repeated tail",
    "slow disk",
    "sync error",
    "disk full",
    "bit rot",
    "wall clock step",
    "clock rate",
    "lost replies",
    "duplicate requests",
    "forced compaction",
    "leader transfer",
    "change members",
    "replace all members",
)
"""Kinds of faults, each a class of faults/."""


LATER_FAULTS = ("leader transfer", "change members", "replace all members")
"""Those that came after the others, and are drawn apart from them: so all else of a seed is what it was."""

LATER_PART = 0.3
REPLACING_PART = 0.5
"""Of the seeds with changes of members."""

HOLDING = (
    "hold",
    "wait",
    "keep",
    "guard",
    "register",
    "session",
    "batch",
    "share",
    "pool",
    "set",
    "pass",
    "rest",
    "progress",
    "program",
)
EARLIER_WORK = (*HOLDING, "look", "mishap")
"""The last two only make sense beside others."""

LATER_WORK = ("resize",)
"""What came after the other kinds, and is drawn apart from them."""

WORK = (*EARLIER_WORK, *LATER_WORK)
"""What clients do, each a module of workloads/."""


class InvalidOption(ValueError):
    """No option has that name, or none of that type has that value."""


@dataclass(frozen=True)
class Options:
    """Units are in the names."""

    nodes: int = 3
    spares: int = 0
    """Nodes that may join later; what is drawn for a seed without changes of members has none."""
    clients: int = 4
    keys: int = 4
    safety_s: float = 60.0
    faults: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Faults that there are besides those that are drawn, or set."""
    fault_gap_s: float = 4.0
    think_s: float = 0.5
    ttl_ms: tuple[int, ...] = (3_000, 5_000, 10_000)
    snapshot_entries: int = 200
    tail_entries: int = 1_000
    """Entries that stay in the log though a snapshot covers them."""
    piece_bytes: int = 262_144
    """Of a snapshot, that are written or sent at a time."""
    segment_bytes: int = 262_144
    entry_bytes_max: int = 131_072
    clock_rate_bound: float = 0.005
    digest_every: int = 50
    lose_reply: float = 0.0
    breaks: bool = True
    heartbeat_ms: int = 100
    """Of the leaders; an election timer runs 5 to 10 times as long."""
    link_delay_s: tuple[float, ...] = (0.0001, 0.001)
    """Shortest and longest time that bytes usually take."""
    work: tuple[str, ...] = WORK
    duplicate_request: float = 0.0
    """Chance that an attempt that may be repeated is delivered twice."""
    crash_client_s: float = 0.0
    """Mean time between two crashes of one client; 0 for none."""
    register_delay_s: float = 0.005
    """Longest time that a message to or from a register usually takes."""
    margin_s: float = 0.25
    """What the clients keep back of a lease's time."""

    @classmethod
    def for_seed(cls, seed: int, overrides: Mapping[str, str] | None = None) -> "Options":
        """What the seed draws, save for what is set. Raises InvalidOption.

        The draws have a source of randomness of their own, so that setting one option changes nothing else.
        """
        drawn = cls.draw(random.Random(f"options of {seed}"))
        later = random.Random(f"later options of {seed}")
        if later.random() < LATER_PART:
            drawn = replace(drawn, faults=(*drawn.faults, "leader transfer"))
        changes = later.random() < LATER_PART
        spares = later.randint(1, 4) if changes else 3
        if changes:
            drawn = replace(drawn, faults=(*drawn.faults, "change members"), spares=spares)
        if later.random() < LATER_PART:
            drawn = replace(drawn, work=(*drawn.work, *LATER_WORK))
        if changes and later.random() < REPLACING_PART:
            drawn = replace(drawn, faults=(*drawn.faults, "replace all members"))
            drawn = replace(drawn, spares=spares + drawn.nodes)
        return drawn.override(overrides or {}, spares)

    def override(self, texts: Mapping[str, str], spares: int = 3) -> "Options":
        """Set options by what somebody has typed; several values are separated by commas. `spares`: how many
        there are where members change, if nothing else was drawn or set."""
        hints = get_type_hints(Options)
        known = [field.name for field in fields(self)]
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in known:
                raise InvalidOption(f"there is no option {name!r}; there are: {', '.join(known)}")
            try:
                values[name] = _parse(hints[name], text)
            except ValueError:
                raise InvalidOption(f"{text!r} is no value for {name}") from None
        chosen = replace(self, **values)
        if chosen.also:
            chosen = replace(chosen, faults=tuple(dict.fromkeys((*chosen.faults, *chosen.also))))
        if unknown := [fault for fault in chosen.faults if fault not in FAULTS]:
            raise InvalidOption(f"there is no fault {unknown[0]!r}; there are: {', '.join(FAULTS)}")
        if "spares" not in texts:
            chosen = chosen._with_spares(spares)
        if unknown := [kind for kind in chosen.work if kind not in WORK]:
            raise InvalidOption(f"there is no work {unknown[0]!r}; there are: {', '.join(WORK)}")
        return chosen

    def _with_spares(self, spares: int) -> "Options":
        """At least as many as the changes of members need."""
        needed = min(self.spares or spares, spares) if "change members" in self.faults else 0
        needed += self.nodes if "replace all members" in self.faults else 0
        return replace(self, spares=max(self.spares, needed))

    @property
    def leader_bound_s(self) -> float:
        """Time after healing within which a node leads."""
        return 0.15 * self.heartbeat_ms

    @classmethod
    def draw(cls, rng: random.Random) -> "Options":
        """Mostly a cluster in one room with hurried clients; else one over long lines, slower and longer."""
        drawn = cls._draw_near(rng)
        return drawn._stretch(rng) if rng.random() < 0.25 else drawn

    def _stretch(self, rng: random.Random) -> "Options":
        return replace(
            self,
            safety_s=rng.choice((900.0, 1_800.0)),
            heartbeat_ms=300,
            link_delay_s=rng.choice(((0.005, 0.02), (0.02, 0.08))),
            ttl_ms=(10_000, 20_000, 60_000),
            fault_gap_s=rng.choice((5.0, 15.0, 40.0)),
            think_s=rng.choice((2.0, 5.0)),
        )

    @classmethod
    def _draw_near(cls, rng: random.Random) -> "Options":
        part = rng.choice((0.1, 0.3, 0.5))
        chosen = tuple(fault for fault in FAULTS if fault not in LATER_FAULTS and rng.random() < part)
        return cls(
            nodes=5 if rng.random() < 0.25 else 3,
            clients=rng.randint(2, 6),
            keys=rng.randint(1, 6),
            safety_s=rng.choice((60.0, 120.0, 300.0)),
            faults=chosen,
            fault_gap_s=rng.choice((1.0, 3.0, 8.0)),
            think_s=rng.choice((0.2, 0.8, 2.0)),
            snapshot_entries=rng.choice((10, 50, 200, 1_000)),
            tail_entries=rng.choice((2, 10, 1_000)),
            piece_bytes=rng.choice((512, 4_096, 262_144)),
            segment_bytes=rng.choice((65_536, 65_536, 262_144)),
            clock_rate_bound=rng.choice((0.0, 0.001, 0.005)),
            lose_reply=rng.choice((0.0, 0.0, 0.02, 0.1)),
            work=_draw_work(rng),
            duplicate_request=rng.choice((0.0, 0.0, 0.02, 0.1)),
            crash_client_s=rng.choice((0.0, 0.0, 15.0, 60.0)),
            register_delay_s=rng.choice((0.005, 0.5, 4.0)),
            margin_s=rng.choice((0.25, 0.002)),
        )


def _draw_work(rng: random.Random) -> tuple[str, ...]:
    """Everything, or a few kinds that then meet one another all the more often."""
    if rng.random() < 0.3:
        return EARLIER_WORK
    aside = [kind for kind in EARLIER_WORK if kind not in HOLDING and rng.random() < 0.5]
    return (*rng.sample(HOLDING, rng.randint(1, 3)), *aside)


def _parse(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_parse(get_args(kind)[0], item) for item in text.split(",") if item)
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return kind(text)
