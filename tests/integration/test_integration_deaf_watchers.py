"""Watchers that read nothing cost a node a bounded amount of memory, and nobody else's latency.

With TENURE_TEST_FULL=1 there are more of them and far more events, which would be 1 GB if they were kept for
each.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import time
from pathlib import Path
from typing import Final

import pytest
from event_watchers import LiveWatcher
from live_cluster import LiveCluster, LiveNode, until
from raw_http import HttpConnection, fetch, request_bytes

pytestmark = [pytest.mark.process, pytest.mark.slow]

FULL: Final = bool(os.environ.get("TENURE_TEST_FULL"))
DEAF: Final = 100 if FULL else 40
EVENTS: Final = 40_000 if FULL else 8_000
PER_BATCH: Final = 100
EVENT_BYTES_MIN: Final = 200
SETTLED_EVENTS: Final = 2_000
HISTORY: Final = 1_000_000
"""More than there are events: nobody is cut off because the node has forgotten what it did not read."""

KEPT_FOR_EACH_BYTES: Final = 256 << 10
"""What a node may keep for a watcher: what its connection buffers, and one slice of events above that."""
LOG_BYTES_PER_EVENT: Final = 1_500
"""Of the event log, the journal's and the table's memory: whoever watches, or nobody."""
SLACK_BYTES: Final = 24 << 20

SINGLES: Final = 60
TIMES_SLOWER_MAX: Final = 3.0
NOISE_S: Final = 0.02


class Deaf:
    """Asks for every event and reads none; what its kernel takes in for it is as little as can be."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._node.http_port))
        await loop.sock_sendall(self._socket, b"GET /v1/events?from=0 HTTP/1.0\r\nhost: live\r\n\r\n")

    def close(self) -> None:
        self._socket.close()


def resident_bytes(node: LiveNode) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
    [kib] = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kib) << 10


async def watches(node: LiveNode) -> int:
    """How many watches the node says that it has."""
    answer = await fetch(node.url, "GET", "/metrics", None, timeout_s=60.0)
    [count] = re.findall(rb"^tenure_watches (\d+)", answer.body, re.MULTILINE)
    return int(count)


class Flood:
    """Leases that come and go in large batches."""

    def __init__(self, node: LiveNode) -> None:
        self.peak_bytes = 0
        self._node = node
        self._number = 0

    async def tell(self, events: int) -> None:
        """So many events, two for each lease."""
        connection = await HttpConnection.open(self._node.url)
        held: list[str] = []
        for _ in range(events // (2 * PER_BATCH) + 1):
            self._number += 1
            ops: list[dict[str, object]] = [{"op": "release", "lease_id": lease_id} for lease_id in held]
            ops += [
                {"op": "acquire", "key": f"flood/{n}", "owner": "flood", "ttl_ms": 600_000}
                | {"request_id": f"{self._number}-{n}"}
                for n in range(PER_BATCH)
            ]
            body = json.dumps({"ops": ops}).encode()
            answer = await connection.send(request_bytes("POST", "/v1/batch", body), 60.0)
            assert answer.status == 200, answer.body
            results = json.loads(answer.body)["results"]
            held = [result["lease"]["lease_id"] for result in results if result.get("result") == "granted"]
            assert len(held) == PER_BATCH
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._node))
        ops = [{"op": "release", "lease_id": lease_id} for lease_id in held]
        body = json.dumps({"ops": ops}).encode()
        await connection.send(request_bytes("POST", "/v1/batch", body), 60.0)
        connection.close()


async def latencies(node: LiveNode, flood: Flood, owner: str) -> list[float]:
    """How long single acquires and releases of somebody else take while events are told."""
    telling = asyncio.create_task(flood.tell(SETTLED_EVENTS))
    connection = await HttpConnection.open(node.url)
    took_s: list[float] = []
    for number in range(SINGLES):
        body = {"key": "single", "owner": owner, "ttl_ms": 60_000, "request_id": f"{owner}-{number}"}
        began_s = time.monotonic()
        answer = await connection.send(request_bytes("POST", "/v1/acquire", json.dumps(body).encode()), 60.0)
        took_s.append(time.monotonic() - began_s)
        assert answer.status == 200, answer.body
        lease_id = json.loads(answer.body)["lease"]["lease_id"]
        named = json.dumps({"lease_id": lease_id}).encode()
        await connection.send(request_bytes("POST", "/v1/release", named), 60.0)
    connection.close()
    await telling
    return took_s


async def test_watchers_that_read_nothing_cost_a_bounded_amount_of_memory_and_nobodys_latency(
    tmp_path: Path,
) -> None:
    settings = {"watch": {"history_events": HISTORY}}
    async with LiveCluster(tmp_path, durability="os", settings=settings) as cluster:
        node = await cluster.leader()
        flood = Flood(node)
        await flood.tell(SETTLED_EVENTS)
        alone_s = await latencies(node, flood, "alone")
        with contextlib.ExitStack() as stack:
            for _ in range(DEAF):
                deaf = Deaf(node)
                stack.callback(deaf.close)
                await deaf.open()

            async def all_watch() -> bool:
                return await watches(node) == DEAF

            await until(all_watch, 60.0, f"{DEAF} watches on {node.node_id}")
            reader = LiveWatcher("reader", [node], 0)
            before_bytes, flood.peak_bytes = resident_bytes(node), 0
            beside_s = await latencies(node, flood, "beside")
            await flood.tell(EVENTS)
            grown_bytes = flood.peak_bytes - before_bytes

            async def reader_has_everything() -> bool:
                reader.check_alive()
                return len(reader.revisions) >= EVENTS + 2 * SETTLED_EVENTS

            await until(reader_has_everything, 120.0, "the one that reads to be told everything", 0.05)
            assert reader.faults == []
            assert reader.revisions == list(range(1, len(reader.revisions) + 1))
            await reader.stop()

            async def cut_off() -> bool:
                return await watches(node) == 0

            await until(cut_off, 120.0, "those that read nothing to be cut off", 0.2)
        bound_bytes = DEAF * KEPT_FOR_EACH_BYTES + EVENTS * LOG_BYTES_PER_EVENT + SLACK_BYTES
        figures = {
            "deaf": DEAF,
            "events": EVENTS,
            "grown_mib": round(grown_bytes / (1 << 20), 1),
            "bound_mib": round(bound_bytes / (1 << 20), 1),
            "median_alone_ms": round(statistics.median(alone_s) * 1e3, 2),
            "median_beside_ms": round(statistics.median(beside_s) * 1e3, 2),
        }
        print(json.dumps(figures))  # noqa: T201 -- shown when the test is run by hand
        assert bound_bytes < DEAF * EVENTS * EVENT_BYTES_MIN, "keeping everything for each would pass too"
        assert grown_bytes < bound_bytes
        assert statistics.median(beside_s) < TIMES_SLOWER_MAX * statistics.median(alone_s) + NOISE_S
