"""A lock of each system, as a program would hold it.

Tenure's is the client library. etcd's follows its official Go client, over the JSON gateway: a session is a
lease that is kept alive every third of its TTL; it is done when the cluster says so, or when its TTL has
passed since the last answer, which a timer looks at every half second; the lock is the server's Lock call,
and the token is the revision at which the lock's key was made.
"""

import asyncio
import base64
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import aiohttp

from tenure import aio
from tenure._http import Http
from tenure._options import Options
from tenure._protocol import Attempt
from tenure.errors import TenureError

DEADLINE_LOOP_S: Final = 0.5
"""How often the Go client's session looks whether its TTL has passed."""
CALL_TIMEOUT_S: Final = 3.0
CONNECT_TIMEOUT_S: Final = 1.0
AGAIN_S: Final = 0.1


class LockFailed(Exception):
    """It was not acquired in time, or the cluster can't be reached."""


class Held(Protocol):
    """A lock in its holder's hands."""

    token: int

    @property
    def is_held(self) -> bool:
        """Whether the holder may act, as far as its client tells."""

    async def release(self) -> None: ...


class Lock(Protocol):
    """One client of one system."""

    async def acquire(self, key: str, wait_s: float) -> Held: ...

    async def close(self) -> None: ...


# -- Tenure


class _RoutedHttp(Http):
    """Reaches every node at another address than its own: a node names its leader by that one's own URL."""

    def __init__(self, routes: Mapping[str, str]) -> None:
        super().__init__(credential=None)
        self._routes = routes

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        return await super().send(replace(attempt, url=self._routes.get(attempt.url, attempt.url)))


class _TenureHeld:
    def __init__(self, held: aio.Held) -> None:
        self._held = held
        self.token = held.token

    @property
    def is_held(self) -> bool:
        return self._held.is_held

    async def release(self) -> None:
        with contextlib.suppress(TenureError):
            await self._held.release()


class TenureLock:
    """``routes``: where each node's URL is really reached."""

    def __init__(self, routes: Mapping[str, str], ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._client = aio.Client(Options(tuple(routes), transport=lambda: _RoutedHttp(routes)))

    async def acquire(self, key: str, wait_s: float) -> Held:
        try:
            lease = self._client.lease(key, ttl=self._ttl_s, own_session=True)
            return _TenureHeld(await lease.acquire(wait=wait_s))
        except TenureError as error:
            raise LockFailed(str(error)) from error

    async def close(self) -> None:
        await self._client.close()


# -- etcd


class _Session:
    """A lease that is kept alive, as the Go client's concurrency.Session."""

    def __init__(self, etcd: "EtcdLock", lease: str, ttl_s: float) -> None:
        self.lease = lease
        self.done = False
        self._etcd = etcd
        self._ttl_s = ttl_s
        self._deadline = time.monotonic() + ttl_s
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep()), loop.create_task(self._watch_deadline())]

    async def _keep(self) -> None:
        while not self.done:
            try:
                # Short enough that another node can be asked before the TTL has passed.
                said = await self._etcd.call("/v3/lease/keepalive", {"ID": self.lease}, self._ttl_s / 3)
                ttl_s = int(said.get("result", {}).get("TTL", 0))
                if ttl_s <= 0:
                    self.done = True
                    return
                self._deadline = time.monotonic() + ttl_s
                await asyncio.sleep(self._ttl_s / 3)
            except LockFailed:
                await asyncio.sleep(DEADLINE_LOOP_S)

    async def _watch_deadline(self) -> None:
        while not self.done:
            await asyncio.sleep(DEADLINE_LOOP_S)
            if time.monotonic() > self._deadline:
                self.done = True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(LockFailed):
            await self._etcd.call("/v3/lease/revoke", {"ID": self.lease})


class _EtcdHeld:
    def __init__(self, etcd: "EtcdLock", session: _Session, key: str, token: int) -> None:
        self._etcd = etcd
        self._session = session
        self._key = key
        self.token = token

    @property
    def is_held(self) -> bool:
        return not self._session.done

    async def release(self) -> None:
        with contextlib.suppress(LockFailed):
            await self._etcd.call("/v3/lock/unlock", {"key": self._key})
        await self._session.close()


class EtcdLock:
    """``urls``: where the nodes are reached."""

    def __init__(self, urls: Sequence[str], ttl_s: float) -> None:
        self._urls = list(urls)
        self._ttl_s = ttl_s
        self._at = 0
        self._http: aiohttp.ClientSession | None = None

    async def acquire(self, key: str, wait_s: float) -> Held:
        until = time.monotonic() + wait_s
        granted = await self._insist("/v3/lease/grant", {"TTL": str(round(self._ttl_s))}, until)
        session = _Session(self, granted["ID"], self._ttl_s)
        try:
            asked = {"name": _text(key), "lease": granted["ID"]}
            locked = await self._insist("/v3/lock/lock", asked, until, waits=True)
            found = await self._insist("/v3/kv/range", {"key": locked["key"]}, until)
            if not found.get("kvs"):
                raise LockFailed("the lock's key is gone: the session has ended meanwhile")
            return _EtcdHeld(self, session, locked["key"], int(found["kvs"][0]["create_revision"]))
        except BaseException:
            await session.close()
            raise

    async def _insist(self, path: str, body: Mapping[str, Any], until: float, *, waits: bool = False) -> Any:
        """Ask one node after another until one answers, or the time is over."""
        while True:
            left_s = max(until - time.monotonic(), CALL_TIMEOUT_S)
            try:
                return await self.call(path, body, left_s if waits else CALL_TIMEOUT_S)
            except LockFailed:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(AGAIN_S)

    async def call(self, path: str, body: Mapping[str, Any], timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """One call of the node that answered last; after a failure it is the next one's turn."""
        if self._http is None:
            self._http = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._http.post(self._urls[self._at] + path, json=body, timeout=timeout) as answer:
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._at = (self._at + 1) % len(self._urls)
            raise LockFailed(f"{path}: {type(error).__name__} {error}") from error
        if answer.status != 200:
            self._at = (self._at + 1) % len(self._urls)
            raise LockFailed(f"{path}: {said}")
        return said

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def lock_of(system: str, routes: Mapping[str, str], ttl_s: float) -> Lock:
    """A client of a system, by its name."""
    if system == "tenure":
        return TenureLock(routes, ttl_s)
    return EtcdLock(list(routes.values()), ttl_s)
