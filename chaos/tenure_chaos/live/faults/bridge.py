"""Two groups of nodes that share one node, which reaches all; and a ring of five with overlapping
majorities."""

from typing import TYPE_CHECKING

from tenure_chaos.live.faults.cut import Cut
from tenure_chaos.live.faults.kind import HERE, Available

if TYPE_CHECKING:
    from tenure_chaos.live.bench import Bench


class Bridge(Cut):
    name = "bridge"
    what = "two groups of nodes that only meet in one node, which reaches all"

    async def inject(self) -> str | None:
        network = self.bench.network
        bridge, *rest = self.rng.sample(network.nodes, len(network.nodes))
        some, others = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        what = f"{' '.join(some)} | {bridge} | {' '.join(others)}"
        return await self.cut(network.between(some, others), what)


class Ring(Cut):
    name = "ring of majorities"
    what = "five nodes, each linked to its two neighbours only: every node sees a majority, no two the same"

    @classmethod
    def available(cls, bench: "Bench") -> Available:
        enough = bench.options.nodes >= 5
        return HERE if enough else Available(False, "needs five nodes; with three a ring is everything")

    async def inject(self) -> str | None:
        network = self.bench.network
        ring = self.rng.sample(network.nodes, len(network.nodes))
        lines = [
            f"{a}>{b}"
            for i, a in enumerate(ring)
            for j, b in enumerate(ring)
            if (i - j) % len(ring) not in (0, 1, len(ring) - 1)
        ]
        return await self.cut(lines, " ".join(ring))
