"""Sends one attempt over HTTP and tells apart the two ways in which it can fail: surely not sent, or sent
and not answered."""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import weakref
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Final

from tenure._credentials import Credential, CredentialSource
from tenure._protocol import Attempt
from tenure._tls_files import TlsFiles
from tenure._tracing import trace_headers

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from aiohttp.abc import ResolveResult

CONNECT_TIMEOUT_S: Final = 1.0
CONNECTIONS_MAX: Final = 256
"""Connections of one client to one base URL; each waiting acquire keeps one busy."""
POOLS_MAX: Final = 128
"""Base URLs that connections are kept to: more than can be configured."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""Longest answer that is read; far above the longest page of leases."""


class NotSent(Exception):
    """The request did not reach the node."""


class NoAnswer(Exception):
    """The request may have reached the node; no answer came."""


class Http:
    """Pools of connections, one for each base URL, opened on first use. To be used from one event loop.

    A name may stand for several nodes. A pool is bound to the addresses that it has found, so after an
    attempt that failed there, the next one gets a new pool, which begins with another address.
    """

    def __init__(self, *, credential: Credential, tls: ssl.SSLContext | TlsFiles | None = None) -> None:
        # Loaded here and not at the first attempt, whose time has begun to run by then.
        import aiohttp  # noqa: F401

        self._headers = {"Accept": "application/json", "User-Agent": "tenure-client"}
        self._credential = CredentialSource(credential)
        self._tls = tls
        self._pools: dict[str, _Pool] = {}
        self._turns: dict[str, int] = {}
        """With which of a URL's addresses to begin."""
        _ALL.add(self)

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises NotSent or NoAnswer."""
        # A call that must not be made twice gets a connection of its own: one out of the pool may have been
        # closed by the node just now, which leaves the outcome unknown for no good reason.
        pool = self._open(attempt.url, 1) if attempt.once else await self._pool(attempt.url)
        failed = False
        pool.in_use += 1
        try:
            answer = await self._send(pool.session, attempt)
            failed = answer[0] >= 500
            return answer
        except (NotSent, NoAnswer):
            failed = True
            raise
        finally:
            pool.in_use -= 1
            if failed:
                self.turn(attempt.url)
            if failed and self._pools.get(attempt.url) is pool:
                del self._pools[attempt.url]
            if pool.in_use == 0 and self._pools.get(attempt.url) is not pool:
                await pool.session.close()

    def stream(self, url: str, *, silence_max_s: float) -> _Stream:
        """A GET whose answer comes bit by bit, over a connection of its own. Raises NotSent or NoAnswer, also
        where the answer breaks off."""
        return _Stream(self, url, silence_max_s)

    def turn(self, url: str) -> None:
        """A connection to the URL failed: let the next one begin with another of its addresses."""
        self._turns[url] = self._turns.get(url, 0) + 1

    def open(self, url: str) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        """A session with a connection of its own, and the headers that say who asks."""
        credential = self._credential.get()
        headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
        return self._open(url, 1).session, headers

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.session.close()

    def forked(self) -> None:
        """This is the child's copy. What it would close or deregister is the parent's: its selector is the
        same in both, so a connection that is collected here would fall silent there."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            if pool.session.connector is not None:
                pool.session.connector._closed = True
            pool.session.detach()

    async def _pool(self, url: str) -> _Pool:
        pool = self._pools.get(url)
        if pool is not None and pool.tls is not self._context():
            # The certificate files have changed: connections that are in use are used to their end.
            if self._pools.pop(url).in_use == 0:
                await pool.session.close()
            pool = None
        if pool is None:
            if len(self._pools) >= POOLS_MAX:
                oldest = next(iter(self._pools))
                self._turns.pop(oldest, None)
                # If it is still in use, whoever uses it closes it.
                if (dropped := self._pools.pop(oldest)).in_use == 0:
                    await dropped.session.close()
            pool = self._pools[url] = self._open(url, CONNECTIONS_MAX)
        return pool

    def _context(self) -> ssl.SSLContext | None:
        return self._tls.get() if isinstance(self._tls, TlsFiles) else self._tls

    def _open(self, url: str, connections: int) -> _Pool:
        import aiohttp

        begin_with = self._turns.setdefault(url, random.randrange(1_000))

        class Resolver(aiohttp.ThreadedResolver):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
            ) -> list[ResolveResult]:
                found = await super().resolve(host, port, family)
                first = begin_with % len(found) if found else 0
                return [*found[first:], *found[:first]]

        # Nothing can have been sent before there is a connection, whatever the error says that ended the
        # wait for it.
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_start.append(_send_once)
        tracing.on_connection_reuseconn.append(_send_once)
        tracing.on_connection_create_end.append(_note_connection)
        tracing.on_connection_reuseconn.append(_note_connection)
        tls = self._context()
        return _Pool(
            aiohttp.ClientSession(
                trace_configs=[tracing],
                connector=aiohttp.TCPConnector(
                    limit=connections,
                    ssl=True if tls is None else tls,
                    resolver=Resolver(),
                    family=socket.AF_UNSPEC,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
            ),
            tls,
        )

    async def _send(
        self, session: aiohttp.ClientSession, attempt: Attempt
    ) -> tuple[int, Mapping[str, str], bytes]:
        import aiohttp
        from yarl import URL

        progress = _Progress(reads=attempt.method == "GET")
        headers = {} if attempt.body is None else {"Content-Type": "application/json"}
        if (credential := self._credential.get()) is not None:
            headers["Authorization"] = f"Bearer {credential}"
        headers.update(trace_headers(attempt.operation))
        try:
            # aiohttp's own timeout would lose a cancellation that comes in the same turn as it.
            async with (
                asyncio.timeout(attempt.timeout_s),
                session.request(
                    attempt.method,
                    # Already encoded: yarl must not resolve dots or unescape slashes, a key may hold both.
                    URL(attempt.url + attempt.target, encoded=True),
                    data=attempt.body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(
                        total=None,
                        sock_connect=CONNECT_TIMEOUT_S,
                        # Above it, aiohttp would round the end up to a whole second.
                        ceil_threshold=math.inf,
                    ),
                    trace_request_ctx=progress,
                ) as response,
            ):
                return response.status, response.headers, await _read(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(_words(error)) from error
        except TimeoutError as error:
            if not progress.connected:
                raise NotSent(f"no connection within {attempt.timeout_s:.1f} s") from error
            raise NoAnswer(f"no answer within {attempt.timeout_s:.1f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(_words(error)) from error


_ALL: weakref.WeakSet[Http] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for http in list(_ALL):
        http.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Pool:
    """Connections to one base URL, and how many attempts use them."""

    def __init__(self, session: aiohttp.ClientSession, tls: ssl.SSLContext | None) -> None:
        self.session = session
        self.tls = tls
        self.in_use = 0


class _Stream:
    """One answer that goes on, as a context: no generator, see _watch.py."""

    def __init__(self, http: Http, url: str, silence_max_s: float) -> None:
        self._http = http
        self._url = url
        self._silence_max_s = silence_max_s
        self._session: aiohttp.ClientSession | None = None
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> _Opened:
        import aiohttp
        from yarl import URL

        self._session, headers = self._http.open(self._url.partition("/v1/")[0])
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._silence_max_s, ceil_threshold=math.inf
        )
        try:
            self._response = await self._session.get(
                URL(self._url, encoded=True),
                headers={"Accept": "text/event-stream", **headers},
                allow_redirects=False,
                timeout=timeout,
                trace_request_ctx=_Progress(reads=True),
            )
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return _Opened(self._response)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import aiohttp

        if self._response is not None:
            self._response.close()
        if self._session is not None:
            await self._session.close()
        if isinstance(error, aiohttp.ClientConnectorError):
            raise NotSent(_words(error)) from error
        if isinstance(error, (aiohttp.ClientError, TimeoutError, OSError)):
            raise NoAnswer(_words(error)) from error


class _Opened:
    """An answer that goes on."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def read(self) -> bytes:
        return await _read(self._response)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()


class _Progress:
    """How far one request came, and whether it may be sent twice unseen."""

    def __init__(self, *, reads: bool) -> None:
        self.reads = reads
        self.connected = False


async def _send_once(_session: object, context: SimpleNamespace, _params: object) -> None:
    """Where a connection breaks, aiohttp sends a DELETE again by itself, over another one. Nobody would know
    then that the first may have been executed."""
    progress = context.trace_request_ctx
    if progress is not None and progress.connected and not progress.reads:
        raise NoAnswer("the connection broke")


async def _note_connection(_session: object, context: SimpleNamespace, _params: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.connected = True


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise NoAnswer(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _words(error: BaseException) -> str:
    inner = getattr(error, "os_error", None)
    if isinstance(inner, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
