"""A loss of power in the middle of a write: the journal's last frame is there in part."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.armed import Armed


class TornTail(Armed):
    name = "torn tail"
    what = "a node's next write to its journal arrives in part, and the node is gone"
    how_healed = "started again: it repairs what was never acknowledged"
    lasts_s = (0.5, 4.0)

    async def arm(self, node: LiveNode) -> str:
        await asyncio.to_thread(node.order, "tear")
        return ""
