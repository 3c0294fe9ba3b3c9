"""Cases that other systems met with, as a user of the library would meet them; tests/cases/README.md has them
all."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client_steps import until

import tenure
from tenure import Client, State
from tenure._protocol import Attempt
from tenure.testing import FakeCluster

KEY = "job/7"
POLL_S_MAX = 25
"""What the cluster allows; others give up near a minute."""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


@pytest.fixture
async def rival(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


@pytest.fixture
def bodies(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What is sent from here on: paths and bodies."""
    sent: list[tuple[str, dict[str, Any]]] = []
    answer = cluster.answer

    async def seen(attempt: Attempt) -> Any:
        sent.append((attempt.target, json.loads(attempt.body or b"{}")))
        return await answer(attempt)

    monkeypatch.setattr(cluster, "answer", seen)
    return sent


async def waits(cluster: FakeCluster, number: int = 1) -> None:
    await until(lambda: len(cluster.left()[1]) == number)


async def test_t2_a_grant_that_came_while_waiting_is_confirmed(
    client: Client, rival: Client, cluster: FakeCluster, bodies: list[tuple[str, dict[str, Any]]]
) -> None:
    """T2: by a renewal of that very lease, sent after the grant."""
    first = await rival.lease(KEY, ttl=30).acquire()
    waiting = asyncio.create_task(client.lease(KEY, ttl=30).acquire(wait=60))
    await waits(cluster)
    await cluster.pass_time(5)
    bodies.clear()
    await first.release()
    held = await waiting
    assert ("/v1/renew", {"lease_id": held.lease_id}) in bodies
    assert held.expires_in > 26, "counted from the renewal, not from the poll"
    await held.release()


async def test_t2_a_grant_whose_session_has_died_is_not_returned(
    client: Client, rival: Client, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2: the answer says granted, and by the time that it is read the lease is over."""
    answer = cluster.answer
    died: list[int] = []

    async def dies(attempt: Attempt) -> Any:
        answered = await answer(attempt)
        lease = json.loads(answered[2] or b"{}").get("lease", {})
        if attempt.target == "/v1/acquire" and answered[0] == 200 and not died:
            died.append(lease["token"])
            assert cluster.expire_now(KEY)
        return answered

    first = await rival.lease(KEY, ttl=30).acquire()
    monkeypatch.setattr(cluster, "answer", dies)
    waiting = asyncio.create_task(client.lease(KEY, ttl=30).acquire(wait=60))
    await waits(cluster)
    await cluster.pass_time(5)
    await first.release()
    held = await waiting
    assert held.token > died[0]
    assert (await client.validate(KEY, held.token)).valid
    await held.release()


async def test_t9_a_wall_clock_that_jumps_changes_nothing_and_no_time_is_sent(
    client: Client,
    rival: Client,
    cluster: FakeCluster,
    bodies: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T9: every look at the wall clock shows another week, forwards or backwards; what is sent are
    durations that were asked for, and nothing that could be a time."""
    weeks = itertools.cycle((0, 60, -60, 600))
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + next(weeks) * 7 * 86_400)
    async with client.lease(KEY, ttl=30, grace=1) as held:
        waiting = asyncio.create_task(rival.lease(KEY, ttl=20).acquire(wait=300))
        await waits(cluster)
        await cluster.pass_time(100)
        assert held.state is State.HELD
        assert not waiting.done()
        await held.commit("v", if_revision=0)
    await (await waiting).release()
    durations = {"ttl_ms": {30_000, 20_000}, "grace_ms": {1_000}}
    for _, body in bodies:
        for name, value in body.items():
            if name in durations:
                assert value in durations[name]
            elif name == "wait_ms":
                assert 0 <= value <= POLL_S_MAX * 1000
            elif name not in ("token", "if_revision"):
                assert not isinstance(value, int | float) or isinstance(value, bool), (name, value)


async def test_t12_a_contender_with_a_short_ttl_does_not_shorten_the_lease_that_is_held(
    client: Client, cluster: FakeCluster
) -> None:
    """T12: the holder does not renew, and has its thirty seconds all the same."""
    grant = await client.acquire(KEY, owner="a", ttl=30)
    began = cluster.clock.now()
    waiting = asyncio.create_task(client.lease(KEY, ttl=1, owner="b").acquire(wait=120))
    await waits(cluster)
    while not waiting.done():
        if cluster.clock.now() < began + 20:
            assert (await client.validate(KEY, grant.token)).valid
        await cluster.pass_time(0.5)
        await asyncio.sleep(0.005)
    assert cluster.clock.now() >= began + 29
    held = waiting.result()
    assert held.token > grant.token
    await held.release()


async def test_t16_what_a_former_session_left_behind_is_neither_trusted_nor_dangerous(
    client: Client, cluster: FakeCluster
) -> None:
    """T16: the same client, key and owner; the new lease is its own, and the old one's end can't touch it."""
    lease = client.lease(KEY, ttl=30, owner="a")
    old = await lease.acquire()
    assert cluster.expire_now(KEY)
    new = await client.lease(KEY, ttl=30, owner="a", own_session=True).acquire()
    assert new.lease_id != old.lease_id
    assert new.session_id != old.session_id
    assert new.token > old.token
    with pytest.raises(tenure.LeaseLost):
        await old.release()
    with pytest.raises(tenure.LeaseLost):
        await client.renew(old.lease_id)
    await cluster.pass_time(60)
    assert new.state is State.HELD
    assert (await client.validate(KEY, new.token)).valid
    await new.release()


async def test_t43_a_failed_try_queues_nothing_and_refreshes_nobody(
    client: Client, rival: Client, cluster: FakeCluster
) -> None:
    """T43: tries go on all the while; the key is free when the holder's time is over, and not later."""
    grant = await client.acquire(KEY, owner="a", ttl=30)
    began = cluster.clock.now()
    tries = 0
    while True:
        try:
            held = await rival.lease(KEY, ttl=30, owner="b").acquire(blocking=False)
            break
        except tenure.LeaseUnavailable:
            tries += 1
            assert cluster.left() == ([KEY], [])
        await cluster.pass_time(1)
    assert tries >= 29
    assert 29 <= cluster.clock.now() - began <= 40
    assert held.token > grant.token
    await held.release()


async def test_t51_a_waiter_keeps_its_place_for_as_long_as_it_waits(
    client: Client, rival: Client, cluster: FakeCluster, bodies: list[tuple[str, dict[str, Any]]]
) -> None:
    """T51, T58: for ten minutes, by polls that each are shorter than any proxy's patience, under one id."""
    holding = await rival.lease(KEY, ttl=30, owner="a").acquire()
    waiting = asyncio.create_task(client.lease(KEY, ttl=30, owner="b").acquire(wait=3_600))
    await waits(cluster)
    for _ in range(200):
        await cluster.pass_time(3)
        # A poll that is over comes again in time that is not the cluster's.
        await asyncio.sleep(0.005)
        assert cluster.left() == ([KEY], [KEY])
    late = asyncio.create_task(client.lease(KEY, ttl=30, owner="c").acquire(wait=3_600))
    await waits(cluster, 2)
    polls = [body for path, body in bodies if path == "/v1/acquire" and body["owner"] == "b"]
    assert len(polls) >= 600 / POLL_S_MAX
    assert len({poll["request_id"] for poll in polls}) == 1
    assert max(poll["wait_ms"] for poll in polls) <= POLL_S_MAX * 1000
    await holding.release()
    held = await waiting
    assert not late.done(), "whoever came later is served later"
    await held.release()
    await (await late).release()


async def test_t58_a_wait_that_is_given_up_is_undone_at_the_cluster(
    client: Client, rival: Client, cluster: FakeCluster
) -> None:
    """T58: by its own deadline, by a time-out around it, and by a cancellation."""
    async with rival.lease(KEY, ttl=30, owner="a"):
        with pytest.raises(tenure.LeaseUnavailable):
            await client.lease(KEY, ttl=30, owner="b").acquire(wait=0.05)
        assert cluster.left() == ([KEY], [])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.lease(KEY, ttl=30, owner="b").acquire(wait=60)
        await until(lambda: cluster.left() == ([KEY], []))
        waiting = asyncio.create_task(client.lease(KEY, ttl=30, owner="b").acquire(wait=60))
        await waits(cluster)
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: cluster.left() == ([KEY], []))
    assert await client.get(KEY) is None


async def test_t69_a_lock_does_not_outlive_its_owners_heartbeat(rival: Client, cluster: FakeCluster) -> None:
    """T69: the owner ends without a word; its handle is not believed in, and the key is free after a TTL."""
    client = cluster.connect()
    held = await client.lease(KEY, ttl=30, owner="a").acquire()
    await cluster.pass_time(300)
    assert held.state is State.HELD, "for as long as there is a heartbeat"
    await client.close()
    assert held.state is State.LOST
    assert cluster.left() == ([KEY], [])
    began = cluster.clock.now()
    waiting = asyncio.create_task(rival.lease(KEY, ttl=30, owner="b").acquire(wait=120))
    await waits(cluster)
    while not waiting.done():
        assert cluster.clock.now() <= began + 45
        await cluster.pass_time(0.5)
        await asyncio.sleep(0.005)
    await waiting.result().release()


async def test_t70_a_task_that_is_delivered_again_finds_that_it_is_being_worked_on(
    client: Client, rival: Client, cluster: FakeCluster
) -> None:
    """T70: it is told by whom, or waits; when it takes over, it has the higher token, and the first can't
    write any more."""
    first = await client.lease("task/1", ttl=30, owner="delivery-1", metadata={"worker": "w1"}).acquire()
    with pytest.raises(tenure.LeaseUnavailable) as busy:
        await rival.lease("task/1", ttl=30, owner="delivery-2").acquire()
    assert busy.value.holder is not None
    assert busy.value.holder.owner == "delivery-1"
    await cluster.pass_time(600)
    assert first.state is State.HELD, "however long the task takes"
    assert cluster.expire_now("task/1")
    second = await rival.lease("task/1", ttl=30, owner="delivery-2").acquire()
    assert second.token > first.token
    with pytest.raises(tenure.CommitRefused):
        await first.commit("by the first")
    assert first.state is State.LOST
    await second.commit("by the second")
    record = await client.record("task/1")
    assert record is not None
    assert record.value == "by the second"
    await second.release()


async def test_t71_two_attempts_of_one_name_are_two(
    client: Client, rival: Client, cluster: FakeCluster
) -> None:
    """T71: the name of the owner opens nothing; lease id and token do."""
    first = await client.lease(KEY, ttl=30, owner="worker-1").acquire()
    with pytest.raises(tenure.LeaseUnavailable):
        await rival.lease(KEY, ttl=30, owner="worker-1").acquire()
    assert cluster.expire_now(KEY)
    second = await rival.lease(KEY, ttl=30, owner="worker-1").acquire()
    assert second.token > first.token
    with pytest.raises(tenure.CommitRefused):
        await client.commit(KEY, lease_id=second.lease_id, token=first.token, value="late")
    with pytest.raises(tenure.CommitRefused):
        await client.commit(KEY, lease_id=first.lease_id, token=first.token, value="late")
    with pytest.raises(tenure.LeaseLost):
        await first.release()
    assert (await client.validate(KEY, second.token)).valid
    await second.release()
