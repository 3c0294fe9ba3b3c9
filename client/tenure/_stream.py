"""Sends attempts over `GET /v1/stream` where it can, and over plain HTTP where it can't.

Theory of operation. A stream is one WebSocket to a node, for all calls to it: what is asked in one turn of
the event loop goes out in one message, and answers come in any order. What can't go that way goes over HTTP:

    polls                   that their connection breaks tells the cluster that nobody waits there any more
    what must not be sent   a connection that is used again may have been closed by the node just now
    twice
    the cluster's view,     streams don't have it
    batches
    what is traced          a stream has no headers for each call

And everything does where a stream can't be had. A proxy may refuse the upgrade, let it hang, or pass it and
then keep the messages to itself; each of these makes the URL plain for PLAIN_S, after which it is tried anew.
A node that can't be reached at all says nothing about streams.

What is known after a failure is the same as with HTTP: an attempt that was not given to the connection was
not sent, and any other may have been executed. As there, a connection that failed, or led to a node that
can't serve, is not used for anything new: a name may stand for several nodes, and the next one begins with
another. A stream goes on with the credential with which it was opened; what a node refuses for it is asked
again over HTTP, with the credential of that moment, and over a new stream later.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import weakref
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure._http import ANSWER_BYTES_MAX, Http, NoAnswer, NotSent
from tenure._options import Opened
from tenure._problems import CONTENT_TYPE, MSGPACK
from tenure._protocol import LEADER_HEADER, Attempt
from tenure._tracing import is_traced

if TYPE_CHECKING:
    import aiohttp

PLAIN_S: Final = 60.0
"""For how long a URL is asked over HTTP alone after its stream could not be had."""
HANDSHAKE_S: Final = 1.0
HANDSHAKE_OF_ATTEMPT: Final = 1 / 3
"""Longest wait for a stream to open: the lesser of this and this part of the attempt's time."""
CLOSE_S: Final = 1.0
UNAUTHENTICATED: Final = 401
OPS_PER_MESSAGE_MAX: Final = 500
MESSAGE_BYTES_MAX: Final = 128 * 1024
"""A message is begun anew before it gets longer than this; one operation may be longer by itself."""

Sent = tuple[int, Mapping[str, str], bytes]
_answers: Final = msgspec.msgpack.Decoder(list[tuple[int, int, msgspec.Raw]])
_encode: Final = msgspec.msgpack.Encoder().encode


class StreamFirst:
    """A transport over streams, with HTTP beside it. To be used from one event loop."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._streams: dict[str, _Stream] = {}
        self._retired: set[_Stream] = set()
        """Those that are asked nothing new, and are not closed yet."""
        self._opening: dict[str, asyncio.Task[_Stream | None]] = {}
        self._plain_until: dict[str, float] = {}
        _ALL.add(self)
        # The tasks of a stream keep it alive, so one that nobody has any more must be told.
        weakref.finalize(self, _drop, self._streams, os.getpid()).atexit = False

    async def send(self, attempt: Attempt) -> Sent:
        """Status, headers and body of the answer. Raises NotSent or NoAnswer."""
        now = asyncio.get_running_loop().time
        alone = not attempt.operation or attempt.once or is_traced(attempt.operation)
        if alone or self._plain_until.get(attempt.url, 0.0) > now():
            return await self._http.send(attempt)
        began = now()
        stream = await self._stream(attempt)
        left_s = max(0.001, attempt.timeout_s - (now() - began))
        if stream is None:
            return await self._http.send(dataclasses.replace(attempt, timeout_s=left_s))
        failed = True
        try:
            answer = await stream.ask(attempt, left_s)
            failed = answer[0] >= 500 or answer[0] == UNAUTHENTICATED
            if answer[0] != UNAUTHENTICATED:
                return answer
        except asyncio.CancelledError:
            failed = False
            raise
        finally:
            if failed and self._streams.get(attempt.url) is stream:
                del self._streams[attempt.url]
                self._retired = {one for one in self._retired if not one.is_gone} | {stream}
                stream.retire()
                self._http.turn(attempt.url)
            if stream.is_mute:
                self._go_plain(attempt.url)
        left_s = max(0.001, attempt.timeout_s - (now() - began))
        return await self._http.send(dataclasses.replace(attempt, timeout_s=left_s))

    def stream(self, url: str, *, silence_max_s: float) -> AbstractAsyncContextManager[Opened]:
        """As Http.stream: watches have connections of their own."""
        return self._http.stream(url, silence_max_s=silence_max_s)

    async def close(self) -> None:
        opening, self._opening = list(self._opening.values()), {}
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        streams = [*self._streams.values(), *self._retired]
        self._streams, self._retired = {}, set()
        await asyncio.gather(*(stream.close() for stream in streams))
        await self._http.close()

    def forked(self) -> None:
        """This is the child's copy: the connections are the parent's, and must not even be collected here."""
        streams = [*self._streams.values(), *self._retired]
        _left_to_the_parent.extend(streams)
        for stream in streams:
            stream.forked()
        self._streams, self._retired, self._opening = {}, set(), {}

    def _go_plain(self, url: str) -> None:
        self._plain_until[url] = asyncio.get_running_loop().time() + PLAIN_S

    async def _stream(self, attempt: Attempt) -> _Stream | None:
        """An open stream to the URL; None if there is none in time. Raises NotSent if there is no node."""
        url = attempt.url
        stream = self._streams.get(url)
        if stream is not None and not stream.closed:
            return stream
        opening = self._opening.get(url)
        if opening is None:
            opening = self._opening[url] = asyncio.get_running_loop().create_task(self._open(url))
            opening.add_done_callback(lambda done: self._opened(url, done))
        wait_s = min(HANDSHAKE_S, attempt.timeout_s * HANDSHAKE_OF_ATTEMPT)
        # Not awaited itself: others wait for it as well, and one that is cancelled by `close` cancels nobody.
        await asyncio.wait([opening], timeout=wait_s)
        if not opening.done():
            return None
        if opening.cancelled():
            raise NotSent("the client was closed")
        return opening.result()

    def _opened(self, url: str, opening: asyncio.Task[_Stream | None]) -> None:
        if self._opening.get(url) is opening:
            del self._opening[url]
        if opening.cancelled() or opening.exception() is not None:
            return
        stream = opening.result()
        if stream is None:
            self._go_plain(url)
        else:
            if (before := self._streams.get(url)) is not None:
                self._retired.add(before)  # it has ended by itself
            self._streams[url] = stream

    async def _open(self, url: str) -> _Stream | None:
        import aiohttp
        from yarl import URL

        session, headers = self._http.open(url)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                socket = await session.ws_connect(
                    URL(f"{url}/v1/stream", encoded=True),
                    headers=headers,
                    max_msg_size=ANSWER_BYTES_MAX,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        except aiohttp.ClientConnectorError as error:
            await session.close()
            os_error = error.os_error
            words = "connection refused" if isinstance(os_error, ConnectionRefusedError) else str(error)
            raise NotSent(words) from error
        except (aiohttp.ClientError, TimeoutError, OSError):
            await session.close()
            return None
        except BaseException:
            await session.close()
            raise
        return _Stream(session, socket)


def _drop(streams: dict[str, _Stream], pid: int) -> None:
    if os.getpid() == pid:
        for stream in streams.values():
            stream.drop()


_ALL: weakref.WeakSet[StreamFirst] = weakref.WeakSet()
_left_to_the_parent: list[_Stream] = []


def _after_fork_in_child() -> None:
    for transport in list(_ALL):
        transport.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Asked:
    """One operation that is under way."""

    __slots__ = ("answer", "given")

    def __init__(self, answer: asyncio.Future[tuple[int, bytes]]) -> None:
        self.answer = answer
        self.given = False
        """The connection was given it."""


class _Stream:
    """One open WebSocket."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session = session
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._outbox: list[tuple[_Asked, bytes]] = []
        self._to_write = asyncio.Event()
        self._leader = _leader(socket)
        self._transport = _transport(socket)
        self._heard_at = self._loop.time()
        self._heard = False
        self.closed = False
        self._retired = False
        self.is_mute = False
        """It opened, and then said nothing to what it was asked first."""
        self._tasks = [self._loop.create_task(self._read()), self._loop.create_task(self._write())]

    async def ask(self, attempt: Attempt, timeout_s: float) -> Sent:
        number = next(self._numbers)
        asked = _Asked(self._loop.create_future())
        self._asked[number] = asked
        self._outbox.append((asked, _encode((number, attempt.operation, attempt.fields))))
        self._to_write.set()
        try:
            async with asyncio.timeout(timeout_s):
                status, body = await asked.answer
        except TimeoutError:
            self._is_silent(timeout_s)
            why = f"no answer within {timeout_s:.1f} s"
            raise (NoAnswer(why) if asked.given else NotSent(why)) from None
        finally:
            self._asked.pop(number, None)
            if self._retired and not self._asked:
                self._end("not needed any more")
        headers = {CONTENT_TYPE: MSGPACK}
        # What the handshake said of the leader is news for one answer only.
        if self._leader is not None:
            headers[LEADER_HEADER], self._leader = self._leader, None
        return status, headers, body

    def _is_silent(self, timeout_s: float) -> None:
        """An answer did not come in time. If nothing else did either, the connection is of no use."""
        if self._loop.time() - self._heard_at >= timeout_s * 0.9:
            self.is_mute = not self._heard
            self._end("the connection is silent")

    async def _read(self) -> None:
        import aiohttp

        why = "the connection was closed"
        try:
            async for message in self._socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    why = "the node said what no Tenure node says"
                    break
                self._heard, self._heard_at = True, self._loop.time()
                for number, status, body in _answers.decode(message.data):
                    asked = self._asked.get(number)
                    if asked is not None and not asked.answer.done():
                        asked.answer.set_result((status, bytes(body)))
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            why = str(error) or type(error).__name__
        finally:
            self._end(why)

    async def _write(self) -> None:
        why = "the connection was closed"
        try:
            while not self.closed:
                await self._to_write.wait()
                self._to_write.clear()
                while self._outbox:
                    await self._socket.send_bytes(self._message())
        except (ConnectionError, OSError) as error:
            why = str(error) or type(error).__name__
        finally:
            self._end(why)

    def _message(self) -> bytes:
        """As many of the operations that are to be sent as one message takes."""
        size = count = 0
        for asked, encoded in self._outbox:
            if count and (count >= OPS_PER_MESSAGE_MAX or size + len(encoded) > MESSAGE_BYTES_MAX):
                break
            asked.given = True
            size += len(encoded)
            count += 1
        parts = [encoded for _, encoded in self._outbox[:count]]
        del self._outbox[:count]
        return b"\xdc" + count.to_bytes(2, "big") + b"".join(parts)

    def _end(self, why: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._to_write.set()
        asked, self._asked = list(self._asked.values()), {}
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(NoAnswer(why) if one.given else NotSent(why))
                # Whoever asked may have gone meanwhile.
                one.answer.exception()
        closing = self._loop.create_task(self._close())
        self._tasks.append(closing)

    @property
    def is_gone(self) -> bool:
        """Nothing of it is left."""
        return self.closed and all(task.done() for task in self._tasks)

    def retire(self) -> None:
        """Nothing new is asked over it. What is under way is waited for."""
        self._retired = True
        if not self._asked:
            self._end("not needed any more")

    def drop(self) -> None:
        """Nobody has it any more. From any thread."""
        try:
            self._loop.call_soon_threadsafe(self.retire)
        except RuntimeError:
            pass  # the loop is closed, and the connection with it

    async def _close(self) -> None:
        try:
            await self._socket.close()
        finally:
            await self._session.close()
            if self._transport is not None:
                # TLS would wait for the other side's farewell, beyond the end of the loop perhaps.
                self._transport.abort()
                await asyncio.sleep(0)

    async def close(self) -> None:
        self._end("this client was closed")
        reading, writing, *closing = self._tasks
        await asyncio.wait(closing, timeout=2 * CLOSE_S)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forked(self) -> None:
        connector = self._session.connector
        if connector is not None:
            connector._closed = True
        self._session.detach()


def _transport(socket: aiohttp.ClientWebSocketResponse) -> asyncio.Transport | None:
    """What it is sent over."""
    connection: Any = getattr(getattr(socket, "_response", None), "connection", None)
    return None if connection is None else connection.transport


def _leader(socket: aiohttp.ClientWebSocketResponse) -> str | None:
    """The leader that the handshake named."""
    headers: Any = getattr(socket, "_response", None)
    value = headers.headers.get(LEADER_HEADER) if headers is not None else None
    return value if isinstance(value, str) else None
