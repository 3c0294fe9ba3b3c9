"""The leader's housekeeping: expiry in batches, ticks, and what must be looked at once a second.

Correctness never waits for it: expiry is evaluated wherever a deadline is met. The reaper makes sure that it
is met soon even if nobody asks, so that a freed key goes to its next waiter, and that cluster time in the log
is never far behind the leader's clock while somebody's lease depends on it.

It proposes only while this leader serves, and each batch only when a quorum has just confirmed it: a leader
whose process stalled learns so whether it still leads, and by then the renewals that had piled up in its
sockets have been read and are in the log before any expiry. Each batch is awaited before the next is
proposed, so whoever asks for something waits for the rest of one batch and goes with the next. While others
ask, batches are small: what they wait for is then a millisecond or two on each node, however many leases end
together. Their number bounds that and no clock, which would measure the disk and the neighbours as well.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tenure_cluster.lease import limits
from tenure_cluster.lease.results import Done
from tenure_cluster.raft import Raft, RaftError
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.leadership import Leadership
from tenure_cluster.service.proposals import Proposer, Settled
from tenure_cluster.service.replica import Replica

LOOK_MS: Final = 100
"""Longest sleep while leading. Whatever falls due sooner than it was seen (a short grace) is late by at most
this."""

PAUSE_MS: Final = 10
"""Shortest sleep between two looks, so that what can't be ended makes no busy loop."""

BESIDE_OTHERS_MAX: Final = 100
"""Most items of a batch while others ask for something; limits.EXPIRE_BATCH_MAX while nobody does."""

IDLE_S: Final = 1.0
"""Longest sleep while another node leads, or none."""

TICK_MS: Final = 800
"""Age of the log's time at which a tick is due. Below a second by more than a look and a round."""


class Reaper:
    """One task, for as long as the node runs."""

    def __init__(
        self,
        raft: Raft,
        replica: Replica,
        proposer: Proposer,
        leadership: Leadership,
        admission: Admission,
        free_bytes: Callable[[], int],
    ) -> None:
        self._raft = raft
        self._replica = replica
        self._proposer = proposer
        self._leadership = leadership
        self._admission = admission
        self._free_bytes = free_bytes
        self._looked_at_disk = float("-inf")
        self._asked_before = 0
        self.expired = 0
        """Sessions, claims, waiters and graces that this node's batches ended."""
        self.ticks = 0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() - self._looked_at_disk >= 1:
                self._looked_at_disk = loop.time()
                self._admission.note_free_bytes(self._measured_free_bytes())
            if self._raft.serving():
                await asyncio.sleep(await self._turn() / 1000)
            elif self._raft.is_leader():
                await asyncio.sleep(LOOK_MS / 1000)
            else:
                await self._leadership.changed(IDLE_S)

    def _measured_free_bytes(self) -> int:
        try:
            return self._free_bytes()
        except OSError:
            return 0  # a directory that can't be measured has no room for anything new

    async def _turn(self) -> int:
        """End what is due, tick if nothing else moved the log; answer for how many ms there is nothing to
        do."""
        table = self._replica.table
        if table.due(self._raft.now_ms(), 1):
            return await self._expire()
        if table.has_live_sessions() and self._raft.now_ms() - table.time_ms >= TICK_MS:
            self.ticks += 1
            await self._settled(self._proposer.tick)
            return PAUSE_MS
        next_ms = table.next_deadline()
        wait_ms = LOOK_MS if next_ms is None else next_ms - self._raft.now_ms()
        return min(max(wait_ms, PAUSE_MS), LOOK_MS)

    async def _expire(self) -> int:
        try:
            await self._raft.confirm()
        except RaftError:
            return LOOK_MS
        asked = self._proposer.asked
        most = limits.EXPIRE_BATCH_MAX if asked == self._asked_before else BESIDE_OTHERS_MAX
        self._asked_before = asked
        due = self._replica.table.due(self._raft.now_ms(), most)
        ended = await self._settled(lambda then: self._proposer.expire(due, then)) if due else 0
        self.expired += ended
        # A full batch has more behind it; one that ended nothing was overtaken by renewals.
        return 0 if ended and len(due) == most else PAUSE_MS

    async def _settled(self, propose: Callable[[Callable[[Settled], None]], None]) -> int:
        """Propose, await how it went, and say how many items it ended."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        propose(lambda settled: None if future.done() else future.set_result(settled))
        settled = await future
        return settled.ended if isinstance(settled, Done) else 0
