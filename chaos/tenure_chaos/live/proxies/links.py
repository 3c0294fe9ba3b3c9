"""Connections through the stand-in, and what toxics do to them: Toxiproxy's semantics over asyncio.

A link is one direction of one connection. What comes in is stamped and queued; what goes out has passed every
toxic of its direction, in their order. A change of the toxics interrupts whatever they wait for, and nothing
that was under way is dropped by it. As with Toxiproxy, the end of one direction is the end of the connection.
"""

import asyncio
import random
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PIECE_BYTES: Final = 32_768
"""Most that is read at a time."""
QUEUE_MAX: Final = 1_024
"""Pieces that a link holds; beyond it nothing more is read."""

Piece = tuple[float, bytes]


@dataclass(eq=False)
class Toxic:
    """One toxic of a proxy."""

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: dict[str, int]

    def told(self) -> Mapping[str, object]:
        return {
            "attributes": self.attributes,
            "name": self.name,
            "type": self.type,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }


class _Over(Exception):
    """A toxic has ended the link."""


@dataclass(eq=False)
class _Applied:
    """A toxic as one link has it."""

    toxic: Toxic
    active: bool
    sent: int = 0
    owed_s: float = 0.0
    began: float = field(default_factory=time.monotonic)


class Link:
    """One direction of one connection."""

    def __init__(self, stream: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self.stream = stream
        self._source = source
        self._sink = sink
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue(QUEUE_MAX)
        self._applied: list[_Applied] = []
        self._changed = asyncio.Event()
        self._over = False

    def add(self, toxic: Toxic) -> None:
        self._applied.append(_Applied(toxic, random.random() < toxic.toxicity))
        self._changed.set()

    def remove(self, toxic: Toxic) -> None:
        """What a ``timeout`` has swallowed is gone, so with it the link ends."""
        for applied in [one for one in self._applied if one.toxic is toxic]:
            self._applied.remove(applied)
            if toxic.type == "timeout" and applied.active:
                self._over = True
        self._changed.set()

    async def run(self) -> None:
        """Until the link ends. Cancelling ends it as well."""
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            while (piece := await self._next()) is not None:
                await self._through(piece, 0)
            await self._before_the_end()
        except (_Over, OSError):
            pass
        finally:
            reading.cancel()

    async def _read(self) -> None:
        try:
            while data := await self._source.read(PIECE_BYTES):
                await self._queue.put((time.monotonic(), data))
        except OSError:
            pass
        await self._queue.put(None)

    async def _next(self) -> Piece | None:
        """What comes next, unless a toxic ends the link for want of it."""
        waiting = asyncio.ensure_future(self._queue.get())
        try:
            while True:
                if self._over:
                    raise _Over
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait(
                    (waiting, changed), timeout=self._silence_s(), return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
                if waiting.done():
                    return waiting.result()
                if (left_s := self._silence_s()) is not None and left_s <= 0:
                    raise _Over
        finally:
            waiting.cancel()

    def _silence_s(self) -> float | None:
        """How long until a ``timeout`` ends the link if nothing comes."""
        ends = [
            applied.began + applied.toxic.attributes.get("timeout", 0) / 1000
            for applied in self._applied
            if applied.active and applied.toxic.type == "timeout" and applied.toxic.attributes.get("timeout")
        ]
        return min(ends) - time.monotonic() if ends else None

    async def _before_the_end(self) -> None:
        for applied in list(self._applied):
            if applied.active and applied.toxic.type == "slow_close":
                await self._sleep(applied.toxic.attributes.get("delay", 0) / 1000)

    async def _sleep(self, seconds: float) -> bool:
        """False if the toxics were changed meanwhile."""
        if seconds <= 0:
            return True
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return True
        if self._over:
            raise _Over
        return False

    async def _through(self, piece: Piece, place: int) -> None:
        """Have a piece pass the toxics from ``place`` on, and leave."""
        while place < len(self._applied) and not self._applied[place].active:
            place += 1
        if place >= len(self._applied):
            self._sink.write(piece[1])
            await self._sink.drain()
            return
        applied = self._applied[place]
        await _PIPES[applied.toxic.type](self, applied, piece, place + 1)

    async def _timeout(self, applied: _Applied, piece: Piece, place: int) -> None:
        applied.began = time.monotonic()  # the piece is dropped, and the time begins anew

    async def _latency(self, applied: _Applied, piece: Piece, place: int) -> None:
        said = applied.toxic.attributes
        jitter = said.get("jitter", 0)
        delay_s = (said.get("latency", 0) + (random.randrange(-jitter, jitter) if jitter > 0 else 0)) / 1000
        await self._sleep(piece[0] + delay_s - time.monotonic())
        await self._through((piece[0] + max(delay_s, 0.0), piece[1]), place)

    async def _bandwidth(self, applied: _Applied, piece: Piece, place: int) -> None:
        rate = applied.toxic.attributes.get("rate", 0)
        at, data = piece
        if rate > 0:
            applied.owed_s += len(data) / (rate * 1000)
        while rate > 0 and len(data) > rate * 100:
            if not await self._sleep(0.1):
                await self._through((at, data), place)
                return
            await self._through((at, data[: rate * 100]), place)
            data = data[rate * 100 :]
            applied.owed_s -= 0.1
        began = time.monotonic()
        if rate > 0 and await self._sleep(applied.owed_s):
            applied.owed_s -= time.monotonic() - began
        await self._through((at, data), place)

    async def _limit_data(self, applied: _Applied, piece: Piece, place: int) -> None:
        left = max(0, applied.toxic.attributes.get("bytes", 0) - applied.sent)
        data = piece[1][:left]
        if data:
            applied.sent += len(data)
            await self._through((piece[0], data), place)
        if len(data) == left:
            raise _Over

    async def _reset_peer(self, applied: _Applied, piece: Piece, place: int) -> None:
        await asyncio.sleep(applied.toxic.attributes.get("timeout", 0) / 1000)
        raise _Over

    async def _slicer(self, applied: _Applied, piece: Piece, place: int) -> None:
        said = applied.toxic.attributes
        at, data = piece
        average, variation = max(1, said.get("average_size", 1)), max(0, said.get("size_variation", 0))
        while data:
            size = max(1, average + (random.randrange(-variation, variation) if variation else 0))
            await self._through((at, data[:size]), place)
            data = data[size:]
            if not await self._sleep(said.get("delay", 0) / 1_000_000):
                await self._through((at, data), place)
                return

    async def _pass(self, applied: _Applied, piece: Piece, place: int) -> None:
        await self._through(piece, place)


_PIPES: Final = {
    "bandwidth": Link._bandwidth,
    "latency": Link._latency,
    "limit_data": Link._limit_data,
    "reset_peer": Link._reset_peer,
    "slicer": Link._slicer,
    "slow_close": Link._pass,
    "timeout": Link._timeout,
}

TYPES: Final = frozenset(_PIPES)


def reset_on_close(*writers: asyncio.StreamWriter) -> None:
    """Whoever is connected there will be told by RST, not by FIN."""
    for writer in writers:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
