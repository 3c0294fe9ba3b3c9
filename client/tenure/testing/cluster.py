"""A cluster in memory, the clients of it, and what can go wrong between them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qs

import msgspec

from tenure._background import THREAD_NAME
from tenure._http import NoAnswer, NotSent
from tenure._kept import KeptSession, sessions_of
from tenure._options import Opened, Options
from tenure._protocol import Attempt
from tenure.aio import Client
from tenure.sync import SyncClient
from tenure.testing.clock import ManualClock
from tenure.testing.server import MemoryServer
from tenure.testing.watching import bookmark, told

URL: Final = "http://fake"
LOOK_S: Final = 0.002
"""How often a waiting request looks, in real time."""
STEP_S: Final = 0.2
"""Longest step of ``pass_time``."""


class FakeCluster:
    """One cluster in memory for one test. ``clock`` is the cluster's and the clients' clock."""

    def __init__(self, *, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.calls: Counter[str] = Counter()
        """How often each call arrived here, by its path."""
        self._server = MemoryServer(self.clock.now)
        self._lock = threading.Lock()
        self._drops: Counter[str] = Counter()
        self._partitioned = 0
        self._paused = 0
        self._cuts = 0
        self._parked: dict[object, tuple[Callable[[], bool], str]] = {}
        self.clock.on_jump(self._wake)

    def connect(self, *, timeout: float = 10.0, attempt_timeout: float = 3.0) -> Client:
        """A real client of this cluster; ``async with`` closes it."""
        return Client(self.options(timeout=timeout, attempt_timeout=attempt_timeout))

    def connect_sync(self, *, timeout: float = 10.0, attempt_timeout: float = 3.0) -> SyncClient:
        """The same for threads; ``with`` closes it."""
        return SyncClient(self.options(timeout=timeout, attempt_timeout=attempt_timeout))

    def options(self, *, timeout: float = 10.0, attempt_timeout: float = 3.0) -> Options:
        """For a client that is made otherwise."""
        options = Options.of(URL, timeout_s=timeout, attempt_timeout_s=attempt_timeout, clock=self.clock.now)
        return dataclasses.replace(options, transport=lambda: _Transport(self), sleep=self.sleep)

    # -- time

    async def pass_time(self, seconds: float) -> None:
        """Let time pass as it does, only faster: everything that is renewed on the way is renewed."""
        until = self.clock.now() + seconds
        while (left_s := until - self.clock.now()) > 0:
            self.clock.jump(min(STEP_S, left_s))
            await self._settle()

    async def _settle(self) -> None:
        """Until the renewal thread has nothing to do before time goes on."""
        while not self._is_settled():  # noqa: ASYNC110 -- another thread's work
            await asyncio.sleep(0.001)

    def _is_settled(self) -> bool:
        with self._lock:
            waiting = [is_due for is_due, thread in self._parked.values() if thread == THREAD_NAME]
        sessions = self._sessions()
        if any(is_due() for is_due in waiting) or any(session.has_to_act() for session in sessions):
            return False
        return sum(session.is_renewing for session in sessions) <= len(waiting)

    def _sessions(self) -> list[KeptSession]:
        return sessions_of(self.clock.now)

    def _wake(self) -> None:
        self._server.expire_due()
        for session in self._sessions():
            session.wake()

    # -- faults

    def expire_now(self, key: str) -> bool:
        """The holder of ``key`` loses its session at the cluster, and does not know it yet. False if nobody
        holds it."""
        return self._server.expire_now(key)

    def drop_next_reply(self, call: str | None = None) -> None:
        """The next call (``"acquire"``, ``"renew"`` …; any by default) is executed, and its answer lost."""
        with self._lock:
            self._drops[f"/v1/{call}" if call else ""] += 1

    def forget_events(self) -> None:
        """The cluster remembers nothing of what has happened so far: who watches from before is told of a
        gap. Watches that are open have been told, or will be when they are opened again."""
        self._server.events.forget()

    def cut_watches(self) -> None:
        """Every watch that is open loses its connection, and goes on over another."""
        with self._lock:
            self._cuts += 1

    @contextlib.contextmanager
    def partition(self) -> Iterator[None]:
        """No connection reaches the cluster."""
        self._partitioned += 1
        try:
            yield
        finally:
            self._partitioned -= 1

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """The cluster hangs: requests arrive when the block ends, if they are still waited for."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    # -- looking

    def left(self) -> tuple[list[str], list[str]]:
        """Keys that are held and keys that are waited for; a key for each holder and waiter."""
        return self._server.left()

    def check(self) -> None:
        """Verify the invariants of the lease machine."""
        self._server.check()

    # -- for the transport

    async def answer(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        """One attempt, as the network and the cluster would have it."""
        path = attempt.target.partition("?")[0]
        await asyncio.sleep(0)
        if self._partitioned:
            raise NotSent("connection refused")
        deadline = self.clock.now() + attempt.timeout_s
        await self._park(lambda: not self._paused or self.clock.now() >= deadline)
        if self._paused:
            raise NoAnswer("no answer in time")
        self.calls[path] += 1
        slice_ends = self.clock.now() + _wait_s(attempt.body)
        status, answered = self._server.handle(attempt.method, attempt.target, attempt.body)
        while status == 202 and self.clock.now() < slice_ends:
            await self._park(self._something_new(slice_ends))
            status, answered = self._server.handle(attempt.method, attempt.target, attempt.body)
        if self._drops_reply(path):
            await asyncio.sleep(0)
            raise NoAnswer("the answer was lost")
        await asyncio.sleep(0)
        return status, {"X-Request-Id": "fake"}, answered

    async def watch(self, target: str) -> Opened:
        """`GET /v1/events`."""
        await asyncio.sleep(0)
        if self._partitioned:
            raise NotSent("connection refused")
        path, _, query = target.partition("?")
        self.calls[path] += 1
        if path != "/v1/events":
            return _Opened(*self._server.handle("GET", target, None))
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        after = int(asked["from"]) if "from" in asked else None
        refused = self._server.compacted(after)
        if refused is not None:
            return _Opened(*refused)
        return _Watching(self, asked.get("prefix", ""), self._server.events.head if after is None else after)

    def _may_tell(self, place: int, cuts: int) -> Callable[[], bool]:
        def is_due() -> bool:
            if self._partitioned or self._cuts != cuts:
                return True
            self._server.expire_due()
            return not self._paused and self._server.events.head > place

        return is_due

    async def sleep(self, seconds: float) -> None:
        """Until so much time has passed by the clock."""
        until = self.clock.now() + seconds
        await self._park(lambda: self.clock.now() >= until)

    async def _park(self, is_due: Callable[[], bool]) -> None:
        """Wait for what only time or the test can bring about."""
        ticket = object()
        with self._lock:
            self._parked[ticket] = (is_due, threading.current_thread().name)
        try:
            while not is_due():  # noqa: ASYNC110 -- a clock that no loop knows
                await asyncio.sleep(LOOK_S)
        finally:
            with self._lock:
                del self._parked[ticket]

    def _something_new(self, slice_ends: float) -> Callable[[], bool]:
        seen = self._server.revision

        def is_due() -> bool:
            self._server.expire_due()
            return self._server.revision != seen or self.clock.now() >= slice_ends

        return is_due

    def _drops_reply(self, path: str) -> bool:
        with self._lock:
            for which in (path, ""):
                if self._drops[which]:
                    self._drops[which] -= 1
                    return True
        return False


class _Transport:
    """In the place of HTTP."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        return await self._cluster.answer(attempt)

    def stream(self, url: str, *, silence_max_s: float) -> _Stream:
        return _Stream(self._cluster, url.removeprefix(URL))

    async def close(self) -> None:
        """There is no connection."""


class _Stream:
    """An answer that goes on, as a context: no generator, see _watch.py."""

    def __init__(self, cluster: FakeCluster, target: str) -> None:
        self._cluster = cluster
        self._target = target

    async def __aenter__(self) -> Opened:
        return await self._cluster.watch(self._target)

    async def __aexit__(self, *exc: object) -> None:
        """There is no connection."""


class _Opened:
    """An answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"X-Request-Id": "fake"}
        self._body = body

    async def read(self) -> bytes:
        return self._body

    def chunks(self) -> AsyncIterator[bytes]:
        raise AssertionError("it does not go on")


class _Watching(_Opened):
    """What a watcher is told, until the network breaks."""

    def __init__(self, cluster: FakeCluster, prefix: str, place: int) -> None:
        super().__init__(200, b"")
        self._cluster = cluster
        self._prefix = prefix
        self._place = place
        self._cuts = cluster._cuts
        self._began = False

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> _Watching:
        return self

    async def __anext__(self) -> bytes:
        cluster = self._cluster
        if not self._began:
            self._began = True
            return bookmark(self._place)
        while True:
            await cluster._park(cluster._may_tell(self._place, self._cuts))
            if cluster._partitioned or cluster._cuts != self._cuts:
                raise NoAnswer("connection reset")
            head = cluster._server.events.head
            events = [event for event in cluster._server.events.after(self._place) if event.revision <= head]
            self._place = head
            if data := told(events, self._prefix):
                return data


def _wait_s(body: bytes | None) -> float:
    fields = msgspec.json.decode(body) if body else {}
    return float(fields.get("wait_ms", 0)) / 1000
