"""Clocks of nodes: another rate within what is assumed of all clocks, and steps of the wall clock."""

import asyncio

from tenure_chaos.live.cluster import LiveNode, NodeUnreachable
from tenure_chaos.live.faults.kind import Fault

RATE_USED = 0.98
"""Rates keep within this part of the bound that is assumed of them, which leaves room for rounding."""
BOUND = 0.005


class ClockRate(Fault):
    name = "clock rate"
    what = "a node's monotonic clock runs at another rate, within the assumed bound of 0.5 %"
    how_healed = "the true rate"
    lasts_s = (2.0, 10.0)
    struck: LiveNode | None = None
    incarnation = 0

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.struck, self.incarnation = node, node.starts
        rate = 1.0 + self.rng.choice((-1, 1)) * BOUND * RATE_USED
        await asyncio.to_thread(node.order, "clock", rate=rate)
        return f"{node.name}, {rate:.4f}"

    async def heal(self) -> None:
        await self.undo({"rate": 1.0})

    async def undo(self, how: dict[str, float]) -> None:
        """The process that was ordered to do it has the right time again, or is gone."""
        node, self.struck = self.struck, None
        if node is not None and node.starts == self.incarnation:
            try:
                await asyncio.to_thread(node.order, "clock", **how)
            except NodeUnreachable:
                pass  # within the bound, or of no effect: it may stay that way


class WallStep(ClockRate):
    name = "wall clock step"
    what = (
        "a node's wall clock is set, by seconds or a day, either way: only a node that has just started minds"
    )
    how_healed = "set back; started again if it ended for that"
    by_ms = 0

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.take(node)
        self.struck, self.incarnation = node, node.starts
        node.may_end = node.starts
        self.by_ms = self.rng.choice((-86_400_000, -5_000, 5_000, 86_400_000))
        await asyncio.to_thread(node.order, "clock", step_ms=self.by_ms)
        return f"{node.name} by {self.by_ms} ms"

    async def heal(self) -> None:
        node = self.struck
        await self.undo({"step_ms": -self.by_ms})
        if node is not None and not node.running:
            self.bench.cluster.start(node)
