"""The asyncio front: leases that renew themselves, as context managers and as handles.

    async with tenure.connect("http://n1:7601,http://n2:7601") as client:
        async with client.lease("payment/security/42", ttl=30) as held:
            await held.commit("paid")

sync.py is the same for threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal

from tenure import _requests
from tenure._acquisition import Acquisition, mint_id
from tenure._credentials import Credential
from tenure._endpoints import DEFAULT_ENDPOINTS
from tenure._handle import State
from tenure._held import Place, Reading
from tenure._kept import KeptSession, Member
from tenure._moves import Moves
from tenure._options import ATTEMPT_TIMEOUT_S, TIMEOUT_S, Options
from tenure._protocol import Answer
from tenure._renewer import Renewer, release_of
from tenure._requests import Request
from tenure._sessions import Sessions
from tenure._successor import Successor
from tenure._terms import TTL_S, Mode, Terms, default_owner, milliseconds
from tenure.answers import Accepted, Grant
from tenure.client import PlainClient
from tenure.election import Election, RwLock, election_lease
from tenure.errors import (
    CommitRefused,
    InvalidRequest,
    LeaseLost,
    LeaseUnavailable,
    TenureError,
)

RELEASE_WAIT_S: Final = 2.0
"""How long leaving a block waits for its release to be answered. What is not answered by then goes on in the
background."""
SESSIONS_TRIED_MAX: Final = 3
"""How many sessions an acquire that does not wait may find ended before it gives up."""

log = logging.getLogger("tenure")


def connect(
    endpoints: str | Sequence[str] = DEFAULT_ENDPOINTS,
    *,
    credential: Credential = None,
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = TIMEOUT_S,
    attempt_timeout: float = ATTEMPT_TIMEOUT_S,
    stream: bool = True,
) -> Client:
    """A client of the cluster at ``endpoints``, comma-separated URLs or a list; ``async with`` closes it.
    No I/O happens here, except that certificate files are read.

    Any node will do; the more are named, the more may be down. ``credential`` is a string, a path of a file
    that is read again when it changes, or a function that gives it. ``ca_file``, ``cert_file`` and
    ``key_file`` (PEM), read again when they change, or a context in ``tls`` are for https endpoints.
    ``timeout`` is how many seconds a call is tried, ``attempt_timeout`` how many at one node. Calls share one
    connection to a node where its streams can be reached, and are plain HTTP requests elsewhere, or with
    ``stream=False`` everywhere. Raises InvalidRequest that names what is wrong.
    """
    return Client(
        Options.of(
            endpoints,
            credential=credential,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
            timeout_s=timeout,
            attempt_timeout_s=attempt_timeout,
            stream=stream,
        )
    )


class Client(PlainClient):
    """A client for one event loop: the calls of PlainClient, and leases that are kept alive.

    Renewal has a thread, an event loop and connections of its own, so a body that blocks the event loop
    loses no lease by that. A client that came through a fork is of no use in the child: its handles there
    are LOST, and it takes no calls.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._renewer = Renewer(options)
        self._sessions = Sessions(self._calls, self._renewer)
        self._dropped = weakref.finalize(self, self._renewer.close)
        self._dropped.atexit = False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what is being released or abandoned, for a few seconds at most, and close the connections.
        A handle that is still held is LOST from here on; its lease is not released, because nothing says
        that its holder has stopped, and ends at its TTL."""
        self._dropped.detach()
        await self._calls.finish_left_behind()
        closing = self._renewer.close()
        if closing is not None:
            await asyncio.shield(asyncio.wrap_future(closing))
        await self._calls.close()

    def lease(
        self,
        key: str | Sequence[str],
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        wait: float = 0.0,
        mode: Mode = "exclusive",
        slots: int | None = None,
        grace: float = 0.0,
        progress: float | None = None,
        metadata: Mapping[str, str] | None = None,
        own_session: bool = False,
    ) -> Lease:
        """A lease on ``key``, or on all of several keys, that can be acquired: by ``async with``, or by its
        ``acquire``. Several keys are granted together or not at all, to one handle with a token for each. No
        I/O.

        Acquiring waits in the key's queue for ``wait`` seconds at most, by default not at all. Whoever holds
        is shown as ``owner`` (default: host and process) with ``metadata``. The lease ends ``ttl`` seconds
        after its last renewal, and is renewed until it is released. ``grace`` passes after an expiry before
        the next grant. ``mode`` is ``exclusive``, ``shared``, or ``permit`` of a pool of ``slots``. With
        ``progress`` the lease demands that ``held.progress`` tells something new every so many seconds, and
        ends without it, however well it is renewed.
        Leases of one owner and TTL share a session (``own_session`` makes an exception): they cost one
        heartbeat, and are one party where a deadlock is looked for. Raises InvalidRequest.
        """
        terms = Terms.of(
            key,
            ttl=ttl,
            owner=owner,
            wait=wait,
            mode=mode,
            slots=slots,
            grace=grace,
            progress=progress,
            metadata=metadata,
            own_session=own_session,
        )
        return Lease(self, terms)

    async def take_up(self, lease_id: str, *, ttl: float = TTL_S, owner: str | None = None) -> Held:
        """Take up a lease that was parked, by this process or by another one, and keep it from here on, in a
        session of its own with that ``ttl``, of that ``owner``.

        When it returns, the handle is HELD with a new token; ``metadata`` and ``found_progress`` are the
        context to go on from. Raises LeaseLost if the lease is over, its limit included, and LeaseUnavailable
        if it is not parked any more. If it is cancelled, or ends as OutcomeUnknown, the lease may be lost.
        """
        ttl_ms = milliseconds(ttl, "ttl")
        session = await self._sessions.use(owner or default_owner(), ttl_ms, (lease_id,), shared=False)
        try:
            request = _requests.unpark(lease_id=lease_id, session_id=session.session_id)
            answer = await self._calls.perform(self._calls.call(request))
            lease = answer.value.lease
            if lease.session_id != session.session_id:
                raise LeaseUnavailable(lease, detail=f"{lease.key!r} is not parked: {lease.owner!r} is at it")
            new_since = None if answer.value.replayed else answer.sent_at
            return Held(self, session, [lease], answer.sent_at, new_since)
        finally:
            session.unuse((lease_id,))

    def _held(self, session: KeptSession, answer: Answer[list[Grant]], new_since: float | None) -> Held:
        return Held(self, session, answer.value, answer.sent_at, new_since)

    def election(
        self,
        name: str,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Election:
        """The office ``name``, to campaign for or to observe. No I/O."""
        return Election(self, election_lease(self, name, owner=owner, ttl=ttl, metadata=metadata))

    def semaphore(
        self,
        name: str,
        slots: int,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        wait: float = 0.0,
        metadata: Mapping[str, str] | None = None,
    ) -> Lease:
        """One of ``slots`` permits of the pool ``name``, as a lease; ``held.slot`` is its number. No I/O."""
        return self.lease(
            name, ttl=ttl, owner=owner, wait=wait, mode="permit", slots=slots, metadata=metadata
        )

    def rwlock(
        self,
        name: str,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        wait: float = 0.0,
        metadata: Mapping[str, str] | None = None,
    ) -> RwLock[Lease]:
        """Leases on ``name`` for readers, together, and for writers, alone. No I/O."""
        return RwLock(
            read=self.lease(name, ttl=ttl, owner=owner, wait=wait, mode="shared", metadata=metadata),
            write=self.lease(name, ttl=ttl, owner=owner, wait=wait, metadata=metadata),
        )


class Lease:
    """A lease that can be acquired any number of times, each time with a new handle and a new token."""

    def __init__(self, client: Client, terms: Terms) -> None:
        self._client = client
        self._terms = terms
        self._is_entered = False
        self._entered: Held | None = None

    @property
    def key(self) -> str:
        """The key; the first one of a set."""
        return self._terms.keys[0]

    async def acquire(self, *, wait: float | None = None, blocking: bool = True) -> Held:
        """Acquire, and renew until the handle is released.

        Waits in the queue for ``wait`` seconds at most (default: as the lease was made); ``blocking=False``
        does not wait. When it returns, the key is held and the handle is HELD. When it raises, nothing is
        left behind: LeaseUnavailable (held by somebody else, or the time is over), ClusterUnavailable, or
        OutcomeUnknown if it is not known whether it was granted; giving it back then goes on in the
        background. Cancelling gives the acquire up likewise.
        """
        terms, calls, sessions = self._terms, self._client._calls, self._client._sessions
        wait_s = 0.0 if not blocking else terms.wait_s if wait is None else wait
        wait_until = calls.clock() + milliseconds(wait_s, "wait") / 1000
        tried = 0
        while True:
            tried += 1
            session = await sessions.use(terms.owner, terms.ttl_ms, terms.keys, shared=terms.shared_session)
            try:
                held = await self._acquire_in(session, max(0.0, wait_until - calls.clock()))
            except LeaseLost as lost:
                if lost.code == "lost":
                    raise LeaseUnavailable(
                        code="wait_over", detail=f"the acquire was given up: {lost}"
                    ) from lost
                # The session is over, and with it the place in the queue.
                session.end(lost.reason)
            else:
                if held.is_held:
                    return held
            finally:
                session.unuse(terms.keys)
            if tried >= SESSIONS_TRIED_MAX and calls.clock() >= wait_until:
                detail = f"no session lasted long enough to acquire {self.key!r}"
                raise LeaseUnavailable(code="wait_over", detail=detail)

    def successor(self) -> Successor:
        """Somebody to whom a holder can hand the lease over: ``async with`` opens a session for that, and its
        ``acquire`` takes the lease, in whatever order the two come. No I/O."""
        return Successor(self._client, self._terms)

    async def _acquire_in(self, session: KeptSession, wait_s: float) -> Held:
        terms, client = self._terms, self._client

        def undo(request: Request[Any]) -> None:
            session.use(terms.keys)
            client._renewer.undo(session, request, lambda _: session.unuse(terms.keys))

        body = terms.body(session.session_id)
        acquisition = Acquisition(client._calls, body, wait_s=wait_s, undo=undo)
        answer = await acquisition.run()
        # Nothing is awaited between the answer and the handle, so no cancellation can come between them.
        return Held(client, session, answer.value, answer.sent_at, acquisition.new_since)

    async def __aenter__(self) -> Held:
        if self._is_entered:
            raise InvalidRequest(detail="this lease is entered already: make another one by client.lease")
        task = asyncio.current_task()
        if task is None:
            raise InvalidRequest(detail="a lease is entered from a task")
        self._is_entered = True
        try:
            held = await self.acquire()
        except BaseException:
            self._is_entered = False
            raise
        self._entered = held
        held._body_begins(task)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._entered = self._entered, None
        self._is_entered = False
        assert held is not None
        lost = held._body_ended(error)
        try:
            # The body has stopped acting: only now may somebody else begin.
            if not await held._moves.is_parked(RELEASE_WAIT_S):
                await held._release_within(RELEASE_WAIT_S)
        except LeaseLost as found:
            lost = lost or found
        except TenureError as unanswered:
            log.warning("releasing %r goes on in the background: %s", self.key, unanswered)
        if lost is not None and (error is None or lost.__cause__ is error):
            raise lost
        if lost is not None and error is not None and not isinstance(error, LeaseLost):
            error.add_note(str(lost))


class Held(Reading):
    """A handle: one grant, kept alive until it is released, handed over or lost. There is no way back from
    LOST; acquire again for a new handle with a new token.

    If the last reference to a handle goes away while it is held, the lease is released and a warning logged.
    """

    def __init__(
        self,
        client: Client,
        session: KeptSession,
        grants: list[Grant],
        sent_at: float,
        new_since: float | None = None,
    ) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        """Set once the handle is LOST, by the loop of the client; ``state`` knows it even while that is
        blocked."""
        self._callbacks: list[Callable[[Held], object]] = []
        self._body: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False
        self._dropped: weakref.finalize[Any, Held] | None = None
        self._moves = Moves(self)
        super().__init__(Place(session, self._kept(session, grants, sent_at, new_since)))
        self._at_drop(client._renewer.drop)

    def _keep(
        self, session: KeptSession, grants: list[Grant], sent_at: float, new_since: float | None
    ) -> None:
        """The session keeps the lease from here on."""
        self._place.member = self._kept(session, grants, sent_at, new_since)
        self._place.session = session
        self._at_drop(self._client._renewer.drop)

    def _kept(
        self, session: KeptSession, grants: list[Grant], sent_at: float, new_since: float | None
    ) -> Member:
        loop = self._loop
        handle = weakref.ref(self)

        def lost_here() -> None:
            if (held := handle()) is not None:
                held._lost_now()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(lost_here)

        return session.hold(grants, sent_at, notify, loop.is_closed, new_since=new_since)

    def _at_drop(self, see_to_it: Callable[[KeptSession, Member], None] | None) -> None:
        """What is to be done if nobody has the handle any more."""
        if self._dropped is not None:
            self._dropped.detach()
            self._dropped = None
        if see_to_it is not None:
            self._dropped = weakref.finalize(self, see_to_it, self._session, self._member)
            self._dropped.atexit = False

    def on_lost(self, callback: Callable[[Held], object]) -> None:
        """Have ``callback(handle)`` called once the handle is LOST, on the client's loop."""
        if self.lost.is_set():
            self._loop.call_soon(callback, self)
        else:
            self._callbacks.append(callback)

    async def renew(self) -> float:
        """Renew now, besides the renewals that happen anyway. Returns ``expires_in``. Raises LeaseLost, or
        ClusterUnavailable or OutcomeUnknown, which say nothing of the lease."""
        return await self._renew(None)

    async def progress(self, step: str = "", *, text: str = "", counter: int = 0) -> float:
        """Tell how far the work has come, with a renewal; everybody sees it with the lease, and a successor
        finds it. Only what is new is progress: the same step, text and counter again move nothing on. Of a
        set it is told of every key. Returns and raises as ``renew``."""
        return await self._renew({"step": step, "text": text, "counter": counter})

    async def _renew(self, note: Mapping[str, Any] | None) -> float:
        self.check()
        calls, session, member = self._client._calls, self._session, self._member
        request = _requests.renew(lease_id=self.lease_id, progress=note)
        try:
            answer = await calls.perform(calls.call(request, timeout_s=min(calls.timeout_s, self.expires_in)))
        except LeaseLost as lost:
            session.lose(member, lost.reason)
            raise
        session.renewed(answer.sent_at, answer.value.lease.expires_in_ms)
        session.progressed(member, answer.value.lease, answer.sent_at)
        self.check()
        return self.expires_in

    async def commit(
        self,
        value: str | bytes | None = None,
        *,
        mode: Literal["current", "once", "sequence"] = "once",
        seq: int | None = None,
        op_id: str | None = None,
        if_revision: int | None = None,
        digest: str | None = None,
        key: str | None = None,
    ) -> Accepted:
        """Write through the key's guard, with this handle's token; without a ``value`` only mark the token
        as used. ``key`` chooses one of a set.

        When it returns, the write was accepted and ``value`` is the key's record. Raises LeaseLost if the
        handle knows that it is over, and CommitRefused if the cluster does: nothing was written.
        OutcomeUnknown: ask again with the same ``op_id`` (one of your own).
        """
        self.check()
        grant = next((one for one in self.grants if key is None or one.key == key), None)
        if grant is None:
            raise InvalidRequest(detail=f"this lease has no key {key!r}")
        try:
            return await self._client.commit(
                grant.key,
                lease_id=grant.lease_id,
                token=grant.token,
                slot=grant.slot or None,
                mode=mode,
                value=value,
                seq=seq,
                op_id=op_id or mint_id(),
                if_revision=if_revision,
                digest=digest,
            )
        except CommitRefused as refused:
            if refused.code in ("not_live", "stale_token"):
                self._session.lose(self._member, refused.code)
            raise

    async def release(self) -> None:
        """Give the lease back, also a parked one. Stop acting first. A second call does nothing.

        From the call on the handle is RELEASED and not renewed. When it returns, the key is free for the
        next. LeaseLost: the lease had ended before. ClusterUnavailable or OutcomeUnknown: no answer came in
        the time of the client; it goes on being released in the background, as it does if the call is
        cancelled.
        """
        timeout_s = self._client._calls.timeout_s
        await self._moves.is_parked(timeout_s)
        await self._release_within(timeout_s)

    async def handover(self, to_session_id: str) -> None:
        """Give the lease to another session, past all who wait, with its metadata and its last progress. Stop
        acting first.

        From the call on the handle is RELEASED, for the successor may begin before the answer is here. When
        it returns, its token is dead. When it raises, the handle is as before, except by LeaseLost, and by
        OutcomeUnknown: then it is LOST (unknown), and what may be left of it is released in the background.
        InvalidRequest also says that there is no such session; LeaseUnavailable that it can't have the lease:
        it has one on the key, waits for it in another mode, or the two would wait for one another. Goes on to
        its end also if it is cancelled. The leases of a set can't be handed over.
        """
        await self._moves.handover(to_session_id)

    async def park(self, limit: float) -> None:
        """Let the cluster keep the lease for ``limit`` seconds without heartbeats, for a human in the loop.
        Again, the limit counts anew.

        From the call on the handle is PARKED: it does not act, its token passes no commit, and leaving its
        block leaves the lease parked. Go on by ``unpark``, or in any process that knows ``lease_id`` by
        ``client.take_up``. When it raises, the handle is as before, except by LeaseLost, and by
        OutcomeUnknown: then it stays PARKED, and ``unpark`` finds out. Goes on to its end also if it is
        cancelled. Shared leases and those of a set can't be parked.
        """
        await self._moves.park(limit)

    async def unpark(self) -> None:
        """Take the parked lease up again. When it returns, the handle is HELD, with a new ``token``; nothing
        that was written down before can come after it. Raises LeaseLost if the lease has ended meanwhile or
        somebody else has taken it up; otherwise, when it raises, the handle is still PARKED. Does nothing to
        one that is held. Goes on to its end also if it is cancelled."""
        await self._moves.unpark()

    # -- for Lease

    def _body_begins(self, task: asyncio.Task[Any]) -> None:
        self._body = task
        self._cancelling = task.cancelling()
        if self.lost.is_set():
            self._cancel_body()

    def _body_ended(self, error: BaseException | None) -> LeaseLost | None:
        """The loss, if there was one. If ``error`` is the cancellation that it caused, it is its cause."""
        task, self._body = self._body, None
        state = self.state
        loss = self._loss() if state is State.LOST else None
        if self._cancelled:
            assert task is not None
            # As asyncio.timeout does it: a cancellation that somebody else asked for as well goes on.
            theirs = task.uncancel() > self._cancelling
            if loss is not None and isinstance(error, asyncio.CancelledError) and not theirs:
                loss.__cause__ = error
        return loss

    def _lost_now(self) -> None:
        if self.lost.is_set():
            return
        self.lost.set()
        # Of a set, one key may be lost while the session holds the others.
        self._at_drop(self._client._renewer.give_back if len(self._member.grants) > 1 else None)
        self._cancel_body()
        for callback in self._callbacks:
            self._loop.call_soon(callback, self)
        self._callbacks.clear()

    def _cancel_body(self) -> None:
        if self._body is not None and not self._cancelled:
            self._cancelled = True
            self._body.cancel(f"the lease on {self.key!r} is lost: {self.lost_reason}")

    async def _release_within(self, timeout_s: float) -> None:
        session, member = self._session, self._member
        if member.life.is_answered:
            return
        state = session.begin_release(member)
        if state is State.LOST:
            self._at_drop(None)
            if len(member.grants) > 1:
                self._client._renewer.give_back(session, member)
            raise self._loss()
        await self._finish(self._release(timeout_s))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        await self._client._calls.finish(work)

    async def _release(self, timeout_s: float) -> None:
        """Released, or somebody sees to it. The token is forgotten only after a definite answer."""
        client, session, member = self._client, self._session, self._member
        ended: str | None = None
        try:
            await client._calls.ask(release_of(member), timeout_s=timeout_s)
        except LeaseLost as lost:
            ended = lost.reason
        except BaseException:
            self._at_drop(None)
            client._renewer.release(session, member)
            raise
        session.release_answered(member, ended)
        self._at_drop(None)
        if ended is not None:
            raise self._loss()
