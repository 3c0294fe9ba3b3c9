"""A disk that is full: the reserve keeps renewals and releases going; without it a node stops in the end."""

import asyncio

from tenure_chaos.live.cluster import SEGMENT_BYTES, LiveNode, NodeUnreachable
from tenure_chaos.live.faults.armed import Armed

RESERVE_BYTES = 4 * SEGMENT_BYTES
"""Below it nodes take in nothing new (admission.disk_reserve_bytes)."""


class DiskFull(Armed):
    name = "disk full"
    what = "less than the reserve is left, so nothing new is taken in; or nothing (ENOSPC)"
    how_healed = "space is there again; a node that stopped is started again"
    lasts_s = (2.0, 9.0)

    async def arm(self, node: LiveNode) -> str:
        left = 0 if self.rng.random() < 0.4 else self.rng.randrange(RESERVE_BYTES // 2, RESERVE_BYTES)
        await asyncio.to_thread(node.order, "full", free_bytes=left)
        return f", {left:,} bytes left"

    async def disarm(self, node: LiveNode) -> bool:
        try:
            await asyncio.to_thread(node.order, "full", free_bytes=None)
        except NodeUnreachable:
            return False
        return True
