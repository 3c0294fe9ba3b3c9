"""A stream as a load generator needs it: frames of operations in, one future a frame, and when each answer
came.

And what several scripts ask a live cluster for: its metrics, and leases by the thousand.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import msgspec
from stream_load import HANDSHAKE, binary_frames, message
from targets import LiveNode, fetch

Operation = tuple[str, dict[str, Any]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, Any]]).decode


class Refused(ValueError):
    """An answer that this work must not get."""


class Answers:
    """What came back of one frame."""

    __slots__ = ("at_s", "bodies", "done", "left", "sent_s", "statuses")

    def __init__(self, count: int, sent_s: float, done: "asyncio.Future[Answers]") -> None:
        self.sent_s = sent_s
        self.statuses = [0] * count
        self.bodies: list[Any] = [None] * count
        self.at_s = [0.0] * count
        """When each answer came, by the generator's clock."""
        self.left = count
        self.done = done

    def checked(self) -> list[Any]:
        """All bodies. Raises Refused if there is one that is no 200."""
        for status, body in zip(self.statuses, self.bodies, strict=True):
            if status != 200:
                raise Refused(f"{status} {body!r}")
        return self.bodies


class Stream(asyncio.Protocol):
    """One connection. Frames may be sent before earlier ones are answered."""

    def __init__(self, handshake: bytes = HANDSHAKE) -> None:
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._transport: asyncio.Transport
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._under_way: dict[int, tuple[Answers, int]] = {}
        self.opened: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(cls, host: str, port: int, credential: str = "") -> "Stream":
        shown = HANDSHAKE.replace(b"host:", b"authorization: Bearer %b\r\nhost:" % credential.encode(), 1)
        made = partial(cls, shown if credential else HANDSHAKE)
        _, stream = await asyncio.get_running_loop().create_connection(made, host, port)
        await asyncio.wait_for(stream.opened, 10)
        return stream

    def close(self) -> None:
        self._transport.abort()

    @property
    def under_way(self) -> int:
        """Operations without an answer."""
        return len(self._under_way)

    def send(self, operations: Sequence[Operation]) -> "asyncio.Future[Answers]":
        """Send one frame."""
        done: asyncio.Future[Answers] = self._loop.create_future()
        answers = Answers(len(operations), time.perf_counter(), done)
        triples = []
        for place, (operation, body) in enumerate(operations):
            number = next(self._numbers)
            self._under_way[number] = (answers, place)
            triples.append((number, operation, body))
        if self._transport.is_closing():
            done.set_exception(ConnectionError("the stream is closed"))
        else:
            self._transport.write(message(_encode(triples)))
        return done

    async def call(self, operation: str, **body: Any) -> Any:
        """One operation in a frame of its own. Raises Refused."""
        return (await self.send([(operation, body)])).checked()[0]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        error = ConnectionError(f"the stream was closed: {exc!r}")
        for answers, _ in self._under_way.values():
            if not answers.done.done():
                answers.done.set_exception(error)
        self._under_way.clear()
        if not self.opened.done():
            self.opened.set_exception(error)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        at = 0
        if not self.opened.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = buffer
                return
            at = end + 4
            if not buffer.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(Refused(buffer[:end].decode("latin-1")))
                return
            self.opened.set_result(None)
        payloads, self._buffer = binary_frames(buffer, at)
        for payload in payloads:
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        now_s = time.perf_counter()
        for number, status, body in _decode(payload):
            known = self._under_way.pop(number, None)
            if known is None:
                continue
            answers, place = known
            answers.statuses[place], answers.bodies[place], answers.at_s[place] = status, body, now_s
            answers.left -= 1
            if not answers.left and not answers.done.done():
                answers.done.set_result(answers)


async def acquire_many(
    streams: Sequence[Stream],
    count: int,
    batch: int,
    body_of: Callable[[int], dict[str, Any]],
    taken: Callable[[int, Answers], None] = lambda first, answers: None,
) -> None:
    """Acquire so many leases, `batch` a frame, one frame at a time on each stream. `taken` is told the number
    of the first lease of each frame, and its answers. Raises Refused."""
    starts = iter(range(0, count, batch))

    async def work(stream: Stream) -> None:
        for first in starts:
            numbers = range(first, min(first + batch, count))
            answers = await stream.send([("acquire", body_of(number)) for number in numbers])
            answers.checked()
            taken(first, answers)

    await asyncio.gather(*map(work, streams))


@asynccontextmanager
async def streams_to(host: str, port: int, count: int, credential: str = "") -> AsyncIterator[list[Stream]]:
    opened: list[Stream] = []
    try:
        for _ in range(count):
            opened.append(await Stream.open(host, port, credential))
        yield opened
    finally:
        for stream in opened:
            stream.close()


async def metrics_of(node: LiveNode, timeout_s: float = 10.0) -> dict[str, float]:
    """The node's metrics, by their names with labels. A busy machine may take its time."""
    answer = await fetch(node.url, "GET", "/metrics", timeout_s=timeout_s)
    told: dict[str, float] = {}
    for line in answer.body.decode().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            told[name] = float(value)
    return told


class Holds:
    """The longest that a node's event loop was held, followed by looking at its gauge once a second.

    The gauge looks 15 s back: what is followed begins to count when that long has passed without anything.
    """

    def __init__(
        self,
        node: LiveNode,
        period_s: float = 1.0,
        seen: Callable[[float, dict[str, float]], None] = lambda at_s, told: None,
    ) -> None:
        """`seen` is told the generator's time and all metrics at each look."""
        self.node = node
        self._period_s = period_s
        self._seen = seen
        self.held_s = 0.0
        self.ran_s = 0.0
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._period_s)

    async def look(self) -> None:
        told = await metrics_of(self.node)
        self._seen(time.perf_counter(), told)
        self.held_s = max(self.held_s, told["tenure_loop_held_seconds"])
        self.ran_s = max(self.ran_s, told["tenure_loop_held_cpu_seconds"])

    async def stop(self) -> None:
        """A last look, and no more. Raises what looking has failed with."""
        if self._task.done():
            await self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.look()

    def figures(self) -> dict[str, float]:
        return {"held_ms": round(self.held_s * 1e3, 1), "ran_ms": round(self.ran_s * 1e3, 1)}
