"""An fsync that fails: the node must stop at once, and never ask that file again."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.armed import Armed


class SyncError(Armed):
    name = "sync error"
    what = "the next fsync of a node fails with EIO: it must stop at once"
    lasts_s = (1.0, 5.0)

    async def arm(self, node: LiveNode) -> str:
        await asyncio.to_thread(node.order, "sync", fails=True)
        return ""
