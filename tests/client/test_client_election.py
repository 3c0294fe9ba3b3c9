"""Elections: somebody leads, at most one, and the next takes over."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from client_steps import until

import tenure
from tenure import Client, Held
from tenure.testing import FakeCluster

OFFICE = "scheduler"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_one_leads_until_it_is_done_and_then_the_next(client: Client) -> None:
    leading: list[str] = []
    led: list[str] = []

    async def campaign(name: str) -> str:
        async def lead() -> str:
            assert not leading
            leading.append(name)
            await asyncio.sleep(0.01)
            leading.remove(name)
            led.append(name)
            return name

        return await client.election(OFFICE, owner=name).run(lead)

    names = [f"agent-{number}" for number in range(5)]
    assert await asyncio.gather(*map(campaign, names)) == names
    assert sorted(led) == names


async def test_who_loses_the_office_campaigns_again(cluster: FakeCluster, client: Client) -> None:
    """T25: no restart is needed."""
    tokens: list[int] = []
    done = asyncio.Event()

    async def lead(held: Held) -> None:
        tokens.append(held.token)
        await (done.wait() if len(tokens) > 1 else asyncio.sleep(3600))

    running = asyncio.create_task(client.election(OFFICE, ttl=30).run(lead))
    await until(lambda: len(tokens) == 1)
    cluster.expire_now(OFFICE)
    await cluster.pass_time(12)
    await until(lambda: len(tokens) == 2)
    done.set()
    await running
    assert tokens[0] < tokens[1]
    assert cluster.left() == ([], [])


async def test_what_the_leader_raises_ends_the_election_and_frees_the_office(
    cluster: FakeCluster, client: Client
) -> None:
    async def lead() -> None:
        raise tenure.CommitRefused("stale_token", 7)

    with pytest.raises(tenure.CommitRefused):
        await client.election(OFFICE).run(lead)
    assert cluster.left() == ([], [])


async def test_a_cluster_that_is_away_is_waited_for(cluster: FakeCluster) -> None:
    async with cluster.connect(timeout=0.1) as client:

        async def lead() -> str:
            return "led"

        with cluster.partition():
            running = asyncio.create_task(client.election(OFFICE).run(lead))
            await asyncio.sleep(0.3)
            assert not running.done()
        assert await running == "led"


async def test_cancelling_leaves_the_office(cluster: FakeCluster, client: Client) -> None:
    entered = asyncio.Event()

    async def lead() -> None:
        entered.set()
        await asyncio.sleep(3600)

    running = asyncio.create_task(client.election(OFFICE).run(lead))
    await entered.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert cluster.left() == ([], [])


async def test_observers_see_who_leads(cluster: FakeCluster, client: Client) -> None:
    election = client.election(OFFICE)
    seen = election.observe()
    assert await anext(seen) is None
    async with client.lease(OFFICE, owner="a"):
        leader = await anext(seen)
        assert leader is not None
        assert leader.owner == "a"
    assert await anext(seen) is None
    await seen.aclose()


async def test_an_observer_watches_and_does_not_poll(cluster: FakeCluster, client: Client) -> None:
    seen = client.election(OFFICE).observe()
    assert await anext(seen) is None
    following = asyncio.ensure_future(anext(seen))
    await asyncio.sleep(0.05)
    await cluster.pass_time(600)
    assert cluster.calls["/v1/events"] == 1
    assert cluster.calls["/v1/leases"] == 1
    async with client.lease(OFFICE + "/assistant"), client.lease(OFFICE, owner="a"):
        leader = await following
        assert leader is not None
        assert leader.owner == "a"
    assert await anext(seen) is None
    await seen.aclose()


async def test_an_observer_is_told_of_what_happened_while_it_could_not_watch(
    cluster: FakeCluster, client: Client
) -> None:
    """Its connection breaks, and by the time it is back the events are forgotten: it looks again."""
    seen = client.election(OFFICE).observe()
    assert await anext(seen) is None
    following = asyncio.ensure_future(anext(seen))
    await until(lambda: cluster.calls["/v1/events"] == 1)
    with cluster.pause():
        cluster.cut_watches()
        await asyncio.sleep(0.01)
    await (await client.lease("busy").acquire()).release()
    held = await client.lease(OFFICE, owner="a").acquire()
    leader = await following
    assert leader is not None
    assert leader.token == held.token
    cluster.forget_events()
    cluster.cut_watches()
    await held.release()
    assert await anext(seen) is None
    await seen.aclose()
