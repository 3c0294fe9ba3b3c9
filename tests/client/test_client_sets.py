"""Several keys as one lease: one handle with a token for each key."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from client_steps import cancelled_at_every_point, until

import tenure
from tenure import Client, State
from tenure.testing import FakeCluster

KEYS = ["account/1", "account/2", "account/3"]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_a_set_is_held_by_one_handle_with_a_token_for_each_key(
    cluster: FakeCluster, client: Client
) -> None:
    async with client.lease(KEYS, ttl=30, owner="a") as held:
        assert held.key == KEYS[0]
        assert list(held.tokens) == KEYS
        assert len(set(held.tokens.values())) == 3
        for key in KEYS:
            await held.commit(f"by {key}", key=key)
            record = await client.record(key)
            assert record is not None
            assert record.token == held.tokens[key]
        await cluster.pass_time(60)
        assert held.state is State.HELD
        releases = cluster.calls["/v1/release"]
    assert cluster.calls["/v1/release"] == releases + 1, "a set is released in one entry"
    assert cluster.left() == ([], [])


async def test_it_is_granted_all_or_none(cluster: FakeCluster, client: Client) -> None:
    other = await client.lease(KEYS[1], owner="b").acquire()
    with pytest.raises(tenure.LeaseUnavailable) as refused:
        await client.lease(KEYS, owner="a").acquire()
    assert refused.value.holder is not None
    assert refused.value.holder.key == KEYS[1]
    assert cluster.left()[0] == [KEYS[1]]
    with pytest.raises(tenure.LeaseUnavailable, match=f"'{KEYS[1]}' is held by 'b'") as refused:
        await client.lease(KEYS, owner="a").acquire(wait=0.05)
    assert (refused.value.code, refused.value.position) == ("wait_over", 1)
    assert refused.value.holder is not None
    assert refused.value.holder.key == KEYS[1]
    waiting = asyncio.create_task(client.lease(KEYS, owner="a", wait=30).acquire())
    await until(lambda: len(cluster.left()[1]) == 3)
    queue = await client.queue(KEYS[1])
    assert queue.waiters[0].keys == KEYS
    await other.release()
    held = await waiting
    assert sorted(held.tokens) == KEYS
    await held.release()
    assert cluster.left() == ([], [])


async def test_a_set_that_loses_one_key_is_lost_and_gives_the_others_back(
    cluster: FakeCluster, client: Client
) -> None:
    """The session lives on with another lease, so nothing else would ever end them."""
    kept = await client.lease("another", ttl=30, owner="a").acquire()

    async def body() -> None:
        async with client.lease(KEYS, ttl=30, owner="a") as held:
            await client.break_(KEYS[2], reason="test")
            await cluster.pass_time(15)
            assert held.state is State.LOST
            assert cluster.left()[0] == [*KEYS[:2], "another"], "not before the body has stopped acting"
            await asyncio.sleep(10)

    with pytest.raises(tenure.LeaseLost):
        await body()
    assert kept.is_held
    await until(lambda: cluster.left() == (["another"], []))
    await kept.release()


async def test_a_dropped_handle_of_a_set_that_lost_one_key_gives_the_others_back(
    cluster: FakeCluster, client: Client
) -> None:
    kept = await client.lease("another", ttl=30, owner="a").acquire()
    held = await client.lease(KEYS, ttl=30, owner="a").acquire()
    await client.break_(KEYS[2], reason="test")
    await cluster.pass_time(15)
    await until(held.lost.is_set)
    del held
    await until(lambda: cluster.left() == (["another"], []))
    await kept.release()


async def test_cancelling_the_acquire_of_a_set_at_any_point_leaves_nothing(cluster: FakeCluster) -> None:
    async with cluster.connect() as client:

        async def scenario(cancelling) -> None:
            try:
                held = await cancelling(client.lease(KEYS, ttl=30, owner="a").acquire())
            except asyncio.CancelledError:
                return
            await held.release()

        async for _, _ in cancelled_at_every_point(scenario):
            await until(lambda: cluster.left() == ([], []))


async def test_the_plain_layer_knows_sets_too(cluster: FakeCluster, client: Client) -> None:
    grants = await client.acquire_set(KEYS, owner="a", ttl=30)
    assert [grant.key for grant in grants] == KEYS
    assert len({grant.session_id for grant in grants}) == 1
    assert (await client.release(grants[1].lease_id, whole_set=True)).status == "released"
    assert cluster.left() == ([], [])
