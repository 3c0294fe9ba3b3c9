"""Following events, against the cluster in memory."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from client_steps import until

import tenure
from tenure import Client, Event, EventKind
from tenure.testing import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def take(client: Client, count: int, prefix: str = "", after: int | None = 0) -> list[Event]:
    events = client.watch(prefix, after=after)
    try:
        return [await anext(events) for _ in range(count)]
    finally:
        await events.aclose()


async def test_a_lease_is_followed_through_all_that_can_happen_to_it(
    cluster: FakeCluster, client: Client
) -> None:
    """Each kind of event is told, by its name."""
    held = await client.lease("job/1", ttl=10, owner="a").acquire()
    waiting = asyncio.create_task(client.lease("job/1", owner="w", wait=60).acquire())
    await until(lambda: len(cluster.left()[1]) == 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await cluster.pass_time(5)
    await held.progress("half", counter=1)
    await held.park(100)
    await held.unpark()
    await held.commit("once")
    with pytest.raises(tenure.CommitRefused):
        await held.commit("twice")
    async with client.lease("job/1", owner="b").successor() as successor:
        await held.handover(successor.session_id)
        await (await successor.acquire()).release()
    await client.delete_record("job/1")
    await client.acquire("job/2", owner="a", ttl=10)
    await client.break_("job/2", reason="gone")
    await client.acquire("job/4", owner="a", ttl=10, mode="permit", slots=2)
    await client.resize("job/4", slots=3)
    await client.acquire("job/3", owner="a", ttl=10)
    cluster.expire_now("job/3")
    events = []
    async for event in client.watch("job/", after=0):
        events.append(event)
        if event.kind == EventKind.EXPIRED:
            break
    assert {event.kind for event in events} == set(EventKind) - {EventKind.GAP, EventKind.RESTORED}
    revisions = [event.revision for event in events]
    assert revisions == sorted(set(revisions))
    by_kind = {event.kind: event for event in events}
    assert by_kind[EventKind.PROGRESS].detail == "half"
    assert by_kind[EventKind.HANDED_OVER].detail == "b"
    assert by_kind[EventKind.BROKEN].detail == "gone"
    assert by_kind[EventKind.COMMIT_REFUSED].detail == "token_used"
    assert by_kind[EventKind.UNPARKED].token > by_kind[EventKind.PARKED].token
    assert [event.kind for event in events if event.key == "job/1" and event.ends_lease] == [
        EventKind.HANDED_OVER,
        EventKind.RELEASED,
    ]


async def test_only_what_is_asked_for_is_told_and_from_where(cluster: FakeCluster, client: Client) -> None:
    for key in ("a/1", "b/1", "a/2"):
        async with client.lease(key):
            pass
    told = await take(client, 4, "a/")
    assert [(event.key, event.kind) for event in told] == [
        ("a/1", "granted"),
        ("a/1", "released"),
        ("a/2", "granted"),
        ("a/2", "released"),
    ]
    assert (await take(client, 1, "a/", after=told[0].revision)) == told[1:2]


async def test_a_watch_that_begins_now_tells_what_comes(cluster: FakeCluster, client: Client) -> None:
    async with client.lease("before"):
        pass
    following = asyncio.create_task(take(client, 1, after=None))
    await until(lambda: cluster.calls["/v1/events"] == 1)
    async with client.lease("after"):
        [event] = await following
    assert event.key == "after"


async def test_each_event_is_told_once_however_often_the_connection_breaks(
    cluster: FakeCluster, client: Client
) -> None:
    seen: list[Event] = []

    async def follow() -> None:
        async for event in client.watch("k/", after=None):
            seen.append(event)

    following = asyncio.create_task(follow())
    await until(lambda: cluster.calls["/v1/events"] == 1)
    for number in range(5):
        async with client.lease(f"k/{number}"):
            if number % 2:
                cluster.cut_watches()
    with cluster.partition():
        await asyncio.sleep(0.05)
    async with client.lease("k/last"):
        await until(lambda: bool(seen) and seen[-1].key == "k/last")
    following.cancel()
    await asyncio.wait([following])
    assert [event.key for event in seen if event.kind == "granted"] == [
        *(f"k/{number}" for number in range(5)),
        "k/last",
    ]
    revisions = [event.revision for event in seen]
    assert revisions == sorted(set(revisions))


async def test_what_is_not_remembered_any_more_is_told_as_a_gap(cluster: FakeCluster, client: Client) -> None:
    async with client.lease("a"):
        pass
    cluster.forget_events()
    async with client.lease("b"):
        gap, granted = await take(client, 2)
    assert gap.kind == EventKind.GAP
    assert gap.revision == granted.revision - 1
    assert (granted.key, granted.kind) == ("b", "granted")


async def test_expiry_is_told_by_the_clock_of_the_test(cluster: FakeCluster, client: Client) -> None:
    await client.acquire("job", owner="a", ttl=10)
    following = asyncio.create_task(take(client, 2))
    await asyncio.sleep(0.05)
    assert not following.done()
    cluster.clock.jump(11)
    assert [event.kind for event in await following] == ["granted", "expired"]


def test_threads_watch_too(cluster: FakeCluster) -> None:
    with cluster.connect_sync() as client:
        with client.lease("job"):
            pass
        told = list(itertools.islice(client.watch(after=0), 2))
        assert [event.kind for event in told] == [EventKind.GRANTED, EventKind.RELEASED]
