"""An fsync that fails: the node must stop at once, and never ask that file again."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault


class SyncError(Fault):
    name = "sync error"
    what = "the next fsync of a node fails with EIO: it must stop at once"
    how_healed = "started again"
    lasts_s = (1.0, 5.0)
    struck: LiveNode | None = None

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.take(node)
        self.struck = node
        node.may_end = node.starts
        await asyncio.to_thread(node.order, "sync", fails=True)
        return node.name

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is None:
            return
        if node.running:
            # Nothing was synced meanwhile; the order must not outlive the fault.
            self.bench.cluster.kill(node)
        self.bench.cluster.start(node)
