"""Acquires that wait in a connected poll on this leader, and the claims made for them.

The queue itself is replicated state; what is kept here belongs to open connections alone, and can be lost at
any time: the caller asks again with the same request_id and finds its place. The steps of one poll:

    propose Acquire(wait)   the answer may be final at once, or `Waiting`: then the poll is registered
    registered              until its slice is over, a grant appears, its place is gone, the office is lost
    grant appears           propose Claim, answer only when that is applied: the full TTL counts from there
    slice is over           answer where it stands in the queue; a caller without a request_id of its own
                            can't ask again, so its acquire is abandoned and refused as held

A grant is noticed by its event, in the round that applies it. Everything is driven by callbacks in the order
of the log; there is no task per poll. Nothing is claimed for a caller whose connection or link is gone: the
poll is dropped. Its acquire is not abandoned at once, because the caller may be asking again elsewhere at
this moment, or holds already what it was granted there. If its connection was closed and it has not polled
again a little later, by the log, it leaves the queue. Behind a broken link nobody knows: then its place is
gone after two slices without a poll, or a grant to it after the claim window.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from tenure_cluster.lease import limits, results
from tenure_cluster.lease.events import Event
from tenure_cluster.raft import Raft
from tenure_cluster.service import reads
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.answers import answer, held, waiting_reply
from tenure_cluster.service.asks import Ask, Done, NoAnswer, Outcome
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.proposals import Proposer, Settled, Then
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.requests import AcquireRequest

Place: TypeAlias = tuple[str, str, str]
"""(tenant, session_id or "", request_id): where a waiter stands in LeaseTable.waiters."""

ENDINGS: Final = frozenset({"released", "expired", "broken"})
"""Events that end a lease, maybe one that a poll was granted earlier in the same round."""


LEAVE_AFTER_S: Final = 2.0
"""A caller whose connection has closed has this long to ask again before its place is given up."""


class Poll:
    """One waiting acquire and the connection that waits for it."""

    __slots__ = ("ask", "claiming", "done", "ends_at", "executed", "keys", "left", "over", "place", "timer")

    def __init__(self, ask: Ask, done: Done, ends_at: float) -> None:
        request = cast(AcquireRequest, ask.request)
        self.ask = ask
        self.done = done
        self.ends_at = ends_at
        """The loop's time at which the slice is over."""
        self.keys = [request.key] if request.key is not None else request.keys or []
        self.place: Place = (ask.tenant, request.session_id or "", request.request_id or "")
        self.claiming = False
        self.executed = False
        """Whether its acquire is in the log, so that it can't be answered as not executed any more."""
        self.left = False
        """Whether its caller has closed the connection."""
        self.over = False
        """Whether `done` has been called."""
        self.timer: asyncio.TimerHandle | None = None


class Polls:
    """All connected polls of this leader."""

    def __init__(self, raft: Raft, replica: Replica, proposer: Proposer, admission: Admission) -> None:
        self._raft = raft
        self._replica = replica
        self._proposer = proposer
        self._admission = admission
        self._by_ask: dict[Ask, Poll] = {}
        """All that have been started and not answered."""
        self._by_place: dict[Place, Poll] = {}
        """Those that are registered."""
        self._by_key: dict[tuple[str, str], dict[Place, Poll]] = {}
        self._granted: dict[tuple[str, str], None] = {}
        self._left: dict[tuple[str, str], None] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._by_place)

    def start(self, ask: Ask, done: Done, propose: Callable[[Ask, Then], None]) -> None:
        """Acquire, by `propose`, waiting for at most a slice. `done` is called once."""
        refusal = self._admission.poll_refusal(len(self._by_ask))
        if refusal is not None:
            done(refusal)
            return
        slice_s = min(ask.wait_ms, limits.POLL_SLICE_MS) / 1000
        poll = self._by_ask[ask] = Poll(ask, done, asyncio.get_running_loop().time() + slice_s)
        propose(ask, lambda settled: self._acquired(poll, settled))

    def settle(self, ask: Ask, settled: Settled, done: Done) -> None:
        """Answer an acquire that does not wait any longer."""
        if isinstance(settled, Problem | NoAnswer):
            done(settled)
        elif isinstance(settled, results.Waiting) and not ask.remember:
            self._withdraw(ask, done)
        else:
            done(answer(settled, ask, self._raft.now_ms()))

    def on_events(self, events: Sequence[Event]) -> None:
        """Take note of what may concern a poll; it is looked at when the round is over."""
        if not self._by_place:
            return
        scheduled = bool(self._granted or self._left)
        for event in events:
            key = (event.tenant, event.key)
            if key not in self._by_key:
                continue
            if event.kind == "granted":
                self._granted[key] = None
            elif event.kind == "queue_left" or (event.kind in ENDINGS and key in self._granted):
                self._left[key] = None
        if not scheduled and (self._granted or self._left):
            asyncio.get_running_loop().call_soon(self._wake)

    def drop(self, ask: Ask, *, left: bool = False) -> None:
        """Nobody waits for this acquire on its connection any more: nothing is claimed for it. If its caller
        has `left`, its place is given up soon, unless it asks again; else the place stays as it is."""
        poll = self._by_ask.get(ask)
        if poll is None:
            return
        poll.left = left
        is_registered = self._by_place.get(poll.place) is poll
        self._finish(poll, NoAnswer.UNKNOWN)
        if left and is_registered:
            self._leave_soon(poll)

    def _leave_soon(self, poll: Poll) -> None:
        waiter = self._replica.table.waiters.get(poll.place)
        if waiter is None or not poll.ask.remember:
            return
        # The deadline is that of this caller's own last poll: whoever polled later is registered by now.
        asyncio.get_running_loop().call_later(LEAVE_AFTER_S, self._leave, poll, waiter.poll_deadline_ms)

    def _leave(self, poll: Poll, poll_deadline_ms: int) -> None:
        if self._closing or not self._raft.is_leader():
            return
        request = cast(AcquireRequest, poll.ask.request)
        self._proposer.abandon(
            poll.ask.tenant,
            request.request_id or "",
            request.session_id,
            lambda settled: None,
            poll_deadline_ms=poll_deadline_ms,
        )

    def drop_all(self) -> None:
        """Leadership is lost. The acquires are in the log; their callers ask the next leader."""
        for poll in list(self._by_place.values()):
            self._finish(poll, NoAnswer.UNKNOWN)

    def close(self) -> None:
        """The node stops: answer every poll where it stands, and let no other begin."""
        self._closing = True
        for poll in list(self._by_place.values()):
            if not poll.claiming:
                self._slice_over(poll)

    def _acquired(self, poll: Poll, settled: Settled) -> None:
        if poll.over:
            if poll.left and isinstance(settled, results.Waiting):
                self._leave_soon(poll)
            return
        if poll.executed and isinstance(settled, Problem | NoAnswer):
            # It was only asked what has become of it.
            self._finish(poll, NoAnswer.UNKNOWN)
        elif not isinstance(settled, results.Waiting):
            self.settle(poll.ask, settled, lambda outcome: self._finish(poll, outcome))
        elif not self._raft.is_leader():
            self._finish(poll, NoAnswer.UNKNOWN)
        else:
            self._register(poll)

    def _register(self, poll: Poll) -> None:
        poll.executed = True
        earlier = self._by_place.get(poll.place)
        if earlier is not None and earlier is not poll:
            # The caller has asked again on another connection; the answer goes there.
            self._finish(earlier, self._position(earlier))
        self._by_place[poll.place] = poll
        for key in poll.keys:
            self._by_key.setdefault((poll.ask.tenant, key), {})[poll.place] = poll
        if self._closing:
            self._slice_over(poll)
            return
        poll.timer = asyncio.get_running_loop().call_at(poll.ends_at, self._slice_over, poll)
        # Later commands of the same entry may already have granted it.
        self._look(poll)

    def _forget(self, poll: Poll) -> None:
        if poll.timer is not None:
            poll.timer.cancel()
        if self._by_place.get(poll.place) is poll:
            del self._by_place[poll.place]
            for key in poll.keys:
                same_key = self._by_key[poll.ask.tenant, key]
                del same_key[poll.place]
                if not same_key:
                    del self._by_key[poll.ask.tenant, key]

    def _finish(self, poll: Poll, outcome: Outcome) -> None:
        self._forget(poll)
        if not poll.over:
            poll.over = True
            del self._by_ask[poll.ask]
            poll.done(outcome)

    def _wake(self) -> None:
        granted, self._granted = self._granted, {}
        left, self._left = self._left, {}
        for tenant, key in granted:
            for grant in self._replica.table.holders(tenant, key):
                lease = grant.lease
                scope = "" if grant.session.private else lease.session_id
                poll = self._by_place.get((tenant, scope, lease.request_id))
                if poll is not None:
                    self._look(poll)
        for place in left:
            for poll in list(self._by_key.get(place, {}).values()):
                self._look(poll)

    def _look(self, poll: Poll) -> None:
        """Claim if there is a grant; ask what happened if the place in the queue is gone."""
        if poll.claiming or poll.over:
            return
        table = self._replica.table
        grants = table.granted(*poll.place)
        if grants:
            poll.claiming = True
            self._proposer.claim(
                poll.ask.tenant, grants[0].lease.lease_id, lambda settled: self._claimed(poll, settled)
            )
        elif poll.place not in table.waiters:
            self._forget(poll)
            self._proposer.ask(poll.ask, lambda settled: self._acquired(poll, settled))

    def _claimed(self, poll: Poll, settled: Settled) -> None:
        if poll.over:
            return  # the caller or this node's leadership was lost meanwhile, or the caller asked anew
        if isinstance(settled, Problem | NoAnswer):
            # Not claimed, but granted. Asking again is a claim as well, and the window is open for seconds.
            self._finish(poll, NoAnswer.UNKNOWN)
        else:
            self.settle(poll.ask, settled, lambda outcome: self._finish(poll, outcome))

    def _slice_over(self, poll: Poll) -> None:
        if poll.claiming:
            return
        if poll.place not in self._replica.table.waiters:
            self._look(poll)
        elif poll.ask.remember:
            self._finish(poll, self._position(poll))
        else:
            self._forget(poll)
            self._withdraw(poll.ask, lambda outcome: self._finish(poll, outcome))

    def _position(self, poll: Poll) -> Outcome:
        table = self._replica.table
        request_id = poll.place[2]
        waiter = table.waiters.get(poll.place)
        if waiter is None:
            return NoAnswer.UNKNOWN
        stands = reads.waiting(reads.View(table, table.time_ms, self._raft.now_ms()), waiter)
        return waiting_reply(stands.position, stands.holders, stands.ahead, request_id)

    def _withdraw(self, ask: Ask, done: Done) -> None:
        """Leave the queue for a caller that could not ask again, and say who has the key."""
        request = cast(AcquireRequest, ask.request)
        keys = [request.key] if request.key is not None else request.keys or []

        def left(settled: Settled) -> None:
            if isinstance(settled, Problem | NoAnswer):
                done(NoAnswer.UNKNOWN)
                return
            table, now_ms = self._replica.table, self._raft.now_ms()
            view = reads.View(table, table.time_ms, now_ms)
            in_the_way = next((key for key in keys if view.holders(ask.tenant, key)), keys[0])
            done(held(reads.held(view, ask.tenant, in_the_way), ask, now_ms))

        self._proposer.abandon(ask.tenant, request.request_id or "", request.session_id, left)
