"""What partitions have in common: lines between nodes on which nothing comes through, and nobody is told."""

from collections.abc import Iterable

from tenure_chaos.live.faults.kind import Fault


class Cut(Fault):
    """Silent like a dropped packet, or, one time in four, loud like a firewall that refuses."""

    how_healed = "the lines carry again; connections that were silent are closed"
    lasts_s = (1.0, 9.0)
    refused: tuple[str, ...] = ()

    async def cut(self, lines: Iterable[str], what: str) -> str:
        lines = list(lines)
        if self.rng.random() < 0.25 and self.bench.network.can_refuse:
            self.refused = tuple(lines)
            await self.bench.network.refuse(lines)
            return f"{what}, refused"
        await self.bench.network.silence(self.id, lines)
        return what

    async def heal(self) -> None:
        refused, self.refused = self.refused, ()
        await self.bench.network.allow(refused)
        await self.bench.network.heal(self.id)
