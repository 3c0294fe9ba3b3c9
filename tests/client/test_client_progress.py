"""Progress: told with a lease, demanded by it, and believed in no longer than the cluster does."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from client_steps import until

import tenure
from tenure import Client, State
from tenure._demand import Demand
from tenure._kept import Wait
from tenure.answers import LeaseInfo, Progress
from tenure.testing import FakeCluster

KEY = "report/7"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_progress_is_seen_with_the_lease(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=30, owner="a") as held:
        assert 29 < await held.progress("pages", text="12 of 80", counter=12) < 30
        seen = await client.get(KEY)
        assert seen is not None
        assert seen.progress is not None
        assert (seen.progress.step, seen.progress.text, seen.progress.counter) == ("pages", "12 of 80", 12)
        await cluster.pass_time(60)
        assert held.state is State.HELD, "nothing was demanded"


async def test_a_lease_that_demands_progress_lives_by_it(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=10, owner="a", progress=30) as held:
        for counter in range(1, 6):
            await cluster.pass_time(25)
            assert held.state is State.AT_RISK, "it is time to tell of progress"
            assert 0 < held.expires_in < 5
            await held.progress(counter=counter)
            assert held.state is State.HELD
    assert cluster.left() == ([], [])


async def test_renewals_alone_do_not_keep_it(cluster: FakeCluster, client: Client) -> None:
    kept = await client.lease("another", ttl=10, owner="a").acquire()

    async def body() -> None:
        async with client.lease(KEY, ttl=10, owner="a", progress=30) as held:
            await cluster.pass_time(28)
            assert held.is_held
            await held.renew()
            await cluster.pass_time(1.9)
            assert held.state is State.LOST, "by its own clock, before the cluster ends it"
            assert cluster.left()[0] == ["another", KEY]
            await cluster.pass_time(1)
            assert cluster.left()[0] == ["another"]
            await asyncio.sleep(10)  # cancelled

    with pytest.raises(tenure.LeaseLost) as lost:
        await body()
    assert lost.value.reason == "expired"
    assert kept.is_held, "its session is as alive as ever"
    await kept.release()


@pytest.mark.parametrize("told_after_s", [None, 7.0])
async def test_it_is_never_believed_in_for_longer_than_the_cluster_has_it_though_its_session_is_renewed(
    cluster: FakeCluster, client: Client, told_after_s: float | None
) -> None:
    """In a session that other leases share: seen from both sides, in steps of a tenth of a second, with
    heartbeats and renewals of the lease itself all the while."""
    kept = await client.lease("another", ttl=10, owner="a").acquire()
    held = await client.lease(KEY, ttl=10, owner="a", progress=30).acquire()
    assert held.session_id == kept.session_id
    if told_after_s is not None:
        await cluster.pass_time(told_after_s)
        await held.progress("begun")
    ends_at = cluster.clock.now() + 30
    renewals = cluster.calls["/v1/renew"]
    for step in itertools.count(1):
        await cluster.pass_time(0.1)
        if not held.is_held:
            break
        assert held.expires_in <= ends_at - cluster.clock.now()
        if step % 50 == 0:
            with contextlib.suppress(tenure.LeaseLost):
                await held.renew()
        assert KEY in cluster.left()[0] or not held.is_held
    assert (held.state, held.lost_reason) == (State.LOST, "expired")
    assert cluster.clock.now() > ends_at - 5, "nor for much less"
    assert cluster.calls["/v1/renew"] >= renewals + 8
    await until(held.lost.is_set)
    await cluster.pass_time(30)
    assert kept.is_held
    assert cluster.left()[0] == ["another"]
    await kept.release()


async def test_a_lost_lease_is_told_of_though_nothing_is_to_be_renewed_for_a_long_time(
    cluster: FakeCluster, client: Client
) -> None:
    kept = await client.lease("another", ttl=3_000, owner="a").acquire()
    held = await client.lease(KEY, ttl=3_000, owner="a", progress=5).acquire()
    assert held.session_id == kept.session_id
    cluster.clock.jump(5)
    await asyncio.wait_for(held.lost.wait(), 10)
    assert cluster.calls["/v1/renew"] == 0
    await kept.release()


async def test_one_that_is_being_released_past_its_demand_costs_the_renewer_no_time(
    cluster: FakeCluster, client: Client
) -> None:
    """Its release is not answered, and another lease keeps their session alive."""
    kept = await client.lease("another", ttl=300, owner="a").acquire()
    held = await client.lease(KEY, ttl=300, owner="a", progress=5).acquire()
    assert held.session_id == kept.session_id
    with cluster.partition():
        releasing = asyncio.create_task(held.release())
        await until(lambda: held.state is State.RELEASED)
        cluster.clock.jump(6)
        step = held._session.next()
        assert isinstance(step, Wait)
        assert step.seconds > 10, "nothing is to be done until the next renewal"
    with contextlib.suppress(tenure.TenureError):
        await releasing
    await until(lambda: cluster.left()[0] == ["another"])
    assert kept.is_held
    await kept.release()


async def test_saying_the_same_again_is_no_progress(cluster: FakeCluster, client: Client) -> None:
    held = await client.lease(KEY, ttl=60, owner="a", progress=30).acquire()
    for _ in range(3):
        await cluster.pass_time(9)
        await held.progress("thinking")
    assert held.is_held, "the first note was new"
    await cluster.pass_time(13)
    assert held.state is State.LOST
    with pytest.raises(tenure.LeaseLost):
        await held.progress("thinking")
    await until(held.lost.is_set)
    with pytest.raises(tenure.LeaseLost) as lost:
        await client.renew(held.lease_id)
    assert (lost.value.reason, lost.value.cause) == ("expired", "no_progress")


async def test_a_parked_lease_demands_no_progress(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=10, owner="a", progress=30) as held:
        await held.park(3600)
        await cluster.pass_time(300)
        await held.unpark()
        assert held.state is State.HELD
        assert held.expires_in < 10
        await cluster.pass_time(20)
        await held.progress("on again")
        await cluster.pass_time(20)
        assert held.is_held


async def test_progress_of_a_set_is_told_of_every_key(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(["a", "b"], ttl=10, owner="a", progress=30) as held:
        for counter in range(3):
            await cluster.pass_time(25)
            await held.progress(counter=counter + 1)
        assert held.is_held
        assert sorted(cluster.left()[0]) == ["a", "b"]


async def test_a_lease_that_was_waited_for_counts_its_progress_from_the_grant(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY, ttl=60, owner="a").acquire()
    waiting = asyncio.create_task(client.lease(KEY, ttl=60, owner="b", progress=5, wait=60).acquire())
    await until(lambda: len(cluster.left()[1]) == 1)
    await cluster.pass_time(7)
    await held.release()
    granted = await waiting
    assert granted.is_held
    assert 1 < granted.expires_in < 5
    await granted.release()


def lease(*, expires_in_ms: int, age_ms: int | None = None) -> LeaseInfo:
    note = None if age_ms is None else Progress(step="", text="", counter=1, at="", age_ms=age_ms)
    return LeaseInfo(
        key="k",
        owner="o",
        token=1,
        mode="exclusive",
        slot=0,
        expires_in_ms=expires_in_ms,
        granted_at="",
        ttl_ms=10_000,
        renewed_at="",
        revision=1,
        progress=note,
        progress_ms=30_000,
    )


def test_what_is_known_of_the_end_counts_from_the_send_and_never_moves_back() -> None:
    demand = Demand(progress_ms=30_000, rho=0.0)
    demand.granted(lease(expires_in_ms=10_000), sent_at=100.0, new_since=None)
    assert demand.until == 100 + 10 - demand.margin_s, "a replay says no more than that"
    demand.told(lease(expires_in_ms=10_000, age_ms=5_000), sent_at=108.0, now=108.5)
    assert demand.until == 108 + 25 - demand.margin_s
    demand.told(lease(expires_in_ms=10_000), sent_at=101.0, now=109.0)
    assert demand.until == 108 + 25 - demand.margin_s, "an answer out of order"
    assert not demand.is_at_risk(120.0)
    assert demand.is_at_risk(123.0)


def test_a_new_grant_has_all_the_time_that_is_demanded() -> None:
    demand = Demand(progress_ms=30_000, rho=0.0)
    demand.granted(lease(expires_in_ms=10_000), sent_at=105.0, new_since=100.0)
    assert demand.until == 100 + 30 - demand.margin_s


def test_nothing_revives_it_once_it_is_over() -> None:
    demand = Demand(progress_ms=30_000, rho=0.0)
    demand.granted(lease(expires_in_ms=10_000), sent_at=100.0, new_since=100.0)
    demand.told(lease(expires_in_ms=10_000, age_ms=0), sent_at=129.0, now=131.0)
    assert demand.is_over(131.0)
    assert demand.left_s(129.0) == 0
