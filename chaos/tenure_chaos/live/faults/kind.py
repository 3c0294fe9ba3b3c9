"""What every fault is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from tenure_chaos.live.bench import Bench
    from tenure_chaos.live.cluster import LiveNode


class Available(NamedTuple):
    """Whether a fault can be had on this machine, with this product; if not, why."""

    yes: bool
    why_not: str = ""

    def __bool__(self) -> bool:
        return self.yes


HERE = Available(True)


class Fault(ABC):
    """One strike. Each kind has a name, and says how long it usually lasts.

    ``inject`` begins it and says whom it has struck, or None if there is nobody now. ``heal`` ends it,
    whatever has happened meanwhile, also if ``inject`` has failed half way; it can be called twice.
    """

    name: ClassVar[str]
    lasts_s: ClassVar[tuple[float, float]] = (1.0, 8.0)
    what: ClassVar[str]
    """One line for the list of faults."""
    how_healed: ClassVar[str]

    def __init__(self, bench: Bench, id_: str) -> None:
        self.bench = bench
        self.id = id_
        """Its toxics carry it, and the nodes that it has taken for itself."""
        self.rng = bench.rng

    @classmethod
    def available(cls, bench: Bench) -> Available:
        return HERE

    @abstractmethod
    async def inject(self) -> str | None: ...

    @abstractmethod
    async def heal(self) -> None: ...

    def take(self, *nodes: LiveNode) -> None:
        """These nodes' processes are this fault's until it is healed."""
        for node in nodes:
            node.reserved_by = self.id

    def any_node(self) -> LiveNode | None:
        """A node that runs and that no other fault has taken."""
        free = self.bench.free_nodes()
        return self.rng.choice(free) if free else None

    async def likely_leader(self) -> LiveNode | None:
        """The leader, most of the time; a fault of the leader shows most."""
        leader = await self.bench.leader() if self.rng.random() < 0.6 else None
        return leader if leader is not None and not leader.reserved_by else self.any_node()
