"""Keeps the sessions of one client alive, on the renewal thread and over connections of its own.

Theory of operation. Each session has one task, which renews it (_kept.py says when), tells of what is lost,
and ends with it. An error that is not the cluster's word that the session is over says nothing of it,
whatever the error is, and is followed by another attempt until the validity ends. However a task ends, the
handles of its session are not believed in afterwards.

What a caller could not bring to an answer is carried out here as well: a release or an abandon is repeated
until the cluster has answered it, or the session is over and with it whatever was to be undone.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from tenure import _background, _requests
from tenure._calls import Calls
from tenure._handle import State
from tenure._kept import KeptSession, Member, Over, Wait
from tenure._options import Options
from tenure._requests import Request
from tenure.errors import LeaseLost, TenureError

LOOK_AGAIN_S: Final = 1.0
"""Longest sleep. The loop's own clock stands still while the machine is suspended, the client's does not."""
ASK_AT_ONCE_MAX: Final = 500
"""Most leases that are asked for in one batch."""
UNDO_AGAIN_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 2.0

log = logging.getLogger("tenure")


class Renewer:
    """One client's part of the renewal thread. Its methods may be called from any thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: _background.LoopThread | None = None
        self._work: _Work | None = None
        self._closed = False

    def keep(self, session: KeptSession) -> None:
        """Renew the session from now on, as long as it has anything."""
        self._submit(lambda work: work.begin_keeping(session), otherwise=lambda: session.end("closed"))

    def undo(self, session: KeptSession, request: Request[Any], done: Callable[[str | None], None]) -> None:
        """Have a release or abandon answered. ``done`` is called with None, or with the reason for which
        the lease had ended before."""
        self._submit(lambda work: work.begin_undoing(session, request, done), otherwise=lambda: done(None))

    def release(self, session: KeptSession, member: Member) -> None:
        """Go on with a release that has begun and was not answered."""
        self._submit(lambda work: work.release(session, member), otherwise=lambda: None)

    def drop(self, session: KeptSession, member: Member) -> None:
        """Release a handle whose owner is gone."""
        self._submit(lambda work: work.drop(session, member), otherwise=lambda: None)

    def give_back(self, session: KeptSession, member: Member) -> None:
        """See to it that nothing of a handle that is over stays with its session, which may live on."""
        self._submit(lambda work: work.give_back(session, member), otherwise=lambda: None)

    def close(self) -> concurrent.futures.Future[None] | None:
        """Stop renewing: every handle that is still held is LOST. The future ends after what is being undone
        was given a little time; None if there is nothing to wait for."""
        if os.getpid() != self._pid:
            return None
        with self._lock:
            self._closed = True
            thread, work = self._thread, self._work
            self._thread = self._work = None
        if thread is None or work is None:
            return None

        async def end() -> None:
            try:
                await work.close()
            finally:
                _background.give_back(thread)

        try:
            return thread.submit(end())
        except RuntimeError:
            return None

    def _submit(self, begin: Callable[[_Work], None], *, otherwise: Callable[[], None]) -> None:
        if os.getpid() != self._pid:
            otherwise()
            return
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive):
                self._thread = _background.take()
                self._work = _Work(self._options)
            thread, work = self._thread, self._work
        if thread is None or work is None or not thread.call_soon(lambda: begin(work)):
            otherwise()


class _Work:
    """What runs on the thread for one client."""

    def __init__(self, options: Options) -> None:
        self._calls = Calls(options)
        self._keeping: dict[asyncio.Task[None], KeptSession] = {}
        self._undoing: set[asyncio.Task[None]] = set()
        self._spawned: set[asyncio.Task[None]] = set()

    # -- keeping

    def begin_keeping(self, session: KeptSession) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                pass  # the thread has ended, and the session with it

        session.wake = wake
        task = loop.create_task(self._keep(session, woken))
        self._keeping[task] = session
        task.add_done_callback(lambda ended: self._kept(ended, session))

    def _kept(self, task: asyncio.Task[None], session: KeptSession) -> None:
        self._keeping.pop(task, None)
        # Also reached by a task that was cancelled before it began.
        session.end("closed")
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("renewing ended by a fault; its handles are lost", exc_info=error)

    async def _keep(self, session: KeptSession, woken: asyncio.Event) -> None:
        try:
            while not isinstance(step := session.next(), Over):
                if isinstance(step, Wait):
                    if await _woken(woken, step.seconds) and step.seconds > 0:
                        continue  # too early for anything to have ended: to look costs time for each lease
                else:
                    await self._renew(session, step.timeout_s)
                session.tell()
            await self._close_session(session)
        finally:
            session.end("closed")

    async def _renew(self, session: KeptSession, timeout_s: float) -> None:
        for member in session.orphans():
            self.drop(session, member)
        request = _requests.renew_session(session_id=session.session_id)
        # Half of the time for each node, so that a second one can be asked within the attempt.
        call = self._calls.call(request, timeout_s=timeout_s, attempt_timeout_s=timeout_s / 2)
        try:
            answer = await self._calls.perform(call)
        except LeaseLost as lost:
            session.end(lost.reason)
            return
        except Exception as error:
            log.log(_level(error), "a renewal failed and will be repeated: %s", error)
            session.renew_failed()
            return
        session.renewed(answer.sent_at, answer.value.session.expires_in_ms)
        if not session.counts(answer.value.session.leases):
            self.spawn(self._ask_for_each(session, timeout_s))

    async def _ask_for_each(self, session: KeptSession, timeout_s: float) -> None:
        """Which of the leases are still there? Says nothing if it can't be learned now: the next renewal
        asks again."""
        lease_ids = session.lease_ids()
        for start in range(0, len(lease_ids), ASK_AT_ONCE_MAX):
            asked = lease_ids[start : start + ASK_AT_ONCE_MAX]
            try:
                answer = await self._calls.ask(_requests.renew_each(asked), timeout_s=timeout_s)
            except TenureError:
                return
            for lease_id, result in zip(asked, answer.results, strict=False):
                if result.status == 410 and result.code == "lost":
                    session.lost(lease_id, result.reason or "unknown")

    # -- undoing

    def begin_undoing(
        self, session: KeptSession, request: Request[Any], done: Callable[[str | None], None]
    ) -> None:
        task = self.spawn(self._undo(session, request, done))
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    def drop(self, session: KeptSession, member: Member) -> None:
        if session.begin_release(member) is not State.RELEASED:
            return
        log.warning("a handle of %r was dropped without releasing it", member.grants[0].key)
        self.release(session, member)

    def release(self, session: KeptSession, member: Member) -> None:
        request = release_of(member)
        self.begin_undoing(session, request, lambda reason: session.release_answered(member, reason))

    def give_back(self, session: KeptSession, member: Member) -> None:
        self.begin_undoing(session, release_of(member), lambda _: None)

    async def _undo(
        self, session: KeptSession, request: Request[Any], done: Callable[[str | None], None]
    ) -> None:
        while not session.is_over:
            try:
                await self._calls.ask(request)
            except LeaseLost as lost:
                done(lost.reason)
                return
            except Exception as error:
                log.log(_level(error), "%s failed and will be repeated: %s", request.name, error)
                await self._calls.options.sleep(UNDO_AGAIN_S)
            else:
                done(None)
                return
        done("expired")

    # -- closing

    async def _close_session(self, session: KeptSession) -> None:
        """End a session that has nothing, so that the cluster need not wait for its end."""
        if not session.is_over:
            try:
                await self._calls.ask(_requests.close_session(session.session_id), timeout_s=CLOSE_TIMEOUT_S)
            except TenureError:
                pass  # it ends by itself
        session.end("closed")

    async def close(self) -> None:
        """Give what is being undone a little time, end the sessions that are empty, and stop."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=CLOSE_TIMEOUT_S / 2)
        empty = [session for session in self._keeping.values() if session.is_empty]
        if empty:
            closing = [asyncio.ensure_future(self._close_session(session)) for session in empty]
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S / 2)
        tasks = [*self._keeping, *self._spawned]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._calls.close()

    def spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task


def release_of(member: Member) -> Request[Any]:
    """What releases a lease, or all of a set in one entry."""
    return _requests.release(lease_id=member.grants[0].lease_id, whole_set=len(member.grants) > 1)


async def _woken(woken: asyncio.Event, seconds: float) -> bool:
    """Wait for so long, or until woken; whether it was that."""
    try:
        async with asyncio.timeout(max(0.0, min(seconds, LOOK_AGAIN_S))):
            await woken.wait()
    except TimeoutError:
        pass
    was_woken = woken.is_set()
    woken.clear()
    return was_woken


def _level(error: BaseException) -> int:
    return logging.INFO if isinstance(error, TenureError) else logging.WARNING
