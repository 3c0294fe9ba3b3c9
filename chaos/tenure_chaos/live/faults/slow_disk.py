"""An fsync that takes its time."""

import asyncio

from tenure_chaos.live.cluster import LiveNode, NodeUnreachable
from tenure_chaos.live.faults.kind import Fault


class SlowDisk(Fault):
    name = "slow disk"
    what = "every fsync of a node takes up to 2 s longer"
    how_healed = "as before"
    struck: LiveNode | None = None

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.struck = node
        most_s = self.rng.choice((0.05, 0.3, 2.0))
        await asyncio.to_thread(node.order, "sync", takes_s=[most_s / 5, most_s])
        return f"{node.name}, up to {most_s} s"

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is not None:
            try:
                await asyncio.to_thread(node.order, "sync", takes_s=[0.0, 0.0])
            except NodeUnreachable:
                # It died meanwhile, or is paused: then the order may not outlive this fault.
                if node.running:
                    self.bench.cluster.kill(node)
                    self.bench.cluster.start(node)
