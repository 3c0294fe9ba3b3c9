"""Parking: a lease that rests without heartbeats, and is taken up again with a new token."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from client_steps import cancelled_at_every_point, until

import tenure
from tenure import Client, State
from tenure.testing import FakeCluster

KEY = "payment/42"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_a_parked_lease_needs_no_heartbeats_and_comes_back_with_a_new_token(
    cluster: FakeCluster, client: Client
) -> None:
    async with client.lease(KEY, ttl=10, owner="a", metadata={"draft": "$100"}) as held:
        before = held.token
        await held.park(3600)
        assert held.state is State.PARKED
        assert 3500 < held.parked_for < 3600
        assert held.expires_in == 0
        with pytest.raises(tenure.LeaseLost, match="parked"):
            held.check()
        renewals = cluster.calls["/v1/renew"]
        await cluster.pass_time(60)
        assert cluster.calls["/v1/renew"] == renewals
        assert cluster.left()[0] == [KEY]
        await held.unpark()
        assert held.state is State.HELD
        assert held.token > before
        assert held.parked_for == 0
        assert held.metadata == {"draft": "$100"}
        await cluster.pass_time(60)
        assert held.state is State.HELD, "it is renewed again"
        await held.commit("approved")
    assert cluster.left() == ([], [])


async def test_a_parked_lease_lasts_no_longer_than_its_limit(cluster: FakeCluster, client: Client) -> None:
    held = await client.lease(KEY, ttl=10, owner="a").acquire()
    await held.park(60)
    await cluster.pass_time(61)
    assert held.state is State.LOST
    assert held.lost_reason == "expired"
    assert cluster.left() == ([], [])
    with pytest.raises(tenure.LeaseLost):
        await held.unpark()


async def test_the_limit_counts_anew_when_it_is_parked_again(cluster: FakeCluster, client: Client) -> None:
    held = await client.lease(KEY, ttl=10, owner="a").acquire()
    await held.park(60)
    await cluster.pass_time(50)
    await held.park(60)
    await cluster.pass_time(50)
    assert held.state is State.PARKED
    await held.release()
    assert held.state is State.RELEASED
    assert cluster.left() == ([], [])


async def test_leaving_the_block_leaves_a_parked_lease_parked_for_whoever_has_its_id(
    cluster: FakeCluster, client: Client
) -> None:
    async with client.lease(KEY, ttl=10, owner="a", metadata={"draft": "$100"}) as held:
        await held.progress("waits for approval")
        await held.park(3600)
    assert cluster.left()[0] == [KEY]
    async with cluster.connect() as another:
        taken = await another.take_up(held.lease_id, ttl=20, owner="approver")
        assert taken.token > held.token
        assert taken.metadata == {"draft": "$100"}
        assert taken.found_progress is not None
        assert taken.found_progress.step == "waits for approval"
        await cluster.pass_time(60)
        assert taken.state is State.HELD
        with pytest.raises(tenure.LeaseUnavailable):
            await another.take_up(held.lease_id)
        with pytest.raises(tenure.LeaseLost) as lost:
            await held.unpark()
        assert lost.value.reason == "taken_up"
        assert held.state is State.LOST
        await taken.release()
    with pytest.raises(tenure.LeaseLost):
        await client.take_up(held.lease_id)
    await until(lambda: cluster.left() == ([], []))


async def test_a_lease_that_was_broken_while_parked_is_lost_and_the_body_is_told(
    cluster: FakeCluster, client: Client
) -> None:
    handles: list[tenure.Held] = []

    async def body() -> None:
        async with client.lease(KEY, owner="a") as held:
            handles.append(held)
            await held.park(3600)
            await client.break_(KEY, reason="the customer has called")
            await held.unpark()

    with pytest.raises(tenure.LeaseLost) as lost:
        await body()
    assert lost.value.reason == "broken"
    assert handles[0].lost.is_set()
    assert cluster.left() == ([], [])


async def test_parking_that_is_refused_leaves_the_handle_as_it_was(
    cluster: FakeCluster, client: Client
) -> None:
    async with client.lease(KEY, owner="a", mode="shared") as held:
        with pytest.raises(tenure.InvalidRequest) as refused:
            await held.park(60)
        assert refused.value.code == "unsupported"
        assert held.state is State.HELD
    async with client.lease(["a", "b"], owner="a") as both:
        with pytest.raises(tenure.InvalidRequest):
            await both.park(60)
        assert both.state is State.HELD
        both.check()


async def test_unpark_finds_out_what_became_of_parking_that_was_not_answered(cluster: FakeCluster) -> None:
    async with cluster.connect(timeout=0.2) as client:
        for lost_replies in (50, 0):
            held = await client.lease(KEY, ttl=10, owner="a").acquire()
            before = held.token
            for _ in range(lost_replies):
                cluster.drop_next_reply("park")
            if lost_replies:
                with pytest.raises(tenure.OutcomeUnknown):
                    await held.park(3600)
            else:
                # It has not even arrived, but nobody can know that.
                parking = asyncio.create_task(held.park(3600))
                with cluster.pause():
                    await asyncio.sleep(0.05)
                    cluster.clock.jump(1)
                    with pytest.raises(tenure.OutcomeUnknown):
                        await parking
            assert held.state is State.PARKED
            await held.unpark()
            assert held.state is State.HELD
            assert (held.token > before) == bool(lost_replies)
            await cluster.pass_time(30)
            assert held.state is State.HELD
            cluster._drops.clear()
            await held.release()
    assert cluster.left() == ([], [])


async def test_an_unpark_whose_answer_is_lost_is_asked_again(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=10, owner="a") as held:
        before = held.token
        await held.park(3600)
        cluster.drop_next_reply("unpark")
        await held.unpark()
        assert held.token > before
        await cluster.pass_time(30)
        await held.commit("approved")


async def test_a_second_handle_of_one_owner_does_not_wait_behind_what_the_first_has_parked(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY, ttl=30, owner="a").acquire()
    await held.park(3600)
    with pytest.raises(tenure.LeaseUnavailable):
        await client.lease(KEY, ttl=30, owner="a", wait=60).acquire()
    await held.unpark()
    assert held.is_held
    await held.release()
    await until(lambda: cluster.left() == ([], []))


async def test_cancelling_at_any_point_of_parking_and_unparking_leaves_nothing_behind(
    cluster: FakeCluster,
) -> None:
    async with cluster.connect() as client:

        async def scenario(cancelling) -> None:
            held = await client.lease(KEY, ttl=30, owner="a", wait=30).acquire()

            async def rest() -> None:
                await held.park(3600)
                await held.unpark()

            try:
                await cancelling(rest())
            except asyncio.CancelledError:
                pass
            assert held.state in (State.HELD, State.PARKED)
            await held.release()

        async for _, _ in cancelled_at_every_point(scenario):
            await until(lambda: cluster.left() == ([], []))
    cluster.check()


async def test_a_dropped_handle_that_is_parked_leaves_its_lease_parked(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY, owner="a").acquire()
    lease_id = held.lease_id
    await held.park(3600)
    del held
    await cluster.pass_time(60)
    assert cluster.left()[0] == [KEY]
    await client.release(lease_id)
