"""GET /v1/events: what stands on the wire, where it begins, how it ends."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from api_node import WRITE_TIMEOUT_MS, RunningNode
from api_sse import Listener
from api_wire import Wire, ask

from tenure_cluster.api import openapi


async def acquire(port: int, key: str, **fields: Any) -> dict[str, Any]:
    reply = await ask(port, "POST", "/v1/acquire", {"key": key, "owner": "o", "ttl_ms": 20_000, **fields})
    assert reply.status == 200, reply
    lease: dict[str, Any] = reply.json["lease"]
    return lease


async def release(port: int, lease: dict[str, Any]) -> None:
    assert (await ask(port, "POST", "/v1/release", {"lease_id": lease["lease_id"]})).status == 200


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 -- the condition is another thread's
            await asyncio.sleep(0.01)


async def present(port: int) -> int:
    """The revision of the present state."""
    return int((await ask(port, "GET", "/v1/leases?limit=1")).json["revision"])


async def test_events_come_with_their_revision_kind_and_body(node: RunningNode) -> None:
    begun = await present(node.port)
    async with await Listener.open(node.port, "/v1/events?prefix=form/") as listener:
        assert listener.status == 200
        assert listener.headers["content-type"] == "text/event-stream"
        assert listener.headers["cache-control"] == "no-store"
        assert listener.headers["x-tenure-leader"] == node.url
        bookmark = await listener.next()
        assert bookmark is not None
        assert (bookmark.kind, bookmark.id) == ("bookmark", begun)
        lease = await acquire(node.port, "form/ü\n".strip())
        await acquire(node.port, "elsewhere")
        await release(node.port, lease)
        granted, released = await listener.events(2)
    assert (granted.kind, released.kind) == ("granted", "released")
    assert begun < granted.data["revision"] == granted.id
    assert granted.data | {"at": "", "cluster_time_ms": 0} == {
        "revision": granted.id,
        "kind": "granted",
        "key": "form/ü",
        "owner": "o",
        "token": lease["token"],
        "mode": "exclusive",
        "slot": 0,
        "detail": "",
        "at": "",
        "cluster_time_ms": 0,
    }
    schema = openapi.build("1")["components"]
    validator = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/EventBody", "components": schema}
    )
    for told in (granted, released):
        validator.validate(told.data)


async def test_a_watch_goes_on_after_the_revision_that_it_names(node: RunningNode) -> None:
    begun = await present(node.port)
    for _ in range(3):
        await release(node.port, await acquire(node.port, "resume/a"))
    async with await Listener.open(node.port, f"/v1/events?prefix=resume/&from={begun}") as listener:
        everything = await listener.events(6)
    ids = [told.id for told in everything]
    assert ids == sorted(set(ids))  # type: ignore[type-var]
    async with await Listener.open(node.port, f"/v1/events?prefix=resume/&from={ids[3]}") as listener:
        assert await listener.events(2) == everything[4:]
        caught_up = asyncio.ensure_future(listener.next())
        await acquire(node.port, "resume/b")
        assert (await listener_event(caught_up, listener)).data["key"] == "resume/b"


async def listener_event(first: "asyncio.Future[Any]", listener: Listener) -> Any:
    told = await first
    return told if told is not None and "key" in told.data else (await listener.events(1))[0]


async def test_the_header_of_an_event_source_that_reconnects_counts_for_more_than_the_query(
    node: RunningNode,
) -> None:
    begun = await present(node.port)
    for _ in range(2):
        await release(node.port, await acquire(node.port, "header/a"))
    target = f"/v1/events?prefix=header/&from={begun}"
    async with await Listener.open(node.port, target) as listener:
        everything = await listener.events(4)
    async with await Listener.open(node.port, target, last_event_id=str(everything[1].id)) as listener:
        assert await listener.events(2) == everything[2:]


@pytest.mark.parametrize(
    ("target", "headers", "status", "code"),
    [
        ("/v1/events?from=-1", {}, 422, "out_of_range"),
        ("/v1/events?from=x", {}, 400, "invalid"),
        ("/v1/events?after=1", {}, 400, "invalid"),
        ("/v1/events?prefix=%ff", {}, 400, "invalid"),
        ("/v1/events?prefix=" + "k" * 513, {}, 422, "out_of_range"),
        ("/v1/events", {"last_event_id": "seven"}, 400, "invalid"),
        ("/v1/events", {"last_event_id": "-1"}, 400, "invalid"),
        ("/v1/events", {"last_event_id": "1" * 30}, 400, "invalid"),
    ],
)
async def test_what_cannot_be_watched_is_refused(
    node: RunningNode, target: str, headers: dict[str, str], status: int, code: str
) -> None:
    reply = await ask(node.port, "GET", target, **headers)
    assert (reply.status, reply.code) == (status, code)


async def test_a_head_request_says_what_would_come(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        reply = await wire.ask("HEAD", "/v1/events")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        assert (await wire.ask("GET", "/livez")).status == 200


async def test_a_client_of_http_1_0_gets_the_stream_without_chunks(node: RunningNode) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"GET /v1/events?prefix=old/ HTTP/1.0\r\nhost: x\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert await reader.readuntil(b"\n\n") == b"retry: 1000\n\n"
    await acquire(node.port, "old/1")
    assert b"old/1" in await asyncio.wait_for(reader.readuntil(b'"key":"old/1"'), 10)
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_listener_that_leaves_is_forgotten(node: RunningNode) -> None:
    watches = node.node.service.watches
    await until(lambda: len(watches) == 0)
    listeners = [await Listener.open(node.port) for _ in range(5)]
    for listener in listeners:
        assert await listener.next() is not None
    assert len(watches) == 5
    for listener in listeners:
        await listener.leave()
    await until(lambda: len(watches) == 0)


async def test_a_quiet_stream_shows_signs_of_life(
    start_node: Callable[..., RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_cluster.service.watch.BEAT_S", 0.1)
    async with await Listener.open(start_node().port) as listener:
        assert await listener.comment() == "alive"


async def flood(port: int, key: str, rounds: int) -> None:
    """Events with long bodies: 1,000 a round."""
    owner = "o" * 200
    async with await Wire.open(port) as wire:
        for number in range(rounds):
            ops = [
                {"op": "acquire", "key": f"{key}/{number}/{i}", "owner": owner, "ttl_ms": 600_000}
                for i in range(500)
            ]
            reply = await wire.ask("POST", "/v1/batch", json.dumps({"ops": ops}).encode())
            leases = [result["lease"]["lease_id"] for result in reply.json["results"]]
            ops = [{"op": "release", "lease_id": lease_id} for lease_id in leases]
            assert (await wire.ask("POST", "/v1/batch", json.dumps({"ops": ops}).encode())).status == 200


async def test_a_listener_that_reads_nothing_harms_nobody_and_is_cut_off(
    node: RunningNode, small: int
) -> None:
    """Its connection is closed when it has taken nothing for the write time-out; others go on undisturbed."""
    watches = node.node.service.watches
    deaf = await Listener.open(small, "/v1/events?prefix=deaf/&from=0")
    async with await Listener.open(small, "/v1/events?prefix=deaf/") as other, deaf:
        watching = len(watches)
        listening = asyncio.create_task(other.events(30_000))
        await flood(small, "deaf", 30)
        everything = await listening
        ids = [told.id for told in everything]
        assert ids == sorted(set(ids))  # type: ignore[type-var]
        await until(lambda: len(watches) < watching, WRITE_TIMEOUT_MS / 1000 + 20)


async def test_a_slow_listener_is_told_of_the_gap_and_can_go_on(
    start_node: Callable[..., RunningNode],
) -> None:
    """The history of the node is small: what a listener has not read within 1,000 events it will not get."""
    node = start_node(watch={"history_events": 1_000})
    async with await Listener.open(node.port, "/v1/events?from=0") as slow:
        await flood(node.port, "slow", 30)
        told = await slow.rest()
    assert slow.complete
    gap = told[-1]
    assert gap.kind == "gap"
    before = [event for event in told if "key" in event.data]
    assert [event.id for event in before] == list(range(1, len(before) + 1))
    assert gap.data == {"kind": "gap", "revision": gap.id, "last": len(before)}
    reply = await ask(node.port, "GET", f"/v1/events?from={len(before)}")
    assert (reply.status, reply.code) == (410, "compacted")
    assert reply.json["revision"] > len(before)
    async with await Listener.open(node.port, f"/v1/events?from={reply.json['revision']}") as again:
        [first] = await again.events(1)
        assert first.id == reply.json["revision"] + 1


async def test_a_node_that_is_behind_sends_nobody_back(
    start_node: Callable[..., RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An EventSource connects again with the id that it has. A lesser one would have it told again, by a node
    that is not behind, what it was told already."""
    monkeypatch.setattr("tenure_cluster.service.watch.BEAT_S", 0.1)
    monkeypatch.setattr("tenure_cluster.service.watch.AHEAD_S", 0.2)
    port = start_node().port
    await acquire(port, "k")
    head = await present(port)
    async with await Listener.open(port, f"/v1/events?from={head + 50}") as ahead:
        told = await ahead.rest()
    assert told[-1].data == {"kind": "gap", "revision": head, "last": head + 50}
    assert [notice.id for notice in told] == [None] * len(told)


async def test_a_node_that_stops_tells_its_listeners_and_ends_their_streams(
    start_node: Callable[..., RunningNode],
) -> None:
    node = start_node()
    async with await Listener.open(node.port, "/v1/events?from=0") as listener:
        await acquire(node.port, "k")
        await listener.events(1)
        stopping = threading.Thread(target=node.stop)
        stopping.start()
        told = await listener.rest()
        await asyncio.to_thread(stopping.join)
    assert listener.complete
    assert (told[-1].kind, told[-1].data["revision"]) == ("shutting_down", 1)
