"""A load generator that costs little: closed-loop clients over raw keep-alive connections, one request in
flight each.

It runs in one process and one thread beside the servers it measures. A client is a protocol object that
reads an answer and writes the next request in the same callback; no future, task or header dictionary is
made per operation.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, cast

import msgspec


class Script(Protocol):
    """What one client does: requests that follow from the answers before."""

    def first(self) -> bytes:
        """The first request; called once, when the client begins."""

    def next(self, status: int, body: bytes) -> bytes:
        """The request that follows this answer. Raises ValueError for an answer that ends the run."""

    @property
    def unit_done(self) -> bool:
        """Whether the answer just read completed a unit of work (a pair, a renewal)."""


class Measured(msgspec.Struct):
    """One round of one work."""

    units: int
    seconds: float
    unit_s: list[float]
    """How long each unit took."""
    first_s: list[float]
    """How long the first request of each unit took (the acquire of a pair)."""
    generator_cpu_s: float


class LoopClient(asyncio.Protocol):
    """One client: sends, reads, sends again until it is told to stop."""

    def __init__(
        self, script: Script, on_idle: Callable[[], None], on_error: Callable[[Exception], None]
    ) -> None:
        self.script = script
        self.unit_s: list[float] = []
        self.first_s: list[float] = []
        self.ends: list[float] = []
        self._on_idle = on_idle
        self._on_error = on_error
        self._running = False
        self._transport: asyncio.Transport
        self._buffer = b""
        self._sent_s = 0.0
        self._unit_sent_s = 0.0
        self._request_of_unit = 0
        self._pending: bytes | None = None

    def begin(self) -> None:
        """Go on where the client was stopped, with fresh samples."""
        self._running = True
        self.unit_s, self.first_s, self.ends = [], [], []
        request = self.script.first() if self._pending is None else self._pending
        self._send(request, time.perf_counter())

    def stop(self) -> None:
        """Send nothing after the unit in flight; `on_idle` is called then."""
        self._running = False

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running:
            self._on_error(ConnectionError(f"the server closed a connection: {exc!r}"))

    def _send(self, request: bytes, now_s: float) -> None:
        if self._request_of_unit == 0:
            self._unit_sent_s = now_s
        self._sent_s = now_s
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        answer = split_answer(buffer)
        if answer is None:
            self._buffer = buffer
            return
        self._buffer = b""
        now_s = time.perf_counter()
        status, body = answer
        try:
            request = self.script.next(status, body)
        except Exception as error:
            self._running = False
            self._on_error(error)
            return
        if self._request_of_unit == 0:
            self.first_s.append(now_s - self._sent_s)
        self._request_of_unit += 1
        if self.script.unit_done:
            self._request_of_unit = 0
            self.unit_s.append(now_s - self._unit_sent_s)
            self.ends.append(now_s)
            if not self._running:
                self._pending = request
                self._on_idle()
                return
        self._send(request, now_s)


def split_answer(buffer: bytes) -> tuple[int, bytes] | None:
    """Status and body of a complete answer; None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    at = buffer.find(b"Content-Length: ", 0, end)
    if at < 0:
        at = buffer.lower().find(b"content-length: ", 0, end)
    if at >= 0:
        length = int(buffer[at + 16 : buffer.find(b"\r\n", at)])
        if len(buffer) < end + 4 + length:
            return None
        return int(buffer[9:12]), buffer[end + 4 :]
    if not buffer.endswith(b"0\r\n\r\n"):  # chunked, as etcd's gateway answers a stream
        return None
    return int(buffer[9:12]), unchunked(buffer[end + 4 :])


def unchunked(data: bytes) -> bytes:
    """The body of a complete chunked message."""
    parts = []
    while data:
        size_text, _, data = data.partition(b"\r\n")
        size = int(size_text, 16)
        parts.append(data[:size])
        data = data[size + 2 :]
    return b"".join(parts)


def returned(client: LoopClient) -> LoopClient:
    return client


class Crowd:
    """Clients of one work, connected once and run for several rounds."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts
        self._clients: list[LoopClient] = []
        self._idle = 0
        self._done: asyncio.Future[None] | None = None

    async def connect(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        for script in self._scripts:
            client = LoopClient(script, self._one_idle, self._failed)
            await loop.create_connection(partial(returned, client), host, port)
            self._clients.append(client)

    def _one_idle(self) -> None:
        self._idle += 1
        if self._idle == len(self._clients) and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _failed(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    async def round(self, seconds: float) -> Measured:
        """Run all clients for so long; what they complete within that time counts."""
        loop = asyncio.get_running_loop()
        self._idle = 0
        self._done = loop.create_future()
        cpu_s, start_s = time.process_time(), time.perf_counter()
        for client in self._clients:
            client.begin()
        loop.call_later(seconds, self._stop)
        async with asyncio.timeout(seconds + 30):
            await self._done
        stop_s = time.perf_counter()
        return Measured(
            units=sum(len(client.ends) for client in self._clients),
            seconds=stop_s - start_s,
            unit_s=[value for client in self._clients for value in client.unit_s],
            first_s=[value for client in self._clients for value in client.first_s],
            generator_cpu_s=time.process_time() - cpu_s,
        )

    def _stop(self) -> None:
        for client in self._clients:
            client.stop()

    def close(self) -> None:
        for client in self._clients:
            client.stop()
            client.close()


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie; 0.0 of nothing."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
