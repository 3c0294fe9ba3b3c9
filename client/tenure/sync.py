"""The front for threads: the names of aio.py, without ``await``.

    with tenure.connect_sync("http://n1:7601,http://n2:7601") as client:
        with client.lease("job/7", ttl=30) as held:
            held.commit("done")

Nothing is written twice: the asyncio client runs on a thread of its own, and a call waits for its answer.
Any number of threads may use one client. What differs: nobody can be made to stop acting from outside, so a
body learns of a loss by ``held.check()``, by the event ``held.lost``, by ``held.on_lost``, or at the latest
by the LeaseLost that leaving the block raises.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from tenure import aio
from tenure._background import LoopThread
from tenure._credentials import Credential
from tenure._endpoints import DEFAULT_ENDPOINTS
from tenure._handle import State
from tenure._held import Reading
from tenure._options import ATTEMPT_TIMEOUT_S, TIMEOUT_S, Options
from tenure._successor import Successor
from tenure._terms import TTL_S, Mode
from tenure.answers import Accepted, Event, LeaseInfo
from tenure.election import AGAIN_S, Election, RwLock, accepts_handle, election_lease, log
from tenure.errors import InvalidRequest, LeaseLost, NotAuthorized, TenureError

P = ParamSpec("P")
T = TypeVar("T")


def connect_sync(
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
) -> SyncClient:
    """As ``connect``, for threads; ``with`` closes it."""
    return SyncClient(
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


def _mirrored(
    method: Callable[Concatenate[aio.Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """A call of the asyncio client, waited for."""

    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    call.__name__, call.__doc__, call.__wrapped__ = method.__name__, method.__doc__, method  # type: ignore[attr-defined]
    return call


class SyncClient:
    """A client for threads. See aio.Client for what each call does and raises."""

    def __init__(self, options: Options) -> None:
        self._client = aio.Client(options)
        self._pid = os.getpid()
        self._thread = LoopThread("tenure-client")
        self._dropped = weakref.finalize(self, _close_soon, self._client, self._thread, self._pid)
        self._dropped.atexit = False

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """As aio.Client.close. A second call does nothing."""
        if self._dropped.detach() is None or os.getpid() != self._pid:
            return
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
            self._thread.submit(self._client.close()).result()
        self._thread.stop(wait=True)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The base URLs as configured."""
        return self._client.endpoints

    acquire = _mirrored(aio.Client.acquire)
    acquire_set = _mirrored(aio.Client.acquire_set)
    renew = _mirrored(aio.Client.renew)
    progress = _mirrored(aio.Client.progress)
    release = _mirrored(aio.Client.release)
    handover = _mirrored(aio.Client.handover)
    park = _mirrored(aio.Client.park)
    unpark = _mirrored(aio.Client.unpark)
    abandon = _mirrored(aio.Client.abandon)
    break_ = _mirrored(aio.Client.break_)
    resize = _mirrored(aio.Client.resize)
    get = _mirrored(aio.Client.get)
    leases_page = _mirrored(aio.Client.leases_page)
    queue = _mirrored(aio.Client.queue)
    validate = _mirrored(aio.Client.validate)
    commit = _mirrored(aio.Client.commit)
    record = _mirrored(aio.Client.record)
    delete_record = _mirrored(aio.Client.delete_record)
    open_session = _mirrored(aio.Client.open_session)
    renew_session = _mirrored(aio.Client.renew_session)
    session = _mirrored(aio.Client.session)
    close_session = _mirrored(aio.Client.close_session)
    create_credential = _mirrored(aio.Client.create_credential)
    credentials = _mirrored(aio.Client.credentials)
    rotate_credential = _mirrored(aio.Client.rotate_credential)
    revoke_credential = _mirrored(aio.Client.revoke_credential)
    tenants = _mirrored(aio.Client.tenants)
    backup = _mirrored(aio.Client.backup)
    set_quota = _mirrored(aio.Client.set_quota)
    reset_quota = _mirrored(aio.Client.reset_quota)
    audit = _mirrored(aio.Client.audit)
    cluster = _mirrored(aio.Client.cluster)
    nodes = _mirrored(aio.Client.nodes)
    transfer = _mirrored(aio.Client.transfer)
    add_member = _mirrored(aio.Client.add_member)
    remove_member = _mirrored(aio.Client.remove_member)

    def leases(
        self, prefix: str = "", *, owner: str | None = None, page: int | None = None
    ) -> Iterator[LeaseInfo]:
        """As aio.Client.leases."""
        after: str | None = None
        while True:
            answer = self.leases_page(prefix, owner=owner, limit=page, after=after)
            yield from answer.leases
            if answer.next is None:
                return
            after = answer.next

    def watch(self, prefix: str = "", *, after: int | None = None) -> Iterator[Event]:
        """As aio.Client.watch."""
        return self._iterate(self._client.watch(prefix, after=after))

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
    ) -> SyncLease:
        """As aio.Client.lease."""
        return SyncLease(
            self,
            self._client.lease(
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
            ),
        )

    def take_up(self, lease_id: str, *, ttl: float = TTL_S, owner: str | None = None) -> SyncHeld:
        """As aio.Client.take_up."""
        return SyncHeld(self, self._run(self._client.take_up(lease_id, ttl=ttl, owner=owner)))

    def election(
        self,
        name: str,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SyncElection:
        """As aio.Client.election."""
        lease = election_lease(self._client, name, owner=owner, ttl=ttl, metadata=metadata)
        return SyncElection(self, SyncLease(self, lease))

    def semaphore(
        self,
        name: str,
        slots: int,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        wait: float = 0.0,
        metadata: Mapping[str, str] | None = None,
    ) -> SyncLease:
        """As aio.Client.semaphore."""
        lease = self._client.semaphore(name, slots, ttl=ttl, owner=owner, wait=wait, metadata=metadata)
        return SyncLease(self, lease)

    def rwlock(
        self,
        name: str,
        *,
        ttl: float = TTL_S,
        owner: str | None = None,
        wait: float = 0.0,
        metadata: Mapping[str, str] | None = None,
    ) -> RwLock[SyncLease]:
        """As aio.Client.rwlock."""
        lock = self._client.rwlock(name, ttl=ttl, owner=owner, wait=wait, metadata=metadata)
        return RwLock(read=SyncLease(self, lock.read), write=SyncLease(self, lock.write))

    def _iterate(self, told: AsyncGenerator[T, None]) -> Iterator[T]:
        """What an endless generator of the asyncio client yields."""

        async def following() -> T:
            return await anext(told)

        async def closing() -> None:
            await told.aclose()

        try:
            while True:
                yield self._run(following())
        finally:
            with contextlib.suppress(InvalidRequest, RuntimeError):
                self._run(closing())

    @property
    def _is_forked(self) -> bool:
        """This is the child's copy."""
        return os.getpid() != self._pid

    @property
    def _is_over(self) -> bool:
        """It takes no calls any more."""
        return self._is_forked or not self._dropped.alive

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        forked = self._is_forked
        if self._is_over:
            work.close()
            why = "was made before a fork: connect anew in the child" if forked else "is closed"
            raise InvalidRequest(detail=f"this client {why}")
        future = self._thread.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise InvalidRequest(detail="this client was closed meanwhile") from None
        except BaseException:
            # Ctrl-C: what was asked for is given up, as by a cancellation.
            future.cancel()
            raise


def _close_soon(client: aio.Client, thread: LoopThread, pid: int) -> None:
    """For a client that was dropped. Waits for nothing: it may run on any thread, also on that one."""
    if os.getpid() == pid:
        with contextlib.suppress(RuntimeError):
            closing = thread.submit(client.close())
            closing.add_done_callback(lambda _: thread.stop(wait=False))


class SyncLease:
    """A lease that can be acquired any number of times. See aio.Lease."""

    def __init__(self, client: SyncClient, lease: aio.Lease) -> None:
        self._client = client
        self._lease = lease
        self._entered = threading.local()

    @property
    def key(self) -> str:
        """The key; the first one of a set."""
        return self._lease.key

    def acquire(self, *, wait: float | None = None, blocking: bool = True) -> SyncHeld:
        """As aio.Lease.acquire; Ctrl-C gives it up."""
        return SyncHeld(self._client, self._client._run(self._lease.acquire(wait=wait, blocking=blocking)))

    def successor(self) -> SyncSuccessor:
        """As aio.Lease.successor."""
        return SyncSuccessor(self._client, self._lease.successor())

    def __enter__(self) -> SyncHeld:
        if getattr(self._entered, "held", None) is not None:
            raise InvalidRequest(detail="this thread has entered this lease already: make another one")
        held = self.acquire()
        self._entered.held = held
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held: SyncHeld = self._entered.held
        self._entered.held = None
        lost = held._loss() if held.state is State.LOST else None
        try:
            # The body has stopped acting: only now may somebody else begin.
            if not held._is_parked(aio.RELEASE_WAIT_S):
                held._release_within(aio.RELEASE_WAIT_S)
        except LeaseLost as found:
            lost = lost or found
        except TenureError as unanswered:
            log.warning("releasing %r goes on in the background: %s", self.key, unanswered)
        if error is None and lost is not None:
            raise lost
        if lost is not None and error is not None and not isinstance(error, LeaseLost):
            error.add_note(str(lost))


class SyncHeld(Reading):
    """A handle: one grant, kept alive until it is released or lost. See aio.Held; any thread may use it."""

    def __init__(self, client: SyncClient, held: aio.Held) -> None:
        super().__init__(held._place)
        self._client = client
        self._held = held
        self.lost = threading.Event()
        """Set once the handle is LOST; ``state`` knows it in any case."""
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[SyncHeld], object]] = []
        handle = weakref.ref(self)

        def lost_now(_: aio.Held) -> None:
            if (this := handle()) is not None:
                this._lost_now()

        client._thread.call_soon(lambda: held.on_lost(lost_now))

    def on_lost(self, callback: Callable[[SyncHeld], object]) -> None:
        """Have ``callback(handle)`` called once the handle is LOST, on a thread of its own."""
        with self._lock:
            if not self.lost.is_set():
                self._callbacks.append(callback)
                return
        threading.Thread(target=callback, args=(self,), daemon=True).start()

    def renew(self) -> float:
        """As aio.Held.renew."""
        return self._run(self._held.renew())

    def progress(self, step: str = "", *, text: str = "", counter: int = 0) -> float:
        """As aio.Held.progress."""
        return self._run(self._held.progress(step, text=text, counter=counter))

    def commit(
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
        """As aio.Held.commit."""
        return self._run(
            self._held.commit(
                value, mode=mode, seq=seq, op_id=op_id, if_revision=if_revision, digest=digest, key=key
            )
        )

    def release(self) -> None:
        """As aio.Held.release."""
        if not (self._client._is_over and self._member.life.is_answered):
            self._run(self._held.release())

    def handover(self, to_session_id: str) -> None:
        """As aio.Held.handover."""
        self._run(self._held.handover(to_session_id))

    def park(self, limit: float) -> None:
        """As aio.Held.park."""
        self._run(self._held.park(limit))

    def unpark(self) -> None:
        """As aio.Held.unpark."""
        self._run(self._held.unpark())

    def _is_parked(self, patience_s: float) -> bool:
        return self._run(self._held._moves.is_parked(patience_s))

    def _release_within(self, timeout_s: float) -> None:
        self._run(self._held._release_within(timeout_s))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._client._is_over and not self.is_held:
            # The client would only say that it is of no use here; the handle knows that it is over.
            work.close()
            raise self._loss()
        return self._client._run(work)

    def _lost_now(self) -> None:
        with self._lock:
            self.lost.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            threading.Thread(target=callback, args=(self,), daemon=True).start()


class SyncSuccessor:
    """Somebody to whom a lease can be handed over. See Successor."""

    def __init__(self, client: SyncClient, successor: Successor) -> None:
        self._client = client
        self._successor = successor

    def __enter__(self) -> SyncSuccessor:
        self._client._run(self._successor.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client._run(self._successor.__aexit__(kind, error, trace))

    @property
    def session_id(self) -> str:
        """What the holder hands the lease over to."""
        return self._successor.session_id

    def acquire(self, *, wait: float | None = None) -> SyncHeld:
        """As Successor.acquire; Ctrl-C gives it up."""
        return SyncHeld(self._client, self._client._run(self._successor.acquire(wait=wait)))


class SyncElection:
    """One office that one at a time holds. See election.Election."""

    def __init__(self, client: SyncClient, lease: SyncLease) -> None:
        self._client = client
        self._lease = lease

    @property
    def name(self) -> str:
        return self._lease.key

    def run(self, lead: Callable[..., T]) -> T:
        """Campaign, and call ``lead(handle)`` (or ``lead()``) while in office, as often as it takes. It has
        to look by itself whether the office is lost, and end then by ``handle.check()``. Returns what it
        returns, or raises what it raises of its own."""
        takes_handle = accepts_handle(lead)
        while True:
            held = None
            try:
                with self._lease as held:
                    return lead(held) if takes_handle else lead()
            except (InvalidRequest, NotAuthorized):
                raise
            except LeaseLost as lost:
                if held is None or held.state is not State.LOST:
                    raise
                log.warning("the office %r was lost: %s", self.name, lost)
            except TenureError as error:
                if held is not None:
                    raise  # the body's own
                log.warning("campaigning for %r goes on: %s", self.name, error)
            time.sleep(AGAIN_S)

    def leader(self) -> LeaseInfo | None:
        """Who is in office, or None."""
        return self._client.get(self.name)

    def observe(self) -> Iterator[LeaseInfo | None]:
        """As Election.observe."""
        election = Election(self._client._client, self._lease._lease)
        return self._client._iterate(election.observe())
