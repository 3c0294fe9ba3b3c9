"""SIGKILL at a named point of the code: around a sync, a rename, a removal."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.armed import Armed
from tenure_cluster.faults import POINTS


class CrashAtPoint(Armed):
    name = "crash at a point"
    what = "SIGKILL where a node comes to a named point of its code: around syncs, renames and removals"
    lasts_s = (0.5, 5.0)

    async def arm(self, node: LiveNode) -> str:
        point = self.rng.choice(sorted(POINTS))
        count = self.rng.choice((1, 1, 2, 5)) if point.startswith("journal") else 1
        await asyncio.to_thread(node.order, "kill_at", point=point, count=count)
        if point not in ("journal.before_sync", "journal.after_sync"):
            # It gets there when it makes a snapshot and drops what that covers.
            await asyncio.to_thread(node.order, "compact")
        return f" at {point}"
