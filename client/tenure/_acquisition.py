"""One acquire, from its first call to a grant in hand or to nothing left behind.

Theory of operation. Without waiting it is a single call. With waiting the acquire queues, and is asked
again and again with the same request_id, which keeps its place, until it is granted or the time is over. A
grant whose answer took long is renewed before it is handed out, because its time counts from the send.

Whoever gives up must leave nothing: no place in the queue, and no grant that nobody knows of. A refusal and
a certain "not executed" leave nothing by themselves. After everything else (the time to wait is over, a
cancellation, an outcome that stayed unknown, and a refusal that came while an earlier attempt may still be
under way) the acquire is abandoned; a grant that raced with that is released by it, and an attempt that
arrives later is refused.

A request can be over before its caller knows that it was granted: the cluster gives up a waiting acquire when
the connection of its poll breaks, for it can't tell a caller that has gone from a broken network; and a grant
that isn't claimed in time passes to the next waiter. A caller that is still there, has time left and did not
choose the request_id itself then queues anew under another, at the end of the line.

All of it together takes the time that a call is given, or the time to wait and one attempt more if that is
longer. What must still be done after that, to confirm a grant or to take an unanswered acquire back, gets
CLOSING_S each.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from tenure import _requests
from tenure._calls import Calls
from tenure._protocol import Answer, Call
from tenure._requests import Request
from tenure.answers import Acquired, Grant, Holder
from tenure.errors import (
    ClusterUnavailable,
    InvalidRequest,
    LeaseLost,
    LeaseUnavailable,
    OutcomeUnknown,
    TenureError,
)

ABANDON_TIMEOUT_S: Final = 2.0
"""How long giving up may take. A waiter that could not be abandoned leaves the queue by its silence, a
grant at its TTL."""
CLOSING_S: Final = 0.5
"""What confirming and giving up are given even if the time is over. With a leader they take milliseconds."""
CONFIRM_AFTER_S: Final = 0.25
"""A grant whose answer took longer than this is renewed before it is handed out."""


def mint_id() -> str:
    """A request_id or op_id that nobody else has."""
    return secrets.token_urlsafe(16)


class Acquisition:
    """One acquire. ``body`` is as in the contract, without ``request_id`` and ``wait_ms``.

    ``undo`` takes an abandon that could not be brought to an answer, and sees to it later. Without it an
    acquire in a session would be left to whoever keeps that session alive.
    """

    def __init__(
        self,
        calls: Calls,
        body: dict[str, Any],
        *,
        wait_s: float,
        request_id: str | None = None,
        undo: Callable[[Request[dict[str, Any]]], None] | None = None,
    ) -> None:
        self._calls = calls
        self._body = body
        self._undo = undo
        begun_at = calls.clock()
        self._wait_until = begun_at + wait_s if wait_s else None
        self._end = begun_at + max(calls.timeout_s, wait_s + calls.attempt_timeout_s if wait_s else 0.0)
        self._callers_id = request_id is not None
        self._request_id = request_id or mint_id()
        self.new_since: float | None = None
        """The grant that `run` returned was made after this; None if that is not known."""
        self._call: Call[Acquired] | None = None
        self._has_place = False
        """The cluster has answered that this request is queued or granted, and not yet that it isn't any
        more."""

    @property
    def wait_is_over(self) -> bool:
        """There is no time left to wait."""
        return self._is_over()

    async def run(self) -> Answer[list[Grant]]:
        """Acquire: the grant, or those of a set. Raises as Client.acquire says; then nothing is left behind,
        as far as that can be known."""
        try:
            while True:
                answer = await self._ask()
                if answer.value.status == "waiting":
                    if self._is_over():
                        raise await self._waited_in_vain(answer.value)
                elif (confirmed := await self._confirmed(answer)) is not None:
                    return confirmed
        except BaseException as error:
            await self._give_up(error)
            raise

    async def _ask(self) -> Answer[Acquired]:
        while True:
            body = {**self._body, "request_id": self._request_id}
            left_s = max(self._end - self._calls.clock(), 0.0)
            self._call = self._calls.call(_requests.acquire(body, self._wait_until), timeout_s=left_s)
            try:
                answer = await self._calls.perform(self._call)
            except LeaseLost as lost:
                if lost.code != "lost" or not self._may_begin_anew():
                    raise
                self._begin_anew()
                continue
            self._has_place = True
            return answer

    def _closing_s(self) -> float:
        return max(self._end - self._calls.clock(), CLOSING_S)

    def _is_over(self) -> bool:
        return self._wait_until is None or self._calls.clock() >= self._wait_until

    def _may_begin_anew(self) -> bool:
        return not self._callers_id and not self._is_over()

    def _begin_anew(self) -> None:
        self._has_place = False
        self._request_id = mint_id()

    async def _confirmed(self, answer: Answer[Acquired]) -> Answer[list[Grant]] | None:
        """The grants with fresh time; None if one has ended meanwhile and there is time to begin anew."""
        grants = answer.value.grants
        self.new_since = None if answer.value.replayed else answer.sent_at
        if not grants:
            raise InvalidRequest(code="unsupported", detail="the cluster granted without naming a lease")
        if self._calls.clock() - answer.sent_at <= CONFIRM_AFTER_S:
            return Answer(grants, answer.sent_at)
        try:
            renewed = [await self._renewed(grant) for grant in grants]
        except LeaseLost as lost:
            self._has_place = len(grants) > 1
            if not self._may_begin_anew():
                detail = f"the key was granted, but the lease ended before it was confirmed: {lost}"
                raise LeaseUnavailable(code="wait_over", detail=detail) from lost
        else:
            # They share a session, so what the first renewal says is true of all.
            return Answer([one.value for one in renewed], renewed[0].sent_at)
        if self._has_place:
            await self._abandon()
        self._begin_anew()
        return None

    async def _renewed(self, grant: Grant) -> Answer[Grant]:
        call = self._calls.call(_requests.renew(lease_id=grant.lease_id), timeout_s=self._closing_s())
        answer = await self._calls.perform(call)
        return Answer(answer.value.lease, answer.sent_at)

    async def _waited_in_vain(self, acquired: Acquired) -> LeaseUnavailable:
        """The error for a wait that is over; it names the holder if that can be learned quickly."""
        key, holder = self._key(), None
        try:
            async with asyncio.timeout(min(self._closing_s(), ABANDON_TIMEOUT_S)):
                holder = await self._in_the_way()
        except (TenureError, TimeoutError):
            pass
        key = key if holder is None else holder.key
        held = f"{key!r} is held by {holder.owner!r}" if holder else f"{key!r} was not granted in time"
        return LeaseUnavailable(
            holder,
            code="wait_over",
            detail=f"{held}; the time to wait is over, at position {acquired.position} of the queue",
            position=acquired.position,
            ahead=tuple(acquired.ahead),
        )

    async def _in_the_way(self) -> Holder | None:
        """Who holds the key, or the first of a set that is held."""
        for key in self._body.get("keys") or (self._key(),):
            holders = (await self._calls.ask(_requests.queue(key))).holders
            if holders:
                return holders[0]
        return None

    async def _give_up(self, error: BaseException) -> None:
        """Abandon if anything may be left. Raises ClusterUnavailable in the place of an unknown outcome
        that is known now."""
        unknown = isinstance(error, OutcomeUnknown)
        if not self._may_leave_something(error) or (unknown and self._callers_id):
            return
        if await self._calls.finish(self._abandon()) and unknown:
            raise ClusterUnavailable(
                detail=f"the acquire of {self._key()!r} was given up: {error}"
            ) from error

    def _may_leave_something(self, error: BaseException) -> bool:
        if self._call is None or not self._call.attempted:
            return False
        if self._has_place or self._call.doubtful:
            return True
        # Refusals and "certainly not executed" leave nothing; a cancellation can strike in the middle of an
        # attempt.
        return not isinstance(error, TenureError)

    async def _abandon(self) -> bool:
        """True if it is certain that nothing is left."""
        request = _requests.abandon(request_id=self._request_id, session_id=self._body.get("session_id"))
        try:
            timeout_s = min(self._closing_s(), ABANDON_TIMEOUT_S)
            await self._calls.perform(self._calls.call(request, timeout_s=timeout_s))
        except LeaseLost:
            # The session is over, and with it whatever it held.
            return True
        except BaseException as error:
            if self._undo is not None:
                self._undo(request)
            if isinstance(error, TenureError):
                return False
            raise
        return True

    def _key(self) -> str:
        """The key, or the first of a set."""
        key = self._body.get("key")
        return str(self._body["keys"][0] if key is None else key)
