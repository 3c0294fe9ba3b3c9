"""Snapshots at awkward times."""

import asyncio

from tenure_chaos.live.faults.kind import Fault


class ForcedCompaction(Fault):
    name = "forced compaction"
    what = "one node, or every node, makes a snapshot now and drops what it covers"
    how_healed = "a snapshot does not end"
    lasts_s = (0.2, 0.5)

    async def inject(self) -> str | None:
        nodes = self.bench.free_nodes()
        if not nodes:
            return None
        if self.rng.random() < 0.7:
            nodes = [self.rng.choice(nodes)]
        for node in nodes:
            await asyncio.to_thread(node.order, "compact")
        return " ".join(node.name for node in nodes)

    async def heal(self) -> None:
        """Nothing is to be undone."""
