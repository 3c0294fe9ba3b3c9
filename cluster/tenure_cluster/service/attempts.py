"""Attempts: what leads from an operation to its answer, at whatever node it came to.

    leader here        execute it: stamp, propose, answer (office.py)
    leader elsewhere   ask it over the peer link, unstamped (forwarding.py)
    no leader known    wait a little for one, then refuse: not executed

An attempt that ends without an answer is made again, at once if that was not executed, and after an unknown
outcome only for what is idempotent. Once an attempt's outcome was unknown, the call can no longer end in an
answer that means "not executed": what would be one becomes `outcome_unknown`.
"""

import asyncio
from typing import Final, cast

import msgspec

from tenure_cluster.lease import limits
from tenure_cluster.raft import Raft
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import READS, Answer, Ask, NoAnswer, Outcome
from tenure_cluster.service.deadlines import Deadlines
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.forwarding import Forwarding
from tenure_cluster.service.leadership import Leadership
from tenure_cluster.service.office import Office
from tenure_cluster.service.proposals import Proposer
from tenure_cluster.service.requests import AbandonRequest, AcquireRequest
from tenure_cluster.settings import Calls

ATTEMPTS_PER_CALL: Final = 2
"""An attempt at another node ends after this part of a call's time, so that there is time for a second
one."""

PAUSE_S: Final = 0.05
"""Pause before the next attempt if nothing has changed since the last one was refused as not the leader's."""

GIVE_UPS_MAX: Final = 2_000
"""Abandons under way for callers who are gone. Beyond it an acquire is left to end at its TTL."""

_NOT_EXECUTED: Final = frozenset(
    {
        "overloaded",
        "quota",
        "no_leader",
        "no_quorum",
        "shutting_down",
        "mixed_versions",
        "change_refused",
    }
)
"""Codes that promise that nothing was executed, and so can't end a call with an unknown attempt behind it. By
others the state machine itself refuses, which knows what was executed before."""


class Call:
    """What one or several operations, asked together, have behind them."""

    __slots__ = ("deadline", "give_up_at", "slice_ends", "unsure")

    def __init__(self, now: float, wait_ms: int, timeout_s: float) -> None:
        self.slice_ends = now + min(wait_ms, limits.POLL_SLICE_MS) / 1000
        self.deadline = self.slice_ends + timeout_s
        self.give_up_at: float | None = None
        """When to stop waiting for a leader, once none was known."""
        self.unsure = False
        """Whether an attempt's outcome was unknown."""


class Attempts:
    """Makes them, one after the other, until there is an answer or a call's time is over."""

    def __init__(
        self,
        raft: Raft,
        leadership: Leadership,
        office: Office,
        forwarding: Forwarding,
        proposer: Proposer,
        calls: Calls,
    ) -> None:
        self._raft = raft
        self._leadership = leadership
        self._office = office
        self._forwarding = forwarding
        self._proposer = proposer
        self._calls = calls
        self.under_way: Deadlines[list[Outcome]] = Deadlines([NoAnswer.UNKNOWN])
        """What waits for the end of an attempt."""
        self.give_ups: set[asyncio.Task[None]] = set()
        """Abandons under way for callers that are gone."""
        self.closing = False
        """Whether no further attempt is to be made."""

    async def attempt(self, asks: list[Ask], call: Call) -> list[Outcome]:
        """Try once, here or at the leader, and answer for each how it went."""
        raft = self._raft
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Outcome]] = loop.create_future()

        def done(outcomes: list[Outcome]) -> None:
            if not future.done():
                future.set_result(outcomes)

        deadline = call.deadline
        number = None
        if raft.is_leader():
            for ask in asks:
                ask.sent = True
            if len(asks) == 1:
                self._office.execute(asks[0], lambda outcome: done([outcome]))
            else:
                self._office.execute_all(asks, done)
        elif (leader := self._leadership.reachable) is not None:
            if all(ask.idempotent for ask in asks):
                now = loop.time()
                share = self._calls.timeout_ms / 1000 / ATTEMPTS_PER_CALL
                deadline = min(deadline, max(now, call.slice_ends) + share)
            number = self._forwarding.ask(leader, asks, done)
        else:
            return [NoAnswer.NOT_EXECUTED] * len(asks)
        if future.done():
            return future.result()
        self.under_way.add(future, deadline)
        try:
            outcomes = await future
        finally:
            self.under_way.remove(future)
            if number is not None:
                self._forwarding.forget(number)
        return outcomes if len(outcomes) == len(asks) else [outcomes[0]] * len(asks)

    async def persist(self, ask: Ask, outcome: NoAnswer, call: Call) -> Answer:
        """Go on after an attempt without an answer, until there is one or the call's time is over."""
        while True:
            if outcome is NoAnswer.UNKNOWN:
                call.unsure = call.unsure or ask.operation not in READS
                if not ask.idempotent:
                    return _unknown(ask)
            if not await self._may_go_on(call, moved=outcome is NoAnswer.UNKNOWN):
                return self._failure(ask, call)
            if ask.wait_ms:
                left_ms = int((call.slice_ends - asyncio.get_running_loop().time()) * 1000)
                ask.request = msgspec.structs.replace(
                    cast(AcquireRequest, ask.request), wait_ms=max(left_ms, 0)
                )
            [result] = await self.attempt([ask], call)
            if not isinstance(result, NoAnswer):
                if call.unsure and isinstance(result, Problem) and result.code in _NOT_EXECUTED:
                    return self._failure(ask, call)
                return result
            outcome = result

    async def persist_all(self, asks: dict[int, Ask]) -> dict[int, Answer]:
        """Attempt all that is not answered yet, in order, until everything is or time is over."""
        answers: dict[int, Answer] = {}
        calls = {
            position: Call(asyncio.get_running_loop().time(), 0, self._calls.timeout_ms / 1000)
            for position in asks
        }
        left = dict(asks)
        while left:
            first = calls[next(iter(left))]
            outcomes = await self.attempt(list(left.values()), first)
            moved = False
            for (position, ask), outcome in zip(list(left.items()), outcomes, strict=True):
                call = calls[position]
                if outcome is NoAnswer.UNKNOWN:
                    moved = True
                    call.unsure = call.unsure or ask.operation not in READS
                    if ask.idempotent:
                        continue
                    answers[position] = _unknown(ask)
                elif outcome is NoAnswer.NOT_EXECUTED:
                    continue
                elif call.unsure and isinstance(outcome, Problem) and outcome.code in _NOT_EXECUTED:
                    answers[position] = self._failure(ask, call)
                else:
                    answers[position] = outcome
                del left[position]
            if left and not await self._may_go_on(first, moved=moved):
                for position, ask in left.items():
                    answers[position] = self._failure(ask, calls[position])
                break
        return answers

    async def _may_go_on(self, call: Call, *, moved: bool) -> bool:
        """Wait until another attempt makes sense; false if there will be none."""
        loop = asyncio.get_running_loop()
        leadership = self._leadership
        leadership.refresh()
        if not moved:
            # Whoever was thought to lead does not. Give the news a moment before believing the same again.
            await leadership.changed(PAUSE_S)
        while not self.closing:
            now = loop.time()
            if now >= call.deadline:
                return False
            if self._raft.is_leader() or leadership.reachable is not None:
                call.give_up_at = None
                return True
            if call.give_up_at is None:
                call.give_up_at = min(now + self._calls.leader_wait_ms / 1000, call.deadline)
            if now >= call.give_up_at or leadership.crowded:
                return False
            await leadership.changed(call.give_up_at - now)
        return False

    def _failure(self, ask: Ask, call: Call) -> Problem:
        """What a call ends with that nobody answered."""
        if call.unsure:
            # Nobody would ever renew what it may have been granted, unless its caller can ask again.
            self.give_up(ask)
            return _unknown(ask)
        if self.closing:
            return Problem("shutting_down", "this node is shutting down", {}, RETRY_S)
        if self._raft.leader_id is None:
            detail = "no leader is known to this node"
        elif self._raft.is_leader() or self._leadership.reachable is not None:
            detail = "the leader did not answer in time"
        else:
            detail = "this node has no link to the leader that it last knew"
        return Problem("no_leader", detail, {}, RETRY_S)

    def give_up(self, ask: Ask) -> None:
        """Abandon an acquire behind all its attempts, if nobody can ask for it again.

        A caller with a request_id of its own may be asking again elsewhere at this moment, or hold
        already what it was granted there: its closed connection says nothing about its wish.
        """
        if ask.remember or not ask.sent or not isinstance(ask.request, AcquireRequest):
            return
        request_id, session_id = ask.request.request_id or "", ask.request.session_id
        abandon = Ask("abandon", ask.tenant, AbandonRequest(request_id=request_id, session_id=session_id))
        if self._raft.is_leader():
            # Past admission: it takes load away.
            self._proposer.abandon(ask.tenant, request_id, session_id, lambda settled: None)
        elif not self.closing and len(self.give_ups) < GIVE_UPS_MAX:
            task = asyncio.get_running_loop().create_task(self._abandon(abandon))
            self.give_ups.add(task)
            task.add_done_callback(self.give_ups.discard)

    async def _abandon(self, abandon: Ask) -> None:
        call = Call(asyncio.get_running_loop().time(), 0, self._calls.timeout_ms / 1000)
        [outcome] = await self.attempt([abandon], call)
        if isinstance(outcome, NoAnswer):
            await self.persist(abandon, outcome, call)


def _unknown(ask: Ask) -> Problem:
    if ask.operation == "acquire":
        again = "ask again with the same request_id" if ask.remember else "what it was granted is given up"
    elif ask.idempotent:
        again = "it can safely be asked again"
    else:
        again = "look before asking again"
    return Problem("outcome_unknown", f"{ask.operation} may have been executed: {again}")
