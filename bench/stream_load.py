"""Measure the stream: operations over WebSockets, one a frame and many a frame, against three local nodes.

    python bench/stream_load.py                 a warm-up and five rounds of each work, medians
    python bench/stream_load.py --quick         a few seconds, to see that it runs
    python bench/stream_load.py --json FILE     the figures as JSON as well

Each client is a closed loop: it sends a frame, reads until every operation of it is answered, and sends the
next one. `renew` renews leases that the client holds; `acquire+release` alternates frames of acquires of keys
of its own with frames of their releases, and counts every operation.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from load import percentile
from targets import TenureTarget, install_uvloop

HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nhost: bench\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

_numbers = itertools.count(1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, Any]]).decode


def binary_frames(buffer: bytes, at: int = 0) -> tuple[list[bytes], bytes]:
    """The payloads of the whole binary frames of a WebSocket from there on, and what is left."""
    payloads = []
    while len(buffer) - at >= 2:
        size, head = buffer[at + 1], 2
        if size == 126:
            size, head = int.from_bytes(buffer[at + 2 : at + 4], "big"), 4
        elif size == 127:
            size, head = int.from_bytes(buffer[at + 2 : at + 10], "big"), 10
        if len(buffer) - at < head + size:
            break
        if buffer[at] == 0x82:
            payloads.append(buffer[at + head : at + head + size])
        at += head + size
    return payloads, buffer[at:]


def message(payload: bytes) -> bytes:
    """A binary message as a client sends it, masked by zeros, which leave the payload as it is."""
    size = len(payload)
    if size < 126:
        return b"\x82%c\x00\x00\x00\x00%b" % (0x80 | size, payload)
    if size < 1 << 16:
        return b"\x82\xfe%b\x00\x00\x00\x00%b" % (size.to_bytes(2, "big"), payload)
    return b"\x82\xff%b\x00\x00\x00\x00%b" % (size.to_bytes(8, "big"), payload)


class StreamLoad(asyncio.Protocol):
    """One closed loop over one WebSocket."""

    def __init__(self, number: int, width: int, work: str, on_error: Callable[[Exception], None]) -> None:
        self._number = number
        self._width = width
        self._work = work
        self._on_error = on_error
        self._transport: asyncio.Transport
        self._buffer = b""
        self._open = False
        self._missing = 0
        self._sent_s = 0.0
        self._leases: list[str] = []
        self._granted: list[str] = []
        self._renewal = b""
        self._round = 0
        self._running = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.idle: asyncio.Future[None] | None = None
        self.operations = 0
        self.frame_s: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(HANDSHAKE)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running:
            self._on_error(ConnectionError(f"a stream was closed: {exc!r}"))

    def begin(self) -> None:
        self.operations, self.frame_s = 0, []
        self._running = True
        self.idle = asyncio.get_running_loop().create_future()
        self._next()

    def stop(self) -> None:
        self._running = False

    def close(self) -> None:
        self._running = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        if not self._open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = buffer
                return
            self._open = True
            buffer = buffer[end + 4 :]
            self._acquire()
        payloads, self._buffer = binary_frames(buffer)
        for payload in payloads:
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        for _, status, body in _decode(payload):
            if status != 200:
                self._running = False
                self._on_error(ValueError(f"{status} {body!r}"))
                return
            if (lease := body.get("lease")) is not None and body.get("status") == "granted":
                self._granted.append(lease["lease_id"])
            self._missing -= 1
        if self._missing:
            return
        if not self.ready.done():
            self._leases, self._granted = self._granted, []
            triples = [[i + 1, "renew", {"lease_id": lease_id}] for i, lease_id in enumerate(self._leases)]
            self._renewal = message(_encode(triples))
            self.ready.set_result(None)
            return
        self.frame_s.append(time.perf_counter() - self._sent_s)
        self.operations += self._width
        if self._running:
            self._next()
        elif self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    def _next(self) -> None:
        self._sent_s = time.perf_counter()
        if self._work == "renew":
            self._missing = self._width
            self._transport.write(self._renewal)
        elif self._granted:
            triples = [[i + 1, "release", {"lease_id": lease}] for i, lease in enumerate(self._granted)]
            self._granted = []
            self._missing = self._width
            self._transport.write(message(_encode(triples)))
        else:
            self._acquire()

    def _acquire(self) -> None:
        self._round += 1
        self._missing = self._width
        name = "held" if self._round == 1 else "pair"
        triples = [
            [
                i + 1,
                "acquire",
                {
                    "key": f"{name}/{self._number}/{i}",
                    "owner": "agent",
                    "ttl_ms": 60_000,
                    "request_id": f"{self._number}-{self._round}-{i}",
                },
            ]
            for i in range(self._width)
        ]
        self._transport.write(message(_encode(triples)))


class Round(msgspec.Struct):
    """What one round gave. Microseconds are of CPU and per operation."""

    rate: float
    p50_ms: float
    p99_ms: float
    leader_us: float
    followers_us: list[float]
    generator_share: float


async def measure(
    target: TenureTarget, work: str, clients: int, width: int, seconds: float, rounds: int
) -> list[Round]:
    loop = asyncio.get_running_loop()
    failure: asyncio.Future[None] = loop.create_future()

    def failed(error: Exception) -> None:
        if not failure.done():
            failure.set_exception(error)

    loads = [StreamLoad(next(_numbers), width, work, failed) for _ in range(clients)]
    for load in loads:
        await loop.create_connection(partial(_itself, load), target.host, target.port)
        await asyncio.wait_for(load.ready, 10)
    measured = []
    for number in range(rounds + 1):
        cpu_s, own_s, start_s = target.cpu_s(), time.process_time(), time.perf_counter()
        for load in loads:
            load.begin()
        await asyncio.wait([failure], timeout=seconds)
        for load in loads:
            load.stop()
        idle = [load.idle for load in loads if load.idle is not None]
        await asyncio.wait([failure, asyncio.gather(*idle)], timeout=30, return_when="FIRST_COMPLETED")
        if failure.done():
            failure.result()
        took_s = time.perf_counter() - start_s
        operations = sum(load.operations for load in loads)
        spent = [after - before for after, before in zip(target.cpu_s(), cpu_s, strict=True)]
        frames = [value for load in loads for value in load.frame_s]
        if number:
            per_operation = [value * 1e6 / operations for value in spent]
            measured.append(
                Round(
                    rate=operations / took_s,
                    p50_ms=percentile(frames, 50) * 1e3,
                    p99_ms=percentile(frames, 99) * 1e3,
                    leader_us=per_operation[0],
                    followers_us=per_operation[1:],
                    generator_share=(time.process_time() - own_s) / took_s,
                )
            )
    for load in loads:
        load.close()
    return measured


def _itself(load: StreamLoad) -> StreamLoad:
    return load


def row(work: str, clients: int, width: int, rounds: list[Round]) -> str:
    def median(of: Callable[[Round], float]) -> float:
        return statistics.median(of(one) for one in rounds)

    followers = median(lambda one: sum(one.followers_us))
    return (
        f"{work:16} {clients:4} clients {width:4} a frame "
        f"{median(lambda one: one.rate):9,.0f}/s  p50 {median(lambda one: one.p50_ms):6.2f} ms  "
        f"p99 {median(lambda one: one.p99_ms):6.2f} ms  leader {median(lambda one: one.leader_us):5.1f} us  "
        f"followers {followers:5.1f} us  generator {median(lambda one: one.generator_share):4.0%}"
    )


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    seconds, rounds = (0.5, 1) if arguments.quick else (arguments.seconds, arguments.rounds)
    figures: dict[str, Any] = {"loop": type(asyncio.get_running_loop()).__module__, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        target = TenureTarget(Path(directory), arguments.durability)
        try:
            await target.start()
            for work in ("renew", "acquire+release"):
                for clients, width in ((1, 1), (64, 1), (16, 32), (16, 256)):
                    measured = await measure(target, work, clients, width, seconds, rounds)
                    print(row(work, clients, width, measured), flush=True)
                    figures[f"{work}, {clients} x {width}"] = msgspec.to_builtins(measured)
            assert await target.leader_stays(), "the leader changed meanwhile"
        finally:
            target.stop()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--directory", help="where the nodes keep their data")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    print(f"loop: {install_uvloop()}")
    figures = asyncio.run(run(arguments))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
