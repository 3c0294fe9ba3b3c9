"""Handing over: the successor has the lease with its context, and the handle of before never says HELD."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from client_steps import cancelled_at_every_point, until

import tenure
from tenure import Client, State
from tenure.testing import FakeCluster

KEY = "job/7"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


@pytest.fixture
async def other(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_a_successor_that_waits_gets_the_lease_and_its_context(
    cluster: FakeCluster, client: Client, other: Client
) -> None:
    held = await client.lease(KEY, ttl=30, owner="a", metadata={"ticket": "42"}).acquire()
    await held.progress("review", text="half of it", counter=3)
    rival = asyncio.create_task(client.lease(KEY, owner="c", wait=30).acquire())
    await until(lambda: len(cluster.left()[1]) == 1)
    async with other.lease(KEY, ttl=30, owner="b").successor() as successor:
        receiving = asyncio.create_task(successor.acquire(wait=30))
        await until(lambda: len(cluster.left()[1]) == 2)
        await held.handover(successor.session_id)
        assert held.state is State.RELEASED
        received = await receiving
    assert received.state is State.HELD, "the handle outlives the block"
    assert received.owner == "b"
    assert received.token > held.token
    assert received.metadata == {"ticket": "42"}
    assert received.found_progress is not None
    assert (received.found_progress.step, received.found_progress.counter) == ("review", 3)
    with pytest.raises(tenure.LeaseLost):
        held.check()
    await received.commit("done")
    assert not rival.done(), "nobody comes between"
    await received.release()
    await (await rival).release()
    assert cluster.left() == ([], [])


async def test_a_successor_that_comes_later_finds_the_lease(
    cluster: FakeCluster, client: Client, other: Client
) -> None:
    held = await client.lease(KEY, ttl=30, owner="a").acquire()
    async with other.lease(KEY, ttl=30, owner="b").successor() as successor:
        await held.handover(successor.session_id)
        received = await successor.acquire(wait=0)
        assert received.token > held.token
        await cluster.pass_time(60)
        assert received.is_held, "it is kept alive by the successor's session"
        await received.release()
    assert cluster.left() == ([], [])


async def test_a_lease_that_its_successor_never_takes_ends_with_the_block(
    cluster: FakeCluster, client: Client, other: Client
) -> None:
    held = await client.lease(KEY, ttl=30, owner="a").acquire()
    async with other.lease(KEY, owner="b").successor() as successor:
        await held.handover(successor.session_id)
    await until(lambda: cluster.left() == ([], []))


async def test_a_block_is_left_quietly_after_a_handover(client: Client, other: Client) -> None:
    async with other.lease(KEY, owner="b").successor() as successor:
        async with client.lease(KEY, owner="a") as held:
            await held.handover(successor.session_id)
        received = await successor.acquire()
        assert received.is_held
        await received.release()


async def test_a_handover_that_is_refused_leaves_the_handle_as_it_was(
    cluster: FakeCluster, client: Client
) -> None:
    async with client.lease(KEY, owner="a") as held:
        with pytest.raises(tenure.InvalidRequest) as refused:
            await held.handover("nobody's")
        assert refused.value.code == "no_session"
        assert held.state is State.HELD
        with cluster.partition(), pytest.raises(tenure.ClusterUnavailable):
            async with asyncio.timeout(30):
                await held.handover("nobody's")
        assert held.is_held
        await held.commit("mine")


async def test_the_handle_does_not_say_held_before_the_answer_is_here(
    cluster: FakeCluster, client: Client, other: Client
) -> None:
    """The successor may believe already; so it is RELEASED from the call on."""
    held = await client.lease(KEY, ttl=30, owner="a").acquire()
    async with other.lease(KEY, owner="b").successor() as successor:
        with cluster.pause():
            handing = asyncio.create_task(held.handover(successor.session_id))
            await until(lambda: held.state is not State.HELD)
            assert held.state is State.RELEASED
            assert held.expires_in == 0
            with pytest.raises(tenure.LeaseLost):
                await held.renew()
        await handing
        assert held.state is State.RELEASED
        await (await successor.acquire()).release()


async def test_a_handover_whose_answer_is_lost_is_asked_again(
    cluster: FakeCluster, client: Client, other: Client
) -> None:
    held = await client.lease(KEY, owner="a").acquire()
    async with other.lease(KEY, owner="b").successor() as successor:
        cluster.drop_next_reply("handover")
        await held.handover(successor.session_id)
        assert cluster.calls["/v1/handover"] == 2
        assert held.state is State.RELEASED
        received = await successor.acquire()
        assert received.token > held.token
        await received.release()


async def test_after_an_unknown_handover_the_handle_is_lost_and_nothing_is_left(cluster: FakeCluster) -> None:
    async with cluster.connect(timeout=0.2) as client, cluster.connect() as other:
        kept = await client.lease("another", owner="a").acquire()
        held = await client.lease(KEY, owner="a").acquire()
        async with other.lease(KEY, owner="b").successor() as successor:
            for _ in range(50):
                cluster.drop_next_reply("handover")
            with pytest.raises(tenure.OutcomeUnknown):
                await held.handover(successor.session_id)
            assert held.state is State.LOST
            assert held.lost_reason == "unknown"
            received = await successor.acquire()
            await received.release()
        assert kept.is_held
        await kept.release()
        await until(lambda: cluster.left() == ([], []))


async def test_cancelling_a_handover_at_any_point_leaves_one_holder_at_most(cluster: FakeCluster) -> None:
    async with cluster.connect() as client, cluster.connect() as other:

        async def scenario(cancelling) -> None:
            lease = client.lease(KEY, ttl=30, owner="a", wait=30)
            held = await lease.acquire()
            async with other.lease(KEY, ttl=30, owner="b").successor() as successor:
                try:
                    await cancelling(held.handover(successor.session_id))
                except asyncio.CancelledError:
                    pass
                if held.state is State.HELD:
                    await held.release()
                    return
                assert held.state is State.RELEASED
                received = await successor.acquire(wait=30)
                assert not held.is_held
                await received.release()

        async for _, _ in cancelled_at_every_point(scenario):
            await until(lambda: cluster.left() == ([], []))
    cluster.check()


async def test_the_leases_of_a_set_are_not_handed_over(client: Client) -> None:
    async with client.lease(["a", "b"], owner="a") as held:
        with pytest.raises(tenure.InvalidRequest) as refused:
            await held.handover("anybody's")
        assert refused.value.code == "unsupported"
        assert held.state is State.HELD
