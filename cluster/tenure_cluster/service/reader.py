"""Linearizable reads on the leader: one barrier for all that wait, one tick where a deadline is undecided.

Reads that arrive while a barrier is under way wait for the next one, which begins after all of them: so each
is answered from a state at least as new as everything completed before it was asked, and a thousand of them
cost one round. They are answered a few in a turn of the loop, later ones from a later state: the leader has
more to do than to read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from tenure_cluster.raft import NoQuorum, NotLeader, Raft
from tenure_cluster.service import reads
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import Answer, Ask, Done, NoAnswer
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.proposals import Proposer, Settled
from tenure_cluster.service.replica import Replica

_log = logging.getLogger("tenure.service")


class Reader:
    """Bounded by admission, which is told `waiting`: the reads not yet answered."""

    def __init__(
        self, raft: Raft, replica: Replica, proposer: Proposer, on_crash: Callable[[BaseException], None]
    ) -> None:
        self._raft = raft
        self._replica = replica
        self._proposer = proposer
        self._on_crash = on_crash
        self._new: deque[tuple[Ask, Done]] = deque()
        self._batch: deque[tuple[Ask, Done]] = deque()
        self._rounds: asyncio.Task[None] | None = None
        self.waiting = 0

    def read(self, ask: Ask, done: Done) -> None:
        """Answer an operation of asks.READS after a barrier that begins now or later."""
        self.waiting += 1
        self._new.append((ask, done))
        if self._rounds is None:
            self._rounds = asyncio.get_running_loop().create_task(self._run())
            self._rounds.add_done_callback(self._ended)

    async def _run(self) -> None:
        try:
            while self._new:
                self._batch, self._new = self._new, deque()
                await self._serve()
        finally:
            # Before anybody else runs: whoever reads from here on starts the next task.
            self._rounds = None

    async def _serve(self) -> None:
        failure = await self._barrier()
        if failure is None:
            await self._look(final=False)
            if self._batch:
                failure = await self._tick()
                if failure is None:
                    await self._look(final=True)
        if failure is not None:
            self._fail(failure)

    async def _barrier(self) -> Problem | NoAnswer | None:
        try:
            await self._raft.read_barrier()
        except NotLeader:
            return NoAnswer.NOT_EXECUTED
        except NoQuorum as error:
            return Problem("no_quorum", str(error), {}, RETRY_S)
        return None

    async def _look(self, *, final: bool) -> None:
        """Answer each of the batch that can be answered now; left are those that met a deadline that is
        undecided."""
        undecided: list[tuple[Ask, Done]] = []
        try:
            while self._batch:
                self._look_for_a_turn(undecided, final=final)
                if self._batch:
                    await asyncio.sleep(0)
        finally:
            self._batch.extend(undecided)

    def _look_for_a_turn(self, undecided: list[tuple[Ask, Done]], *, final: bool) -> None:
        table, now_ms, left = self._replica.table, self._raft.now_ms(), reads.TURN_WEIGHT
        while self._batch and left > 0:
            ask, done = self._batch.popleft()
            left -= reads.weight(ask.operation)
            view = reads.View(table, table.time_ms, now_ms, self._replica.applied_index)
            answer = _read(ask, view)
            if view.undecided and not final:
                undecided.append((ask, done))
            else:
                self.waiting -= 1
                done(answer)

    async def _tick(self) -> Problem | NoAnswer | None:
        """Move the log's time past now. What comes due meanwhile is live as of that entry."""
        ticked: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._proposer.tick(lambda settled: None if ticked.done() else ticked.set_result(settled))
        settled = await ticked
        if isinstance(settled, Problem):
            return settled
        # A read leaves no trace, so even an unknown tick leaves a read that was not executed.
        return NoAnswer.NOT_EXECUTED if isinstance(settled, NoAnswer) else None

    def _fail(self, failure: Problem | NoAnswer) -> None:
        batch, self._batch = self._batch, deque()
        self.waiting -= len(batch)
        for _, done in batch:
            done(failure)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)

    async def stop(self) -> None:
        """Answer the reads that still wait as not executed."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        self._batch += self._new
        self._new = deque()
        self._fail(NoAnswer.NOT_EXECUTED)


def _read(ask: Ask, view: reads.View) -> Answer:
    """A read that fails is a bug, but it has changed nothing: no reason to stop the node for whoever asks it
    again."""
    try:
        return reads.read(ask, view)
    except Exception:
        told = {"request_id": ask.request_id.decode("ascii", "backslashreplace")}
        _log.exception("a read failed: %s", ask.operation, extra=told)
        return Problem("internal", "the read failed; the leader's log says why")
