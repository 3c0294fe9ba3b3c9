"""A disk that is full: the reserve keeps renewals and releases going; without it a node stops in the end."""

import asyncio

from tenure_chaos.live.cluster import SEGMENT_BYTES, LiveNode, NodeUnreachable
from tenure_chaos.live.faults.kind import Fault

RESERVE_BYTES = 4 * SEGMENT_BYTES
"""Below it nodes take in nothing new (admission.disk_reserve_bytes)."""


class DiskFull(Fault):
    name = "disk full"
    what = "less than the reserve is left, so nothing new is taken in; or nothing (ENOSPC)"
    how_healed = "space is there again; a node that stopped is started again"
    lasts_s = (2.0, 9.0)
    struck: LiveNode | None = None

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.take(node)
        self.struck = node
        left = 0 if self.rng.random() < 0.4 else self.rng.randrange(RESERVE_BYTES // 2, RESERVE_BYTES)
        node.may_end = node.starts
        await asyncio.to_thread(node.order, "full", free_bytes=left)
        return f"{node.name}, {left:,} bytes left"

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is None:
            return
        if node.running:
            try:
                await asyncio.to_thread(node.order, "full", free_bytes=None)
            except NodeUnreachable:
                self.bench.cluster.kill(node)
        self.bench.cluster.start(node)
