"""Every kind of hold on three real nodes: each step of a story is asked of another node than the last."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from any_node import AnyNode
from dev_process import DevProcess
from live_cluster import LiveCluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))

from api_sse import Listener
from api_stream import stream

pytestmark = pytest.mark.process

TTL_MIN_MS = 3_000
"""The shortest that the cluster allows."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("modes")) as running:
        yield running


@pytest.fixture
def nodes(dev: DevProcess) -> AnyNode:
    return AnyNode(dev.urls)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"modes/{request.node.name}"


def waiting(nodes: AnyNode, key: str, owner: str, **fields: Any) -> "asyncio.Task[dict[str, Any]]":
    """Acquire, however long it takes, on the next node."""
    return asyncio.create_task(nodes.acquired(key, owner, wait_ms=20_000, **fields))


async def waiters(nodes: AnyNode, key: str, count: int) -> list[dict[str, Any]]:
    """The queue of a key when so many wait in it."""
    async with asyncio.timeout(30):
        while True:
            queue = await nodes.ok("queue", key=key)
            if len(queue["waiters"]) == count:
                found: list[dict[str, Any]] = queue["waiters"]
                return found
            await asyncio.sleep(0.02)


async def test_readers_share_one_epoch_and_a_waiting_writer_stops_newcomers(nodes: AnyNode, key: str) -> None:
    readers = [await nodes.acquired(key, f"r{number}", mode="shared") for number in range(3)]
    assert len({lease["token"] for lease in readers}) == 1
    writer = waiting(nodes, key, "w")
    await waiters(nodes, key, 1)
    late = {"key": key, "owner": "late", "ttl_ms": 60_000, "mode": "shared"}
    assert (await nodes.ok("acquire", 409, **late))["code"] == "held"
    reader = waiting(nodes, key, "next", mode="shared")
    await waiters(nodes, key, 2)
    for lease in readers:
        assert not writer.done()
        await nodes.ok("release", lease_id=lease["lease_id"])
    written = await writer
    assert written["token"] > readers[0]["token"]
    assert not reader.done()
    await nodes.ok("release", lease_id=written["lease_id"])
    assert (await reader)["token"] > written["token"]


async def test_each_slot_of_a_pool_is_guarded_on_its_own(nodes: AnyNode, key: str) -> None:
    pool = {"mode": "permit", "slots": 3}
    permits = [await nodes.acquired(key, f"p{number}", **pool) for number in range(3)]
    assert [lease["slot"] for lease in permits] == [0, 1, 2]
    assert len({lease["token"] for lease in permits}) == 3
    fourth = waiting(nodes, key, "p3", **pool)
    await waiters(nodes, key, 1)
    await nodes.ok("release", lease_id=permits[1]["lease_id"])
    successor = await fourth
    assert successor["slot"] == 1
    assert successor["token"] > max(lease["token"] for lease in permits)

    async def commit(lease: dict[str, Any], expected: int) -> Any:
        body = {name: lease[name] for name in ("key", "lease_id", "token", "slot")}
        return await nodes.ok("commit", expected, **body, mode="current")

    assert (await commit(permits[1], 412))["code"] == "stale_token"
    for lease in (permits[0], permits[2], successor):
        await commit(lease, 200)


async def test_sets_asked_for_in_different_orders_are_granted_one_after_the_other(
    nodes: AnyNode, key: str
) -> None:
    """T48, T56: a set is one entry, all or none, and two of them make no circle."""
    first, second = f"{key}/a", f"{key}/b"
    asked = {"owner": "x", "ttl_ms": 60_000, "request_id": f"{key}/x"}
    mine = (await nodes.ok("acquire", keys=[first, second], **asked))["leases"]
    assert [lease["key"] for lease in mine] == [first, second]
    other = {"keys": [second, first], "owner": "y", "ttl_ms": 60_000, "request_id": f"{key}/y"}
    assert (await nodes.ok("acquire", 409, **other | {"request_id": f"{key}/try"}))["key"] in (first, second)
    theirs = asyncio.create_task(nodes.ok("acquire", **other, wait_ms=20_000))
    await waiters(nodes, first, 1)
    await waiters(nodes, second, 1)
    await nodes.ok("release", lease_id=mine[0]["lease_id"])
    assert (await nodes.ok("get_lease", 404, key=first))["code"] == "not_held"  # half a set is not granted
    assert not theirs.done()
    await nodes.ok("release", lease_id=mine[1]["lease_id"])
    leases = (await theirs)["leases"]
    assert [lease["key"] for lease in leases] == [second, first]
    assert min(lease["token"] for lease in leases) > max(lease["token"] for lease in mine)
    await nodes.ok("release", lease_id=leases[1]["lease_id"], whole_set=True)
    for name in (first, second):
        assert (await nodes.ok("get_lease", 404, key=name))["code"] == "not_held"


async def test_a_handover_passes_all_who_wait_and_leaves_no_gap(nodes: AnyNode, key: str) -> None:
    lease = await nodes.acquired(key, "a", metadata={"run": "7"})
    other = waiting(nodes, key, "x")
    await waiters(nodes, key, 1)
    successor = await nodes.session("b")
    theirs = waiting(nodes, key, "b", session_id=successor)
    await waiters(nodes, key, 2)
    given = (await nodes.ok("handover", lease_id=lease["lease_id"], to_session_id=successor))["lease"]
    assert (given["owner"], given["metadata"]) == ("b", {"run": "7"})
    assert (await theirs)["token"] == given["token"] > lease["token"]
    assert (await nodes.ok("renew", 410, lease_id=lease["lease_id"]))["reason"] == "handed_over"
    assert not other.done()
    await nodes.ok("release", lease_id=given["lease_id"])
    assert (await other)["token"] > given["token"]
    kinds = [event["kind"] for event in await nodes.told(key)]
    assert kinds.index("handed_over") + 1 == kinds.index("granted", 1)


async def test_a_parked_lease_outlives_its_ttl_without_a_heartbeat(nodes: AnyNode, key: str) -> None:
    lease = await nodes.acquired(key, "a", ttl_ms=TTL_MIN_MS)
    parked = (await nodes.ok("park", lease_id=lease["lease_id"], limit_ms=60_000))["lease"]
    await asyncio.sleep(TTL_MIN_MS / 1000 + 1)
    for _ in nodes.urls:
        seen = await nodes.ok("get_lease", key=key)
        assert (seen["state"], seen["token"]) == ("parked", parked["token"])
    taken = {"key": key, "owner": "b", "ttl_ms": 60_000}
    assert (await nodes.ok("acquire", 409, **taken))["code"] == "held"
    awake = (await nodes.ok("unpark", lease_id=lease["lease_id"], ttl_ms=60_000))["lease"]
    assert awake["token"] > lease["token"]
    body = {"key": key, "lease_id": lease["lease_id"], "mode": "current"}
    assert (await nodes.ok("commit", 412, **body, token=lease["token"]))["code"] == "stale_token"
    await nodes.ok("commit", **body, token=awake["token"])


async def test_a_lease_that_demands_progress_is_not_kept_by_renewals_alone(nodes: AnyNode, key: str) -> None:
    works = await nodes.acquired(f"{key}/works", "a", progress_ms=2_000)
    hangs = await nodes.acquired(f"{key}/hangs", "b", progress_ms=2_000)
    counter, ended = 0, None
    until_s = time.monotonic() + 20
    while ended is None:
        assert time.monotonic() < until_s, "the lease without progress was kept"
        counter += 1
        note = {"step": "count", "counter": counter}
        kept, renewed = await asyncio.gather(
            nodes.sure("renew", lease_id=works["lease_id"], progress=note),
            nodes.sure("renew", lease_id=hangs["lease_id"], progress={"step": "same"}),
        )
        assert kept[0] == 200, kept
        assert kept[1]["lease"]["progress"]["counter"] == counter
        ended = renewed[1] if renewed[0] != 200 else None
        await asyncio.sleep(0.1)
    assert (ended["reason"], ended["cause"]) == ("expired", "no_progress")
    assert (await nodes.ok("get_lease", key=f"{key}/works"))["token"] == works["token"]


async def test_every_node_tells_who_is_in_the_way(nodes: AnyNode, key: str) -> None:
    first = await nodes.session("first")
    await nodes.acquired(f"{key}/2", "root")
    await nodes.acquired(f"{key}/1", "first", session_id=first)
    polls = [waiting(nodes, f"{key}/2", "first", session_id=first), waiting(nodes, f"{key}/1", "third")]
    await waiters(nodes, f"{key}/2", 1)
    await waiters(nodes, f"{key}/1", 1)
    for url in nodes.urls:
        status, queue = await nodes.ask("queue", url=url, key=f"{key}/1")
        assert status == 200
        assert [(link["key"], link["owner"]) for link in queue["chain"]] == [
            (f"{key}/1", "first"),
            (f"{key}/2", "root"),
        ]
        assert [waiter["owner"] for waiter in queue["waiters"]] == ["third"]
    circle = {"key": f"{key}/1", "owner": "root", "wait_ms": 1_000, "session_id": first}
    assert (await nodes.ok("acquire", **circle))["status"] == "granted"  # it is its own, not a wait
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_a_new_leader_is_told_to_all_who_watch(tmp_path: Path) -> None:
    """Over Server-Sent Events and over the stream, on both nodes that are left."""
    async with LiveCluster(tmp_path) as cluster:
        leader = await cluster.leader()
        left = [node for node in cluster.nodes.values() if node is not leader]
        async with (
            await Listener.open(left[0].http_port, "/v1/events?prefix=k") as listener,
            stream(left[1].http_port) as client,
        ):
            [watch] = await client.send(("watch", {"prefix": "k"}))
            assert (await client.answer(watch))[0] == 200
            cluster.kill(leader)
            told = await listener.next()
            while told is not None and told.kind != "leader_changed":
                told = await listener.next()
            assert told is not None
            assert told.id is None
            by_stream: list[dict[str, Any]] = []
            while not by_stream:
                assert await client.receive()
                by_stream = [body for body in client.told[watch] if body["kind"] == "leader_changed"]
            names = {node.node_id: node.url for node in left}
            for body in (told.data, by_stream[0]):
                assert body["leader_url"] == names[body["leader"]]
                assert body["term"] > 1
