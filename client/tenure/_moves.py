"""What a handle does when its lease passes to another session, or rests: handover, park, unpark.

Theory of operation. Each of them changes who may act, at a moment that the caller learns of only later. So
the handle is set aside before anything is sent (_handle.py), and what becomes of it is settled by the answer:

    done                       RELEASED, PARKED, or HELD again in a session that is alive
    certainly not done         as before
    lost                       LOST, with the cluster's reason
    unknown, a handover        LOST (unknown); the lease is released if it is still there, so that it does not
                               hang on a session that other leases keep alive
    unknown, parking           still set aside and kept alive: either way `unpark` makes it HELD

They follow one another, and run to their end if their caller is cancelled.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Final

from tenure import _requests
from tenure._handle import State
from tenure._kept import KeptSession
from tenure._protocol import Answer
from tenure._terms import milliseconds
from tenure.answers import Passed
from tenure.errors import ClusterUnavailable, InvalidRequest, LeaseLost, TenureError

if TYPE_CHECKING:
    from tenure.aio import Held

SESSIONS_TRIED_MAX: Final = 3


class Moves:
    """Those of one handle."""

    def __init__(self, held: Held) -> None:
        # The handle owns this, so no cycle may keep it from being noticed when it is dropped.
        self._of = weakref.ref(held)
        self._one_at_a_time = asyncio.Lock()

    @property
    def _held(self) -> Held:
        held = self._of()
        assert held is not None
        return held

    async def is_parked(self, patience_s: float) -> bool:
        """Whether it is parked, once what is under way has come to its end, or will be for all that is known
        by then."""
        held = self._held
        if self._one_at_a_time.locked():
            try:
                async with asyncio.timeout(patience_s), self._one_at_a_time:
                    pass
            except TimeoutError:
                pass
        return held.state is State.PARKED

    # -- handover

    async def handover(self, to_session_id: str) -> None:
        held = self._held
        if len(held.grants) > 1:
            raise InvalidRequest(code="unsupported", detail="the leases of a set can't be handed over")
        held.check()
        if held._session.set_aside(held._member, State.RELEASED) is not State.RELEASED:
            held.check()
        await held._finish(self._handover(held, to_session_id))

    async def _handover(self, held: Held, to_session_id: str) -> None:
        async with self._one_at_a_time:
            calls, session, member = held._client._calls, held._session, held._member
            call = calls.call(_requests.handover(lease_id=held.lease_id, to_session_id=to_session_id))
            try:
                await calls.perform(call)
            except LeaseLost as lost:
                if not (call.doubtful and lost.reason == "handed_over"):
                    session.lose(member, lost.reason, settles=True)
                    raise
                # By an attempt that was not answered; the successor has ended its lease since.
            except BaseException as error:
                if isinstance(error, TenureError) and not call.doubtful:
                    session.take_back(member)
                else:
                    session.lose(member, "unknown", settles=True)
                    held._client._renewer.give_back(session, member)
                raise
            session.passed_on(member)
            held._at_drop(None)

    # -- parking

    async def park(self, limit: float) -> None:
        held = self._held
        limit_ms = milliseconds(limit, "limit")
        if held.state is not State.PARKED:
            held.check()
            if held._session.set_aside(held._member, State.PARKED) is not State.PARKED:
                held.check()
        await held._finish(self._park(held, limit_ms))

    async def _park(self, held: Held, limit_ms: int) -> None:
        async with self._one_at_a_time:
            calls, session, member = held._client._calls, held._session, held._member
            call = calls.call(_requests.park(lease_id=held.lease_id, limit_ms=limit_ms, token=held.token))
            try:
                answer = await calls.perform(call)
            except LeaseLost as lost:
                self._lose(held, lost.reason)
                raise
            except TenureError:
                if not call.doubtful:
                    session.take_back(member)
                raise
            session.parked(member, answer.sent_at, answer.value.lease.expires_in_ms)
            held._at_drop(None)

    async def unpark(self) -> None:
        held = self._held
        if held.state is not State.PARKED:
            held.check()
            return
        await held._finish(self._unpark(held))

    async def _unpark(self, held: Held) -> None:
        async with self._one_at_a_time:
            if held.state is not State.PARKED:
                held.check()
                return
            for _ in range(SESSIONS_TRIED_MAX):
                session = await self._session_for(held)
                try:
                    answer = await self._taken_up(held, session)
                    if answer is not None:
                        self._go_on(held, session, answer)
                        return
                finally:
                    session.unuse((held.key,))
            raise ClusterUnavailable(detail=f"no session lasted long enough to take {held.key!r} up in it")

    async def _session_for(self, held: Held) -> KeptSession:
        before, grant = held._session, held.grants[0]
        if before.keeps(held._member) and not before.is_over:
            # It is not known to have left the session it was kept in, and can't be in two.
            before.use((held.key,))
            return before
        sessions = held._client._sessions
        return await sessions.use(grant.owner, grant.ttl_ms, (held.key,), shared=not before.is_retired)

    async def _taken_up(self, held: Held, session: KeptSession) -> Answer[Passed] | None:
        """The answer; None if the session was found to be over."""
        calls = held._client._calls
        request = _requests.unpark(lease_id=held.lease_id, session_id=session.session_id, token=held.token)
        try:
            answer = await calls.perform(calls.call(request))
        except LeaseLost as lost:
            if lost.code == "lost":
                self._lose(held, lost.reason)
                raise
            session.end(lost.reason)
            return None
        if answer.value.lease.session_id != session.session_id:
            self._lose(held, "taken_up")
            raise held._loss()
        return answer

    def _go_on(self, held: Held, session: KeptSession, answer: Answer[Passed]) -> None:
        held._session.taken_up(held._member)
        new_since = None if answer.value.replayed else answer.sent_at
        held._keep(session, [answer.value.lease], answer.sent_at, new_since)

    def _lose(self, held: Held, reason: str) -> None:
        held._session.lose(held._member, reason, settles=True)
        if held.state is State.LOST:
            # A parked lease is no member of its session any more, which would tell of it.
            held._lost_now()
