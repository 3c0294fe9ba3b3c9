"""The cheapest HTTP/1.1 client that does: one protocol object a connection, keep-alive, one request at a
time.

Load generators share the machine with the servers they measure, so what they cost themselves matters; and a
harness has to know whether a request that failed had been sent, which a convenient client hides.
"""

import asyncio
from typing import Final, cast
from urllib.parse import urlsplit

HEAD_BYTES_MAX: Final = 64 << 10
"""Largest head of an answer."""


class NotSent(Exception):
    """The request never left: nothing of it can have been executed."""


class NoAnswer(Exception):
    """The request was sent and no complete answer came: it may have been executed."""


class HttpAnswer:
    """Status, head and body of one answer."""

    __slots__ = ("body", "head", "status")

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        self.status = status
        self.head = head
        self.body = body

    def header(self, name: str) -> str | None:
        """The value of a header, by its name in any case."""
        wanted = name.lower().encode()
        for line in self.head.split(b"\r\n")[1:]:
            label, _, value = line.partition(b":")
            if label.strip().lower() == wanted:
                return value.strip().decode("latin-1")
        return None


def request_bytes(method: str, path: str, body: bytes | None = None) -> bytes:
    """A whole request, ready to be written; a load generator may build it once and send it often."""
    if body is None:
        return f"{method} {path} HTTP/1.1\r\nHost: tenure\r\n\r\n".encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: tenure\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class HttpConnection(asyncio.Protocol):
    """One connection. `send` may be called again when its future is done."""

    __slots__ = ("_answer", "_buffer", "_timer", "_transport", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, url: str, timeout_s: float = 2.0) -> "HttpConnection":
        """Connect to the server at `url`. Raises NotSent."""
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(cls, parts.hostname or "", parts.port or 80)
        except (OSError, TimeoutError) as error:
            raise NotSent(f"{url}: {error!r}") from error
        return connection

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def send(self, request: bytes, timeout_s: float = 30.0) -> asyncio.Future[HttpAnswer]:
        """Write a request. The future ends with its answer, or with NotSent or NoAnswer."""
        assert self._answer is None, "one request at a time"
        answer: asyncio.Future[HttpAnswer] = self.loop.create_future()
        if self._transport is None or self._transport.is_closing():
            answer.set_exception(NotSent("the connection was closed before the request was written"))
            return answer
        self._answer = answer
        self._transport.write(request)
        self._timer = self.loop.call_later(timeout_s, self._give_up, timeout_s)
        return answer

    def _give_up(self, timeout_s: float) -> None:
        self._fail(NoAnswer(f"no answer within {timeout_s} s"))
        self.close()

    def _fail(self, error: Exception) -> None:
        answer = self._settle()
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def _settle(self) -> asyncio.Future[HttpAnswer] | None:
        answer, self._answer = self._answer, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(NoAnswer(f"the connection was lost: {exc!r}"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(buffer) > HEAD_BYTES_MAX:
                self._malformed("a head without an end")
            self._buffer = buffer
            return
        head = buffer[:end]
        length = content_length(head)
        if length is None:
            self._malformed("an answer without Content-Length")
            return
        if len(buffer) < end + 4 + length:
            self._buffer = buffer
            return
        self._buffer = buffer[end + 4 + length :]
        if self._buffer:
            self._malformed("bytes after the answer")
            return
        answer = self._settle()
        if answer is not None and not answer.done():
            answer.set_result(HttpAnswer(int(head[9:12]), head, buffer[end + 4 :]))

    def _malformed(self, what: str) -> None:
        self._buffer = b""
        self._fail(NoAnswer(what))
        self.close()


def content_length(head: bytes) -> int | None:
    """The Content-Length of an answer's head; 0 for the statuses that never have a body."""
    at = head.find(b"Content-Length:")
    if at < 0:
        at = head.lower().find(b"content-length:")
        if at < 0:
            return 0 if head[9:12] in (b"204", b"304") else None
    end = head.find(b"\r\n", at)
    return int(head[at + 15 : end if end >= 0 else None])


async def fetch(
    url: str, method: str, path: str, body: bytes | None = None, timeout_s: float = 5.0
) -> HttpAnswer:
    """One request on a connection of its own. Raises NotSent or NoAnswer."""
    connection = await HttpConnection.open(url, timeout_s)
    try:
        return await connection.send(request_bytes(method, path, body), timeout_s)
    finally:
        connection.close()
