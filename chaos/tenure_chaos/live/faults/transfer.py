"""The leader hands its office over."""

from typing import TYPE_CHECKING

from tenure_chaos.live.faults.kind import HERE, Available, Fault
from tenure_cluster.raft import Raft

if TYPE_CHECKING:
    from tenure_chaos.live.bench import Bench


class TransferLeader(Fault):
    name = "transfer leader"
    what = "the leader is asked to hand its office over"
    how_healed = "an office that was handed over stays so"
    lasts_s = (0.2, 0.5)

    @classmethod
    def available(cls, bench: "Bench") -> Available:
        # The product hands its office over when it stops (see rolling restart), and has no order for it yet.
        return HERE if hasattr(Raft, "transfer_leadership") else Available(False, "the product can't yet")

    async def inject(self) -> str | None:
        return None

    async def heal(self) -> None:
        """Nothing is to be undone."""
