"""Answers on their way out: status, body, and the header lines, written in one piece.

aiohttp's own response objects cost more than everything else that is done for a call: the headers go
through a multi-dictionary and several coroutines each time although only two of them ever change. So the
front writes the bytes itself, and gives aiohttp an object that says that this has been done.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import HttpVersion10, web

from tenure_cluster.api import problems
from tenure_cluster.api.codec import CONTENT_TYPES, ENCODE, PROBLEM_TYPES, Format
from tenure_cluster.api.fairness import HELD_BACK
from tenure_cluster.service.errors import Problem


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What is sent back. ``headers`` are further header lines, each with its line end; ``cache`` is the value
    of Cache-Control. With status 304 the body is that of the file in question, which is not sent. ``refused``
    is how many operations it refuses that may be held back; see fairness.py."""

    status: int
    content_type: bytes
    body: bytes
    headers: bytes = b""
    cache: bytes = b"no-store"
    refused: int = 0


def success(status: int, body: Any, answer_format: Format) -> Answer:
    return Answer(status, CONTENT_TYPES[answer_format], ENCODE[answer_format](body))


def refusal(problem: Problem, answer_format: Format, headers: bytes = b"") -> Answer:
    body = ENCODE[answer_format](problems.document(problem))
    head = problems.headers(problem) + headers
    return Answer(
        problem.status, PROBLEM_TYPES[answer_format], body, head, refused=int(problem.code in HELD_BACK)
    )


class _Written(web.StreamResponse):
    """Tells aiohttp that the answer has been written, and whether the connection goes on."""

    def __init__(self, keep_alive: bool) -> None:
        super().__init__()
        self._goes_on = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._goes_on

    async def prepare(self, request: web.BaseRequest) -> None:
        pass

    async def write_eof(self, data: bytes = b"") -> None:
        pass


class Writer:
    """Writes answers. Everything but the two or three lines that differ is made once and kept as bytes."""

    def __init__(
        self, wall_ms: Callable[[], int], leader_url: Callable[[], str | None], write_timeout_ms: int
    ) -> None:
        self._wall_ms = wall_ms
        self._leader_url = leader_url
        self._write_timeout_s = write_timeout_ms / 1000
        self.answered: dict[int, int] = {}
        """Answers by status."""
        self._heads: dict[tuple[int, bytes, bytes], bytes] = {}
        self._second = -1
        self._url: str | None = None
        self._common = b""
        self._kept = _Written(keep_alive=True)
        self._closed = _Written(keep_alive=False)

    def write(
        self, request: web.BaseRequest, answer: Answer, request_id: bytes, *, keep_alive: bool
    ) -> web.StreamResponse:
        """Write an answer to the request's connection. If that is closed, nothing happens."""
        transport = request.transport
        if transport is None or transport.is_closing():
            return self._closed
        status = answer.status
        self.answered[status] = self.answered.get(status, 0) + 1
        head = self._heads.get((status, answer.content_type, answer.cache)) or self._make_head(answer)
        if request.version == HttpVersion10:
            connection = b"Connection: keep-alive\r\n" if keep_alive else b"Connection: close\r\n"
        else:
            connection = b"" if keep_alive else b"Connection: close\r\n"
        transport.write(
            b"%b%bX-Request-Id: %b\r\nContent-Length: %d\r\n%b%b\r\n%b"
            % (
                head,
                self._common_lines(),
                request_id,
                len(answer.body),
                answer.headers,
                connection,
                b"" if request.method == "HEAD" or status == 304 else answer.body,
            )
        )
        return self._kept if keep_alive else self._closed

    def begin(
        self,
        request: web.BaseRequest,
        content_type: bytes,
        request_id: bytes,
        *,
        chunked: bool,
        length: int | None = None,
    ) -> None:
        """Write the head of an answer whose body follows bit by bit and ends with the connection. ``length``
        is its size, if that is known; then it is not chunked."""
        if request.transport is not None and not request.transport.is_closing():
            request.transport.write(
                b"%b%bX-Request-Id: %b\r\nX-Accel-Buffering: no\r\nConnection: close\r\n%b\r\n"
                % (
                    self._make_head(Answer(200, content_type, b"")),
                    self._common_lines(),
                    request_id,
                    b"Transfer-Encoding: chunked\r\n"
                    if chunked
                    else b""
                    if length is None
                    else b"Content-Length: %d\r\n" % length,
                )
            )

    def end(self, request: web.BaseRequest, *, chunked: bool) -> None:
        """Write the end of such an answer."""
        if chunked and request.transport is not None and not request.transport.is_closing():
            request.transport.write(b"0\r\n\r\n")

    def nothing(self) -> web.StreamResponse:
        """For a request whose connection is gone, or has been used up."""
        return self._closed

    async def drain(self, request: web.BaseRequest) -> None:
        """Wait until a slow client has taken what was written; one that does not in time is cut off."""
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await request.writer.drain()
        except TimeoutError:
            transport = request.transport
            if transport is not None:
                transport.abort()

    def _make_head(self, answer: Answer) -> bytes:
        head = (
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nCache-Control: %b\r\n"
            b"X-Content-Type-Options: nosniff\r\n"
            % (answer.status, HTTPStatus(answer.status).phrase.encode(), answer.content_type, answer.cache)
        )
        self._heads[answer.status, answer.content_type, answer.cache] = head
        return head

    def _common_lines(self) -> bytes:
        """``Date``, which changes once a second, and ``X-Tenure-Leader``, which changes with the leader."""
        second = self._wall_ms() // 1000
        url = self._leader_url()
        if second != self._second or url != self._url:
            self._second, self._url = second, url
            leader = b"" if url is None else b"X-Tenure-Leader: %b\r\n" % url.encode()
            self._common = b"Date: %b\r\n%b" % (formatdate(second, usegmt=True).encode(), leader)
        return self._common
