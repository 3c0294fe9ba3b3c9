"""A loss of power in the middle of a write: the journal's last frame is there in part."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault


class TornTail(Fault):
    name = "torn tail"
    what = "a node's next write to its journal arrives in part, and the node is gone"
    how_healed = "started again: it repairs what was never acknowledged"
    lasts_s = (0.5, 4.0)
    struck: LiveNode | None = None

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.take(node)
        self.struck = node
        node.may_end = node.starts
        await asyncio.to_thread(node.order, "tear")
        return node.name

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is None:
            return
        if node.running:
            self.bench.cluster.kill(node)
        self.bench.cluster.start(node)
