"""Connections: idle, slow, broken, many. None of them may keep the server from serving the others."""

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from api_node import CONNECTIONS_MAX, IDLE_TIMEOUT_MS, READ_TIMEOUT_MS, RunningNode
from api_wire import Wire, ask, request_bytes

from tenure_cluster.api.limits import SPARE_CONNECTIONS, HttpLimits
from tenure_cluster.service.polls import LEAVE_AFTER_S

SWEEP_S = 1.0
"""A time-out is exceeded by at most this, and by what a busy machine adds."""
SLACK_S = 3.0
IDLE_CLIENTS = """
import resource, socket, sys
port, wanted = int(sys.argv[1]), int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(wanted)]
half = b"POST /v1/acquire HTTP/1.1\\r\\nhost: x\\r\\n"
print("open", flush=True)
sys.stdin.readline()
for s in sockets[: wanted // 10]:
    s.send(half)
print("half", flush=True)
sys.stdin.readline()
"""
"""Opens idle connections from a process of its own; on a line of input a tenth of them begin a request."""


async def until(condition: Callable[[], Any], within_s: float = 10.0) -> None:
    """Wait until an awaitable condition holds."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 -- the condition is another process's
            await asyncio.sleep(0.02)


HALVES = {
    "method": b"PO",
    "request line": b"POST /v1/acq",
    "some headers": b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-",
    "no blank line": b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n",
    "no body": b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n",
    "half a body": b'POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{"key"',
    "half a chunk": b'POST /v1/acquire HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{"key',
    "no last chunk": b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES.keys())
async def test_half_a_request_and_silence_is_closed(node: RunningNode, small: int, half: bytes) -> None:
    before = await settled_index(node)
    async with await Wire.open(small) as wire:
        began = time.monotonic()
        wire.send(half)
        assert await wire.closed(within_s=READ_TIMEOUT_MS / 1000 + SWEEP_S + SLACK_S) == b""
        assert time.monotonic() - began >= READ_TIMEOUT_MS / 1000
    assert node.last_index() == before
    assert (await ask(small, "GET", "/livez")).status == 200


async def test_half_a_request_behind_a_whole_one_is_closed_as_soon(small: int) -> None:
    async with await Wire.open(small) as wire:
        assert (await wire.ask("GET", "/livez")).status == 200
        began = time.monotonic()
        wire.send(b"GET /livez HTTP/1.1\r\nho")
        assert await wire.closed(within_s=IDLE_TIMEOUT_MS / 1000 + SWEEP_S + SLACK_S) == b""
        assert time.monotonic() - began >= READ_TIMEOUT_MS / 1000


async def test_dripping_bytes_buy_no_time(small: int) -> None:
    async with await Wire.open(small) as wire:
        began = time.monotonic()

        async def drip() -> None:
            for byte in request_bytes("GET", "/livez", b"", {"x": "y" * 10_000}):
                wire.send(bytes([byte]))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert await wire.closed(within_s=READ_TIMEOUT_MS / 1000 + SWEEP_S + SLACK_S) == b""
        dripping.cancel()
        assert time.monotonic() - began >= READ_TIMEOUT_MS / 1000


@pytest.mark.parametrize("requests", [0, 1], ids=["silent from the start", "after a request"])
async def test_an_idle_connection_is_closed(small: int, requests: int) -> None:
    async with await Wire.open(small) as wire:
        for _ in range(requests):
            assert (await wire.ask("GET", "/livez")).status == 200
        began = time.monotonic()
        assert await wire.closed(within_s=IDLE_TIMEOUT_MS / 1000 + SWEEP_S + SLACK_S) == b""
        assert time.monotonic() - began >= IDLE_TIMEOUT_MS / 1000 - 0.1


async def test_a_connection_in_use_is_kept_beyond_both_timeouts(small: int) -> None:
    async with await Wire.open(small) as wire:
        end = time.monotonic() + (READ_TIMEOUT_MS + IDLE_TIMEOUT_MS) / 1000 + SWEEP_S
        while time.monotonic() < end:
            head, body = (
                b"POST /v1/release HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n",
                b'{"lease_id": "l"}',
            )
            wire.send(head)  # head and body apart, as many clients send them
            await asyncio.sleep(0.2)
            wire.send(body)
            assert (await wire.answer()).code == "lost"
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("target", ["/nowhere", "/v1/acquire", "/v1/leases/%zz", "/livez"])
async def test_an_answered_request_leaves_its_connection_idle(node: RunningNode, target: str) -> None:
    port = node.serve_also(HttpLimits(read_timeout_ms=200, idle_timeout_ms=60_000))
    async with await Wire.open(port) as wire:
        await wire.ask("GET", target)
        with pytest.raises(TimeoutError):
            await wire.closed(within_s=0.2 + SWEEP_S + 0.5)
    async with await Wire.open(port) as wire:
        await wire.ask("GET", target)
        assert (await wire.ask("GET", "/livez")).status == 200


async def test_a_client_that_does_not_read_is_cut_off(small: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", small, limit=1_024)
    asked = 0

    async def ask_on() -> None:
        nonlocal asked
        while True:  # far more answers than the kernel holds, and none of them read
            writer.write(request_bytes("GET", "/openapi.json", b"", {}) * 20)
            asked += 20
            await writer.drain()
            await asyncio.sleep(0.005)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask_on(), timeout=30)
    assert asked > 20
    assert not reader.at_eof()
    writer.close()
    assert (await ask(small, "GET", "/livez")).status == 200


async def test_a_newcomer_takes_the_place_of_the_longest_idle(small: int) -> None:
    idle = [await Wire.open(small) for _ in range(CONNECTIONS_MAX)]
    try:
        for wire in idle[1:]:  # the first has not asked for anything for longest
            assert (await wire.ask("GET", "/livez")).status == 200
        async with await Wire.open(small) as newcomer:
            assert (await newcomer.ask("GET", "/livez")).status == 200
            assert await idle[0].closed(within_s=5) == b""
            assert (await idle[-1].ask("GET", "/livez")).status == 200
    finally:
        for wire in idle:
            await wire.close()


@pytest.fixture
async def held_key(node: RunningNode) -> AsyncIterator[str]:
    """A key that somebody holds."""
    key = f"held/{time.monotonic_ns()}"
    body = {"key": key, "owner": "holder", "ttl_ms": 60_000}
    lease = (await ask(node.port, "POST", "/v1/acquire", body)).json["lease"]
    yield key
    await ask(node.port, "POST", "/v1/release", {"lease_id": lease["lease_id"]})


def poll(key: str, request_id: str, wait_ms: int = 20_000) -> bytes:
    body = b'{"key": "%b", "owner": "waiter", "ttl_ms": 60000, "wait_ms": %d, "request_id": "%b"}'
    return request_bytes("POST", "/v1/acquire", body % (key.encode(), wait_ms, request_id.encode()), {})


async def waiters(node: RunningNode, key: str) -> int:
    return int((await ask(node.port, "GET", f"/v1/queues/{key}")).json["waiters_total"])


async def test_when_all_connections_are_busy_one_more_is_served_what_is_short(
    node: RunningNode, small: int, held_key: str
) -> None:
    """Those who wait may fill a node for minutes; the probes that ask whether it lives come on connections of
    their own, and whoever holds a lease has to renew it."""
    busy = [await Wire.open(small) for _ in range(CONNECTIONS_MAX)]
    try:
        for number, wire in enumerate(busy):
            wire.send(poll(held_key, f"busy-{number}"))

        async def all_wait() -> bool:
            return await waiters(node, held_key) == CONNECTIONS_MAX

        await until(all_wait)
        for path in ("/livez", "/readyz") * 3:
            async with await Wire.open(small) as probe:
                told = await probe.ask("GET", path)
                assert (told.status, told.headers["connection"]) == (200, "close"), path
        async with await Wire.open(small) as refused:
            refused.send(poll(held_key, "one-more"))
            assert await refused.closed(within_s=5) == b""
        assert await waiters(node, held_key) == CONNECTIONS_MAX
        silent = [await Wire.open(small) for _ in range(2 * SPARE_CONNECTIONS)]
        try:
            assert await silent[0].closed(within_s=5) == b"", "beyond the most there are only a few"
            async with await Wire.open(small) as probe:
                assert (await probe.ask("GET", "/livez")).status == 200
        finally:
            for wire in silent:
                wire.abort()
        busy.pop().abort()

        async def kept() -> bool:
            async with await Wire.open(small) as wire:
                return "connection" not in (await wire.ask("GET", "/livez")).headers

        await until(kept)
    finally:
        for wire in busy:
            wire.abort()


@pytest.mark.parametrize("abruptly", [True, False])
async def test_a_waiter_whose_connection_closes_leaves_the_queue(
    node: RunningNode, held_key: str, abruptly: bool
) -> None:
    wire = await Wire.open(node.port)
    wire.send(poll(held_key, f"leaves-{abruptly}"))

    async def queued() -> bool:
        return await waiters(node, held_key) == 1

    async def gone() -> bool:
        return await waiters(node, held_key) == 0

    await until(queued)
    if abruptly:
        wire.abort()
    else:
        await wire.close()
    await until(gone, within_s=5)


async def test_an_acquire_whose_answer_is_lost_stands_and_is_found_again(node: RunningNode) -> None:
    body = {"key": "lost-answer", "owner": "o", "ttl_ms": 60_000, "request_id": "lost-answer"}

    async def held() -> bool:
        return (await ask(node.port, "GET", "/v1/leases/lost-answer")).status == 200

    wire = await Wire.open(node.port)
    wire.send(request_bytes("POST", "/v1/acquire", str(body).replace("'", '"').encode(), {}))
    wire.abort()
    await until(held)
    reply = (await ask(node.port, "POST", "/v1/acquire", body)).json
    assert reply["replayed"] is True
    assert reply["lease"]["token"] == (await ask(node.port, "GET", "/v1/leases/lost-answer")).json["token"]
    await ask(node.port, "POST", "/v1/release", {"lease_id": reply["lease"]["lease_id"]})


async def test_pipelined_requests_are_answered_in_order(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        many = 200  # more than are buffered at once
        wire.send(
            b"".join(request_bytes("GET", "/livez", b"", {"x_request_id": f"p-{n}"}) for n in range(many))
        )
        for number in range(many):
            reply = await wire.answer()
            assert (reply.status, reply.headers["x-request-id"]) == (200, f"p-{number}")


async def test_100_continue(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        wire.send(
            b"POST /v1/release HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"content-type: application/json\r\ncontent-length: 17\r\n\r\n"
        )
        assert (await wire.answer()).status == 100
        wire.send(b'{"lease_id": "l"}')
        assert (await wire.answer()).code == "lost"


async def test_connection_close_and_http_1_0(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        reply = await wire.ask("GET", "/livez", connection="close")
        assert reply.headers["connection"] == "close"
        assert await wire.closed(within_s=5) == b""
    async with await Wire.open(node.port) as wire:
        wire.send(b"GET /livez HTTP/1.0\r\n\r\n")
        assert (await wire.answer()).headers["connection"] == "close"
        assert await wire.closed(within_s=5) == b""
    async with await Wire.open(node.port) as wire:
        for _ in range(2):
            wire.send(b"GET /livez HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
            assert (await wire.answer()).headers["connection"] == "keep-alive"


async def test_an_upgrade_that_nobody_offers_is_an_ordinary_request(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        reply = await wire.ask("GET", "/livez", connection="Upgrade", upgrade="websocket")
        assert reply.status == 200
        assert (
            await wire.ask("GET", "/v1/streams", connection="Upgrade", upgrade="websocket")
        ).code == "no_route"
        assert (await wire.ask("GET", "/livez")).status == 200


@pytest.mark.slow
async def test_ten_thousand_idle_connections_do_not_hurt(node: RunningNode) -> None:
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    idle = 10_000 if files_max == resource.RLIM_INFINITY else min(10_000, files_max - 600)
    assert idle >= 1_000, f"this machine allows {files_max} open files: too few to show anything"
    before = await settled_index(node)
    clients = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        IDLE_CLIENTS,
        str(node.port),
        str(idle),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert clients.stdin is not None
    assert clients.stdout is not None
    try:
        assert await clients.stdout.readline() == b"open\n"
        await assert_serves_quickly(node)
        clients.stdin.write(b"\n")
        assert await clients.stdout.readline() == b"half\n"
        await assert_serves_quickly(node)
        assert node.last_index() == before
    finally:
        clients.kill()
        await clients.communicate()
    await assert_serves_quickly(node)


async def settled_index(node: RunningNode) -> int:
    """The end of the log once what earlier tests left behind, such as places of callers who have gone, is
    cleared.
    """
    index = -1
    for _ in range(20):
        if index == node.last_index():
            return index
        index = node.last_index()
        await asyncio.sleep(LEAVE_AFTER_S + 0.5)
    raise TimeoutError(f"the log still grows, it is at {index}")


async def assert_serves_quickly(node: RunningNode) -> None:
    """A hundred calls on new connections: the median as quick as ever, none long enough to fail a client."""
    took_s = []
    for _ in range(100):
        began = time.monotonic()
        assert (await ask(node.port, "GET", "/v1/leases/nobody")).code == "not_held"
        took_s.append(time.monotonic() - began)
    assert sorted(took_s)[50] < 0.1
    assert max(took_s) < 3.0


async def test_stopping_answers_what_is_in_flight(start_node: Callable[..., RunningNode]) -> None:
    node = start_node()
    body = {"key": "k", "owner": "holder", "ttl_ms": 60_000}
    assert (await ask(node.port, "POST", "/v1/acquire", body)).status == 200
    async with await Wire.open(node.port) as waiting, await Wire.open(node.port) as idle:
        assert (await idle.ask("GET", "/livez")).status == 200
        waiting.send(poll("k", "in-flight"))

        async def queued() -> bool:
            return await waiters(node, "k") == 1

        await until(queued)
        node.begin_stop()
        reply = await waiting.answer()
        assert reply.status in (202, 503)
        assert await waiting.closed(within_s=10) == b""
        assert await idle.closed(within_s=10) == b""
    await asyncio.to_thread(node.stop)
    with pytest.raises(ConnectionError):
        await Wire.open(node.port)
