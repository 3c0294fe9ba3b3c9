"""Sends one attempt over HTTP and tells apart the two ways in which it can fail: surely not sent, or sent
and not answered."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from tenure._credentials import Credential, CredentialSource
from tenure._protocol import Attempt

if TYPE_CHECKING:
    import ssl

    import aiohttp

CONNECT_TIMEOUT_S: Final = 1.0
CONNECTIONS_MAX: Final = 256
"""Connections of one client; each waiting acquire keeps one busy."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""Longest answer that is read; far above the longest page of leases."""


class NotSent(Exception):
    """The request did not reach the node."""


class NoAnswer(Exception):
    """The request may have reached the node; no answer came."""


class Http:
    """A pool of connections, opened on first use. To be used from one event loop."""

    def __init__(self, *, credential: Credential, tls: ssl.SSLContext | None = None) -> None:
        # Loaded here and not at the first attempt, whose time has begun to run by then.
        import aiohttp  # noqa: F401

        self._headers = {"Accept": "application/json", "User-Agent": "tenure-client"}
        self._credential = CredentialSource(credential)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        _ALL.add(self)

    async def send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises NotSent or NoAnswer."""
        if not attempt.once:
            if self._session is None:
                self._session = self._open(CONNECTIONS_MAX)
            return await self._send(self._session, attempt)
        # A call that must not be made twice gets a connection of its own: one out of the pool may have been
        # closed by the node just now, which leaves the outcome unknown for no good reason, and aiohttp
        # would send a DELETE on it again by itself.
        async with self._open(1) as session:
            return await self._send(session, attempt)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def forked(self) -> None:
        """This is the child's copy. What it would close or deregister is the parent's: its selector is the
        same in both, so a connection that is collected here would fall silent there."""
        if self._session is not None:
            connector = self._session.connector
            if connector is not None:
                connector._closed = True
            self._session.detach()
            self._session = None

    def _open(self, connections: int) -> aiohttp.ClientSession:
        import aiohttp

        # Nothing can have been sent before there is a connection, whatever the error says that ended the
        # wait for it.
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(_note_connection)
        tracing.on_connection_reuseconn.append(_note_connection)
        return aiohttp.ClientSession(
            trace_configs=[tracing],
            connector=aiohttp.TCPConnector(limit=connections, ssl=True if self._tls is None else self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )

    async def _send(
        self, session: aiohttp.ClientSession, attempt: Attempt
    ) -> tuple[int, Mapping[str, str], bytes]:
        import aiohttp
        from yarl import URL

        progress = _Progress()
        headers = {} if attempt.body is None else {"Content-Type": "application/json"}
        if (credential := self._credential.get()) is not None:
            headers["Authorization"] = f"Bearer {credential}"
        try:
            async with session.request(
                attempt.method,
                # Already encoded: yarl must not resolve dots or unescape slashes, a key may hold both.
                URL(attempt.url + attempt.target, encoded=True),
                data=attempt.body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=attempt.timeout_s,
                    sock_connect=CONNECT_TIMEOUT_S,
                    # Above it, aiohttp would round the end up to a whole second.
                    ceil_threshold=math.inf,
                ),
                trace_request_ctx=progress,
            ) as response:
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


class _Progress:
    """How far one request came."""

    connected = False


async def _note_connection(_session: object, context: SimpleNamespace, _params: object) -> None:
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
