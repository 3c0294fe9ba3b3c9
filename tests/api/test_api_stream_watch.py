"""Watches over the stream where they begin, fall behind, end and go on; see also test_api_events.py."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from api_node import RunningNode
from api_sse import Listener
from api_stream import StreamClient, stream
from api_wire import Wire

ROUNDS = 30
PER_ROUND = 1_000


async def flood(port: int, key: str, rounds: int) -> None:
    """Events with long bodies, PER_ROUND a round."""
    async with await Wire.open(port) as wire:
        for number in range(rounds):
            ops: list[dict[str, Any]] = [
                {"op": "acquire", "key": f"{key}/{number}/{i}", "owner": "o" * 200, "ttl_ms": 600_000}
                for i in range(PER_ROUND // 2)
            ]
            reply = await wire.ask("POST", "/v1/batch", json.dumps({"ops": ops}).encode())
            ops = [
                {"op": "release", "lease_id": result["lease"]["lease_id"]} for result in reply.json["results"]
            ]
            assert (await wire.ask("POST", "/v1/batch", json.dumps({"ops": ops}).encode())).status == 200


async def notice(client: StreamClient, watch: int, kind: str) -> dict[str, Any]:
    """The first notice of a kind that a watch is told."""
    while not (found := [body for body in client.told.get(watch, []) if body["kind"] == kind]):
        assert await client.receive(), client.socket.close_code
    return found[0]


async def watching(client: StreamClient, **body: Any) -> int:
    [watch] = await client.send(("watch", body))
    status, answer = await client.answer(watch)
    assert status == 200, answer
    return watch


async def test_a_watch_that_is_too_slow_is_told_of_the_gap_and_ends_alone(
    start_node: Callable[..., RunningNode],
) -> None:
    """The stream goes on, for operations and for other watches; below the horizon the answer is 410 with the
    revision from which a watch can go on."""
    node = start_node(watch={"history_events": 1_000})
    async with stream(node.port) as client:
        slow = await watching(client, **{"from": 0})
        await flood(node.port, "slow", ROUNDS)  # nothing is read from the stream meanwhile
        gap = await notice(client, slow, "gap")
        told = [body["revision"] for body in client.told[slow] if "key" in body]
        assert told == list(range(1, len(told) + 1))
        assert len(told) < ROUNDS * PER_ROUND
        assert gap["last"] == len(told) < gap["revision"]
        assert client.told[slow][-1] is gap
        status, problem = await client.ask("watch", **{"from": gap["last"]})
        assert (status, problem["code"]) == (410, "compacted")
        assert problem["revision"] >= gap["revision"]
        again = await watching(client, **{"from": problem["revision"]})
        [first] = await client.events(again, 1)
        assert first["revision"] == problem["revision"] + 1
        assert (await client.ask("unwatch", watch=slow))[0] == 400  # it has ended
    assert node.node.service.watches.gaps == 1


async def test_a_watch_goes_on_over_the_other_way_after_the_revision_that_it_was_told_last(
    node: RunningNode,
) -> None:
    async with stream(node.port) as client:
        _, listed = await client.ask("list_leases", limit=1)
        for number in range(6):
            key = f"over/{number}"
            assert (await client.ask("acquire", key=key, owner="o", ttl_ms=20_000))[0] == 200
        watch = await watching(client, prefix="over/", **{"from": listed["revision"]})
        told = await client.events(watch, 6)
        after = told[2]["revision"]
    async with await Listener.open(node.port, f"/v1/events?prefix=over/&from={after}") as listener:
        assert [event.data for event in await listener.events(3)] == told[3:]
        after = told[4]["revision"]
    async with stream(node.port) as client:
        watch = await watching(client, prefix="over/", **{"from": after})
        assert await client.events(watch, 1) == told[5:]


async def test_a_bookmark_says_how_far_everything_was_told_where_nothing_matched(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_cluster.service.watch.BEAT_S", 0.1)
    async with stream(node.port) as client:
        watch = await watching(client, prefix="nothing/")
        first = await notice(client, watch, "bookmark")
        assert (await client.ask("acquire", key="something", owner="o", ttl_ms=20_000))[0] == 200
        while client.told[watch][-1]["revision"] <= first["revision"]:
            assert await client.receive()
        assert {body["kind"] for body in client.told[watch]} == {"bookmark"}
        status, listed = await client.ask("list_leases", limit=1)
        assert (status, client.told[watch][-1]["revision"]) == (200, listed["revision"])
