"""Leases that several hold: permits of a pool, readers and writers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from client_steps import until

import tenure
from tenure import Client, Held
from tenure.testing import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_t42_a_semaphore_has_as_many_holders_as_slots(cluster: FakeCluster, client: Client) -> None:
    """T42: and a try that does not wait is refused, and blocks nobody."""
    pool = [client.semaphore("pool", 2, ttl=30, owner=f"agent-{number}") for number in range(3)]
    async with pool[0] as first, pool[1] as second:
        assert {first.slot, second.slot} == {0, 1}
        assert first.token != second.token
        with pytest.raises(tenure.LeaseUnavailable):
            await pool[2].acquire(blocking=False)
        waiting = asyncio.create_task(pool[2].acquire(wait=30))
        await until(lambda: bool(cluster.left()[1]))
    third = await waiting
    await third.release()
    assert cluster.left() == ([], [])


async def test_two_permits_of_one_owner_are_two_permits(client: Client) -> None:
    """They share no session: whoever asks again for what its session holds would be given that."""
    semaphore = client.semaphore("pool", 2, owner="a")
    held: list[Held] = [await semaphore.acquire(), await semaphore.acquire()]
    assert {one.slot for one in held} == {0, 1}
    with pytest.raises(tenure.LeaseUnavailable):
        await semaphore.acquire()
    for one in held:
        await one.release()


async def test_a_pool_that_is_made_larger_lets_in_who_waits(cluster: FakeCluster, client: Client) -> None:
    async with client.semaphore("pool", 1, owner="a") as first:
        waiting = asyncio.create_task(client.semaphore("pool", 1, owner="b", wait=30).acquire())
        await until(lambda: bool(cluster.left()[1]))
        answer = await client.resize("pool", slots=2)
        assert (answer.slots, answer.before, answer.holders) == (2, 1, 2)
        second = await waiting
        assert (first.slot, second.slot) == (0, 1)
        with pytest.raises(tenure.LeaseUnavailable, match="mode 'permit' with 2 slots"):
            await client.semaphore("pool", 1, owner="c").acquire(blocking=False)
        await second.release()
    with pytest.raises(tenure.TenureError, match="nobody holds"):
        await client.resize("pool", slots=2)


async def test_readers_hold_together_and_a_writer_alone(cluster: FakeCluster, client: Client) -> None:
    lock = client.rwlock("document", wait=30, owner="a")
    other = client.rwlock("document", wait=30, owner="b")
    async with lock.read as one, other.read as two:
        assert one.token == two.token, "the readers of one phase share its token"
        writing = asyncio.create_task(client.rwlock("document", wait=30, owner="c").write.acquire())
        await until(lambda: bool(cluster.left()[1]))
        with pytest.raises(tenure.LeaseUnavailable):
            await client.rwlock("document", owner="d").read.acquire()
    writer = await writing
    assert writer.token > one.token
    with pytest.raises(tenure.LeaseUnavailable):
        await client.rwlock("document", owner="d").read.acquire()
    await writer.release()


async def test_a_permit_writes_through_the_guard_of_its_slot(client: Client) -> None:
    async with (
        client.semaphore("pool", 2, owner="a") as first,
        client.semaphore("pool", 2, owner="b") as second,
    ):
        await first.commit("one")
        await second.commit("two")
