"""Watchers of live nodes that go on elsewhere when their node dies, and the load that they watch.

Every watcher keeps the revisions that it was told and a checksum of each event's bytes: events are replicated
state, so two watchers that were told the same revision must have been told the same bytes.
"""

import asyncio
import json
import re
import time
import zlib
from collections.abc import Sequence
from typing import Final

from live_cluster import LiveNode
from raw_http import HttpConnection, NoAnswer, NotSent, request_bytes

EVENT: Final = re.compile(rb"id: (\d+)\nevent: (\w+)\ndata: ([^\n]*)\n\n")
NOTICES: Final = frozenset({b"bookmark", b"gap", b"shutting_down"})
BATCH_S: Final = 0.02
RESTS_EVERY: Final = 4
"""Batches, of which one tells of more than leases that come and go."""


class LiveWatcher:
    """Follows every event of a prefix from revision 0 on, on whichever node answers."""

    def __init__(self, name: str, nodes: Sequence[LiveNode], first: int, prefix: str = "") -> None:
        self.name = name
        self.prefix = prefix
        self.revisions: list[int] = []
        self.checksums: list[int] = []
        self.kinds: set[str] = set()
        self.place = 0
        """What it goes on after: an event's revision or a bookmark's."""
        self.connections = 0
        self.refused: dict[int, int] = {}
        self.gaps = 0
        self.faults: list[str] = []
        self._nodes = list(nodes)
        self._at = first
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    async def _run(self) -> None:
        while True:
            node = self._nodes[self._at % len(self._nodes)]
            try:
                await self._listen(node)
            except OSError:
                await asyncio.sleep(0.02)
            self._at += 1

    async def _listen(self, node: LiveNode) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.http_port)
        try:
            # A client of HTTP/1.0 gets the events as they are, without chunks.
            target = f"/v1/events?prefix={self.prefix}&from={self.place}"
            writer.write(f"GET {target} HTTP/1.0\r\nhost: live\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            if status != 200:
                self.refused[status] = self.refused.get(status, 0) + 1
                await asyncio.sleep(0.05)
                return
            self.connections += 1
            rest = b""
            while data := await reader.read(1 << 16):
                rest = self._take(rest + data)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.transport.abort()

    def _take(self, data: bytes) -> bytes:
        end = 0
        for found in EVENT.finditer(data):
            end = found.end()
            revision, kind = int(found[1]), found[2]
            if kind not in NOTICES:
                if revision <= self.place:
                    self.faults.append(f"{self.name} was told {revision} after {self.place}")
                self.revisions.append(revision)
                self.checksums.append(zlib.crc32(found[3]))
                self.kinds.add(kind.decode())
            elif kind == b"gap":
                self.gaps += 1
                return data[end:]  # what was missed is asked for elsewhere
            self.place = max(self.place, revision)
        return data[end:]

    def check_alive(self) -> None:
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class DeafWatcher:
    """Opens a watch of everything on one node and never reads from it."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        # The limit is what this side buffers before it stops reading from its socket.
        _, self._writer = await asyncio.open_connection("127.0.0.1", self._node.http_port, limit=1)
        self._writer.write(b"GET /v1/events?from=0 HTTP/1.0\r\nhost: live\r\n\r\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class EventLoad:
    """Leases that come and go, so many events a second, for as long as there is a leader. Now and then one of
    them tells of progress, and rests for a moment."""

    def __init__(self, nodes: Sequence[LiveNode], events_per_s: int) -> None:
        self.batches_s: list[float] = []
        """How long each batch took that was answered at its first attempt."""
        self._nodes = list(nodes)
        self._pairs = max(1, int(events_per_s * BATCH_S / 2))
        self._number = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        at, held = 0, list[str]()
        connection: HttpConnection | None = None
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            next_s = max(next_s + BATCH_S, loop.time() - 1)
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            self._number += 1
            ops: list[dict[str, object]] = []
            if held and self._number % RESTS_EVERY == 0:
                note = {"step": "load", "counter": self._number}
                ops += [
                    {"op": "renew", "lease_id": held[0], "progress": note},
                    {"op": "park", "lease_id": held[0], "limit_ms": 60_000},
                    {"op": "unpark", "lease_id": held[0]},
                ]
            ops += [{"op": "release", "lease_id": lease_id} for lease_id in held]
            ops += [
                {
                    "op": "acquire",
                    "key": f"g{pair % 4}/{self._number % 50}/{pair}",
                    "owner": "load",
                    "ttl_ms": 5_000,
                    "request_id": f"{self._number}-{pair}",
                }
                for pair in range(self._pairs)
            ]
            body = json.dumps({"ops": ops}).encode()
            try:
                if connection is None or not connection.usable:
                    connection = await HttpConnection.open(self._nodes[at % len(self._nodes)].url)
                sent_s = time.monotonic()
                answer = await connection.send(request_bytes("POST", "/v1/batch", body), 10.0)
            except (NotSent, NoAnswer):
                at, held, connection = at + 1, [], None
                continue
            self.batches_s.append(time.monotonic() - sent_s)
            results = json.loads(answer.body).get("results", [])
            held = [result["lease"]["lease_id"] for result in results if result.get("result") == "granted"]

    def check_alive(self) -> None:
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
