"""The leader hands its office over."""

import asyncio

from tenure_chaos.live.cluster import NodeUnreachable
from tenure_chaos.live.faults.kind import Fault


class TransferLeader(Fault):
    name = "transfer leader"
    what = "the leader is asked to hand its office over"
    how_healed = "an office that was handed over stays so"
    lasts_s = (0.2, 0.5)

    async def inject(self) -> str | None:
        leader = await self.bench.leader()
        if leader is None or leader.reserved_by:
            return None
        try:
            outcome = await asyncio.to_thread(leader.order, "transfer")
        except NodeUnreachable:
            return None
        return f"{leader.name}: {outcome}"

    async def heal(self) -> None:
        """Nothing is to be undone."""
