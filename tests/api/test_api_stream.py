"""GET /v1/stream: operations in frames, answers as they come, watches, and what ends a connection."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from api_node import WRITE_TIMEOUT_MS, RunningNode
from api_sse import Listener
from api_stream import RawStream, stream
from api_wire import Wire, ask

from tenure_cluster.api import stream_frames
from tenure_cluster.api.limits import OPS_PER_BATCH_MAX, STREAM_WAITS_MAX, STREAM_WATCHES_MAX
from tenure_cluster.service import requests
from tenure_cluster.service.frames import Frame


def acquire(key: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "acquire", {"key": key, "owner": "o", "ttl_ms": 20_000, **fields}


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 -- the condition is another thread's
            await asyncio.sleep(0.01)


async def test_answers_are_those_of_the_same_calls_over_http(node: RunningNode) -> None:
    async with stream(node.port) as client:
        status, granted = (await client.ask_all(acquire("same/a", request_id="same-1")))[0]
        over_http = await ask(
            node.port,
            "POST",
            "/v1/acquire",
            {"key": "same/a", "owner": "o", "ttl_ms": 20_000, "request_id": "same-1"},
        )
        again = over_http.json["lease"] | {"expires_in_ms": 0}
        assert (status, granted["lease"] | {"expires_in_ms": 0}) == (200, again)
        status, held = (await client.ask_all(acquire("same/a")))[0]
        over_http = await ask(
            node.port, "POST", "/v1/acquire", {"key": "same/a", "owner": "o", "ttl_ms": 20_000}
        )
        assert status == held["status"] == over_http.status == 409
        assert (held["code"], held.keys()) == ("held", over_http.json.keys())
        status, lease = await client.ask("get_lease", key="same/a")
        assert (status, lease["token"]) == (200, granted["lease"]["token"])
        assert await client.ask("release", lease_id=granted["lease"]["lease_id"]) == (
            200,
            {"status": "released"},
        )
        assert (await client.ask("get_lease", key="same/a"))[0] == 404


async def test_every_operation_of_the_service_can_be_asked(node: RunningNode) -> None:
    async with stream(node.port) as client:
        answers = await client.ask_all(*((operation, {}) for operation in requests.OPERATIONS))
    for operation, (status, body) in zip(requests.OPERATIONS, answers, strict=True):
        if operation == "list_leases":
            assert (status, type(body["leases"])) == (200, list)
        else:
            assert (status, body["code"]) == (400, "invalid"), operation


async def test_the_changes_of_one_frame_share_a_log_entry(node: RunningNode) -> None:
    async with stream(node.port) as client:
        before = node.last_index()
        answers = await client.ask_all(*(acquire(f"entry/{number}") for number in range(300)))
        assert {status for status, _ in answers} == {200}
        tokens = [body["lease"]["token"] for _, body in answers]
        assert tokens == list(range(tokens[0], tokens[0] + 300))
        assert node.last_index() - before <= 2  # a tick may come between


async def test_answers_that_come_together_come_in_one_frame(node: RunningNode) -> None:
    async with stream(node.port) as client:
        await client.ask_all(*(acquire(f"together/{number}") for number in range(100)))
        assert [len(frame) for frame in client.frames] == [100]


async def test_nothing_of_an_answered_frame_is_left_to_the_garbage_collector(node: RunningNode) -> None:
    async with stream(node.port) as client:
        await client.ask_all(acquire("garbage/0"))
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                await client.ask_all(acquire(f"garbage/{number}"), ("get_lease", {"key": "garbage/0"}))
            left = [frame for frame in gc.get_objects() if type(frame) is Frame]
        finally:
            gc.enable()
        assert len(left) <= 1  # the last one, whose turn may not be over


async def test_an_answer_does_not_wait_for_those_asked_before(node: RunningNode) -> None:
    async with stream(node.port) as client:
        _, holder = (await client.ask_all(acquire("order/a")))[0]
        [waiting] = await client.send(acquire("order/a", wait_ms=20_000, request_id="order-1"))
        assert (await client.ask_all(acquire("order/b")))[0][0] == 200
        assert waiting not in client.answers
        await client.ask("release", lease_id=holder["lease"]["lease_id"])
        status, granted = await client.answer(waiting)
        assert (status, granted["lease"]["key"]) == (200, "order/a")


async def test_one_bad_operation_harms_none_of_its_frame(node: RunningNode) -> None:
    async with stream(node.port) as client:
        good, unknown, mistyped, surplus, range_, also_good = await client.ask_all(
            acquire("mixed/a"),
            ("seize", {}),
            ("renew", {"lease_id": 7}),
            ("release", {"lease_id": "x", "force": True}),
            acquire("mixed/b", ttl_ms=1),
            acquire("mixed/c"),
        )
    assert (good[0], also_good[0]) == (200, 200)
    assert (unknown[0], unknown[1]["path"]) == (400, "$.op")
    assert (mistyped[0], mistyped[1]["path"]) == (400, "$.lease_id")
    assert (surplus[0], surplus[1]["path"]) == (400, "$.force")
    assert (range_[0], range_[1]["code"], range_[1]["path"]) == (422, "out_of_range", "$.ttl_ms")


BROKEN = {
    "no MessagePack": (b"\xc1", 1007, "invalid"),
    "empty": (b"", 1007, "invalid"),
    "no array": (msgspec.msgpack.encode({"id": 1}), 1007, "invalid"),
    "a triple that is none": (msgspec.msgpack.encode([[1, "renew"]]), 1007, "invalid"),
    "one triple bare": (msgspec.msgpack.encode([1, "renew", {}]), 1007, "invalid"),
    "id 0": (msgspec.msgpack.encode([[0, "renew", {}]]), 1007, "invalid"),
    "negative id": (msgspec.msgpack.encode([[-1, "renew", {}]]), 1007, "invalid"),
    "id beyond 2**53": (msgspec.msgpack.encode([[2**53, "renew", {}]]), 1007, "invalid"),
    "trailing bytes": (msgspec.msgpack.encode([]) + b"\x00", 1007, "invalid"),
    "deep": (b"\x91" * 100_000, 1007, "invalid"),
    "too many": (
        msgspec.msgpack.encode([[n + 1, "renew", {}] for n in range(OPS_PER_BATCH_MAX + 1)]),
        1008,
        "out_of_range",
    ),
}


@pytest.mark.parametrize(("payload", "close_code", "code"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_frame_that_cannot_be_taken_is_answered_and_closes(
    node: RunningNode, payload: bytes, close_code: int, code: str
) -> None:
    async with stream(node.port) as client:
        await client.send(acquire("before/broken"))
        await client.socket.send_bytes(payload)
        closed, reason = await client.closed()
    assert closed == close_code
    [(status, problem)] = client.strays
    assert (status, problem["code"]) == (problem["status"], code)
    assert problem["detail"].startswith(reason[:50])
    assert (await ask(node.port, "GET", "/livez")).status == 200


async def test_a_text_message_is_answered_and_closes(node: RunningNode) -> None:
    async with stream(node.port) as client:
        await client.socket.send_str('[[1,"renew",{}]]')
        assert (await client.closed())[0] == 1003
        assert client.strays[0][1]["code"] == "unsupported_media_type"


async def test_a_frame_beyond_the_bound_closes(start_node: Callable[..., RunningNode]) -> None:
    node = start_node(body_bytes_max=2_048, stream_frame_bytes_max=4_096)
    async with stream(node.port) as client:
        assert (await client.ask("get_lease", key="k" * 500))[0] == 404
        await client.socket.send_bytes(bytes(8_192))
        assert (await client.closed())[0] == 1009


async def test_a_ping_is_answered(node: RunningNode) -> None:
    raw = await RawStream.open(node.port)
    raw.send(b"are you there?", opcode=9)
    assert await raw.reader.readexactly(16) == b"\x8a\x0eare you there?"
    await raw.leave()


async def test_a_request_that_is_no_handshake_is_told_what_is_served(node: RunningNode) -> None:
    reply = await ask(node.port, "GET", "/v1/stream")
    assert (reply.status, reply.code, reply.headers["upgrade"]) == (400, "invalid", "websocket")
    reply = await ask(node.port, "GET", "/v1/stream?x=1")
    assert (reply.status, reply.code) == (400, "invalid")
    async with await Wire.open(node.port) as wire:
        assert (await wire.ask("HEAD", "/v1/stream")).status == 400


async def test_a_page_of_another_origin_cannot_open_a_stream(node: RunningNode) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with stream(node.port, Origin="https://elsewhere.example"):
            pass
    assert refused.value.status == 403
    async with stream(node.port, Origin=f"http://127.0.0.1:{node.port}") as client:
        assert (await client.ask("get_lease", key="origin"))[0] == 404


async def test_a_watch_is_told_what_happens_with_its_id(node: RunningNode) -> None:
    async with stream(node.port) as client:
        _, listed = await client.ask("list_leases")
        [first, second] = await client.send(
            ("watch", {"prefix": "watched/", "from": listed["revision"]}), ("watch", {"prefix": "watched/b"})
        )
        assert await client.answer(first) == (200, {"watch": first, "status": "watching"})
        answers = await client.ask_all(acquire("watched/a"), acquire("watched/b"), acquire("unwatched"))
        assert {status for status, _ in answers} == {200}
        events = await client.events(first, 2)
        assert [(event["kind"], event["key"]) for event in events] == [
            ("granted", "watched/a"),
            ("granted", "watched/b"),
        ]
        assert await client.events(second, 1) == events[1:]
        assert (await client.ask("unwatch", watch=first))[0] == 200
        await client.ask("release", lease_id=answers[1][1]["lease"]["lease_id"])
        await client.events(second, 2)
        assert len([body for body in client.told[first] if "key" in body]) == 2
        assert (await client.ask("unwatch", watch=first))[0] == 400


async def test_events_are_the_same_as_over_server_sent_events(node: RunningNode) -> None:
    async with stream(node.port) as client:
        _, listed = await client.ask("list_leases")
        await client.ask_all(*(acquire(f"both/{number}") for number in range(20)))
        [watch] = await client.send(("watch", {"prefix": "both/", "from": listed["revision"]}))
        told = await client.events(watch, 20)
    target = f"/v1/events?prefix=both/&from={listed['revision']}"
    async with await Listener.open(node.port, target) as listener:
        assert [event.data for event in await listener.events(20)] == told


async def test_watches_have_bounds_and_ids_of_their_own(node: RunningNode) -> None:
    async with stream(node.port) as client:
        answers = await client.ask_all(*(("watch", {}) for _ in range(STREAM_WATCHES_MAX + 1)))
        assert [status for status, _ in answers] == [200] * STREAM_WATCHES_MAX + [429]
        assert answers[-1][1]["retry_after_s"] == 1.0
        await client.socket.send_bytes(msgspec.msgpack.encode([[1, "watch", {}]]))
        del client.answers[1]
        assert (await client.answer(1))[1]["path"] == "$.id"
        await client.ask("unwatch", watch=1)
        assert (await client.ask("watch", **{"from": -1}))[0] == 422
    await until(lambda: len(node.node.service.watches) == 0)


async def test_a_stream_that_ends_gives_up_what_waits_on_it(node: RunningNode) -> None:
    """As a connection of HTTP does: an acquire that waits leaves the queue when its stream is gone."""
    async with stream(node.port) as holder:
        await holder.ask_all(acquire("gone/a"))
        async with stream(node.port) as client:
            await client.send(*(acquire("gone/a", wait_ms=20_000) for _ in range(3)))
            await until(lambda: len(node.node.replica.table.queue("default", "gone/a")) == 3)
        await until(lambda: len(node.node.replica.table.queue("default", "gone/a")) == 0)


async def test_more_waiting_acquires_than_a_stream_may_have_are_refused(node: RunningNode) -> None:
    async with stream(node.port) as client:
        await client.ask_all(acquire("crowd/a"))
        for _ in range(STREAM_WAITS_MAX // 250):
            await client.send(*(acquire("crowd/a", wait_ms=25_000) for _ in range(250)))
        status, problem = (await client.ask_all(acquire("crowd/a", wait_ms=25_000)))[0]
        assert (status, problem["code"]) == (429, "overloaded")
        assert (await client.ask_all(acquire("crowd/b")))[0][0] == 200


async def test_a_client_that_takes_no_answers_is_read_no_further_and_is_cut_off(
    node: RunningNode, small: int
) -> None:
    """What it has asked costs the node a bounded amount; everybody else goes on."""
    [front] = node._fronts
    raw = await RawStream.open(small)
    await until(lambda: front.connections == 1)
    frame = msgspec.msgpack.encode([[n + 1, "get_lease", {"key": "k" * 500}] for n in range(500)])
    stuck = False
    for _ in range(2_000):
        raw.send(frame)
        try:
            await asyncio.wait_for(raw.writer.drain(), 0.2)
        except TimeoutError:
            stuck = True
            break
        except ConnectionError:
            break
    assert stuck, "the node took everything"
    async with stream(node.port) as client:
        assert (await client.ask_all(acquire("others/go/on")))[0][0] == 200
    await until(lambda: front.connections == 0, WRITE_TIMEOUT_MS / 1000 + 20)
    await raw.leave()


async def test_a_node_that_stops_answers_and_sends_its_streams_elsewhere(
    start_node: Callable[..., RunningNode],
) -> None:
    node = start_node()
    async with stream(node.port) as client:
        [watch] = await client.send(("watch", {"from": 0}))
        [(status, _)] = await client.ask_all(acquire("stop/a"))
        assert status == 200
        [waiting] = await client.send(acquire("stop/a", wait_ms=20_000, request_id="stop-1"))
        await until(lambda: len(node.node.replica.table.queue("default", "stop/a")) == 1)
        stopping = threading.Thread(target=node.stop)
        stopping.start()
        code, reason = await client.closed()
        await asyncio.to_thread(stopping.join)
    assert (code, reason) == (1001, "the node stops")
    assert waiting in client.answers
    assert [body["kind"] for _, body in client.strays if body["watch"] == watch][-1] == "shutting_down"


def test_what_is_watched_is_encoded_as_any_encoder_would() -> None:
    bodies = [{"kind": "bookmark", "revision": 2**40}, {"a": "x" * 300, "b": [1, 2]}]
    for watch in (1, 200, 2**53 - 1):
        for body in bodies:
            encoded = msgspec.msgpack.encode(body)
            frame = stream_frames.encode_watched(watch, encoded[0], [encoded[1:]] * 3)
            assert msgspec.msgpack.decode(frame) == [[0, 200, {"watch": watch, **body}]] * 3


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
def test_a_message_of_any_size_has_the_head_that_the_protocol_wants(size: int) -> None:
    message = stream_frames.binary_message(bytes(size))
    head = len(message) - size
    assert (message[0], head) == (0x82, 2 if size < 126 else 4 if size < 65_536 else 10)
    assert int.from_bytes(message[2:head], "big") == size if head > 2 else message[1] == size
