"""Leases as handles and context managers, on the real lease machine in memory."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator

import pytest
from client_steps import until

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
async def rival(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


async def test_a_block_holds_the_key_and_leaves_it_free(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=30, owner="a", metadata={"step": "1"}) as held:
        assert (held.key, held.owner, held.metadata, held.state) == (KEY, "a", {"step": "1"}, State.HELD)
        assert 29 < held.expires_in < 30
        held.check()
        seen = await client.get(KEY)
        assert seen is not None
        assert (seen.token, seen.owner) == (held.token, "a")
    assert held.state is State.RELEASED
    assert held.expires_in == 0
    assert cluster.left() == ([], [])
    with pytest.raises(tenure.LeaseLost):
        held.check()


async def test_making_a_lease_does_no_io_and_checks_what_it_can(cluster: FakeCluster, client: Client) -> None:
    client.lease(KEY)
    assert not cluster.calls
    for bad in ({"ttl": -1}, {"ttl": float("nan")}, {"wait": float("inf")}):
        with pytest.raises(tenure.InvalidRequest):
            client.lease(KEY, **bad)
    for no_key in ("", [], ["a", "a"], ["a", ""]):
        with pytest.raises(tenure.InvalidRequest):
            client.lease(no_key)


async def test_t19_the_body_is_never_entered_without_the_lease(client: Client, rival: Client) -> None:
    """T19: whatever fails, failing to acquire raises."""
    async with rival.lease(KEY, owner="b"):
        for wait in (0.0, 0.1):
            with pytest.raises(tenure.LeaseUnavailable) as refused:
                async with client.lease(KEY, wait=wait):
                    pytest.fail("entered without the lease")
            assert refused.value.holder is not None
            assert refused.value.holder.owner == "b"


async def test_t19_a_cluster_that_cannot_be_reached_raises_too(cluster: FakeCluster) -> None:
    """T19, T38."""
    async with cluster.connect(timeout=0.2) as client:
        with cluster.partition(), pytest.raises(tenure.ClusterUnavailable):
            async with client.lease(KEY):
                pytest.fail("entered without the lease")


async def test_waiting_ends_with_the_key_when_the_holder_leaves(
    cluster: FakeCluster, client: Client, rival: Client
) -> None:
    """T55, T52."""
    async with rival.lease(KEY) as first:
        waiting = asyncio.create_task(client.lease(KEY).acquire(wait=30))
        await until(lambda: bool(cluster.left()[1]))
    held = await waiting
    assert held.token > first.token
    await held.release()


async def test_blocking_false_does_not_wait(client: Client, rival: Client) -> None:
    async with rival.lease(KEY):
        with pytest.raises(tenure.LeaseUnavailable):
            await client.lease(KEY, wait=30).acquire(blocking=False)


async def test_a_lost_lease_cancels_the_body_and_raises(cluster: FakeCluster, client: Client) -> None:
    """T35: the holder's next call says LOST, with the reason."""
    with pytest.raises(tenure.LeaseLost) as lost:  # noqa: PT012 -- the block is what raises
        async with client.lease(KEY, ttl=30) as held:
            await client.break_(KEY, reason="test")
            await cluster.pass_time(15)
            await asyncio.sleep(10)
            pytest.fail("the body was not cancelled")
    assert lost.value.reason == "broken"
    assert held.lost.is_set()
    assert (held.state, held.lost_reason) == (State.LOST, "broken")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_that_ends_without_noticing_the_loss_still_raises(
    cluster: FakeCluster, client: Client
) -> None:
    with pytest.raises(tenure.LeaseLost):
        async with client.lease(KEY, ttl=30):
            cluster.clock.jump(31)


async def test_a_body_that_swallows_the_cancellation_still_raises(
    cluster: FakeCluster, client: Client
) -> None:
    with pytest.raises(tenure.LeaseLost):  # noqa: PT012 -- the block is what raises
        async with client.lease(KEY, ttl=30):
            cluster.clock.jump(31)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
    await asyncio.sleep(0)


async def test_the_bodys_own_error_goes_on_and_carries_a_note_of_the_loss(
    cluster: FakeCluster, client: Client
) -> None:
    with pytest.raises(KeyError) as raised:  # noqa: PT012 -- the block is what raises
        async with client.lease(KEY, ttl=30):
            cluster.clock.jump(31)
            raise KeyError("the body's own")
    assert "expired" in raised.value.__notes__[0]


async def test_a_cancellation_from_outside_stays_a_cancellation(cluster: FakeCluster, client: Client) -> None:
    entered = asyncio.Event()

    async def body() -> None:
        async with client.lease(KEY):
            entered.set()
            await asyncio.sleep(10)

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.left() == ([], [])


async def test_t20_nobody_is_granted_before_the_body_has_stopped_acting(
    client: Client, rival: Client
) -> None:
    """T20: the order on exit is: stop acting, then release."""
    acting: list[str] = []

    async def act(who: Client, name: str) -> None:
        async with who.lease(KEY, wait=30):
            assert not acting
            acting.append(name)
            try:
                await asyncio.sleep(0.01)
            finally:
                await asyncio.sleep(0.01)
                acting.remove(name)

    await asyncio.gather(*(act(who, f"{i}") for i in range(5) for who in (client, rival)))


async def test_two_tasks_of_one_owner_exclude_each_other(client: Client) -> None:
    """Their leases share a session as far as they can, but nobody may be granted what the other holds."""
    async with client.lease(KEY, owner="a") as first:
        with pytest.raises(tenure.LeaseUnavailable):
            await client.lease(KEY, owner="a").acquire()
        waiting = asyncio.create_task(client.lease(KEY, owner="a").acquire(wait=30))
        await asyncio.sleep(0.05)
        assert not waiting.done()
    second = await waiting
    assert second.session_id != first.session_id
    assert second.token > first.token
    await second.release()


async def test_t56_owners_that_wait_for_each_other_are_told(
    cluster: FakeCluster, client: Client, rival: Client
) -> None:
    """T56."""
    async with client.lease("x", owner="a"), rival.lease("y", owner="b"):
        waiting = asyncio.create_task(rival.lease("x", owner="b").acquire(wait=30))
        await until(lambda: bool(cluster.left()[1]))
        with pytest.raises(tenure.LeaseUnavailable) as refused:
            await client.lease("y", owner="a").acquire(wait=30)
        assert refused.value.code == "deadlock"
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_lease_can_be_acquired_again_with_a_new_handle_and_a_greater_token(
    cluster: FakeCluster, client: Client
) -> None:
    """T25: after a loss the same client goes on without a restart."""
    lease = client.lease(KEY, ttl=30)
    first = await lease.acquire()
    cluster.clock.jump(31)
    assert first.state is State.LOST
    second = await lease.acquire()
    assert second.token > first.token
    assert (first.state, second.state) == (State.LOST, State.HELD)
    await second.release()


async def test_a_lease_object_is_entered_once_at_a_time(client: Client) -> None:
    lease = client.lease(KEY)
    async with lease:
        with pytest.raises(tenure.InvalidRequest, match="entered already"):
            async with lease:
                pass
    async with lease:
        pass


async def test_commit_writes_with_the_handles_token(client: Client) -> None:
    async with client.lease(KEY) as held:
        await held.commit("done")
        with pytest.raises(tenure.CommitRefused) as refused:
            await held.commit("again")
        assert refused.value.code == "token_used"
        assert held.is_held, "a used token is no loss"
    record = await client.record(KEY)
    assert record is not None
    assert (record.value, record.token) == ("done", held.token)


async def test_commit_on_a_handle_that_knows_of_its_loss_is_not_even_sent(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY, ttl=30).acquire()
    cluster.clock.jump(31)
    cluster.calls.clear()
    with pytest.raises(tenure.LeaseLost):
        await held.commit("late")
    assert cluster.calls["/v1/commit"] == 0


async def test_a_commit_that_finds_the_lease_ended_makes_the_handle_lost(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY).acquire()
    await client.break_(KEY, reason="test")
    with pytest.raises(tenure.CommitRefused):
        await held.commit("late")
    assert held.state is State.LOST
    await asyncio.wait_for(held.lost.wait(), 5)


async def test_t37_a_release_whose_answer_is_lost_is_repeated_and_harmless(
    cluster: FakeCluster, client: Client
) -> None:
    """T37: the retry finds it released, and can't touch what was granted since."""
    held = await client.lease(KEY).acquire()
    cluster.drop_next_reply("release")
    await held.release()
    assert held.state is State.RELEASED
    assert cluster.left() == ([], [])


async def test_an_acquire_whose_answer_is_lost_finds_the_same_grant(
    cluster: FakeCluster, client: Client
) -> None:
    """T38: the same request_id finds it."""
    async with client.lease("other"):
        cluster.drop_next_reply("acquire")
        async with client.lease(KEY):
            assert cluster.left() == ([KEY, "other"], [])
    assert cluster.left() == ([], [])


async def test_t39_a_release_that_cannot_be_answered_goes_on_in_the_background(cluster: FakeCluster) -> None:
    """T39: the token is not forgotten before a definite answer."""
    async with cluster.connect(timeout=0.3) as client:
        held = await client.lease(KEY).acquire()
        with cluster.partition():
            with pytest.raises(tenure.ClusterUnavailable):
                await held.release()
            assert held.state is State.RELEASED
            assert cluster.left() == ([KEY], [])
        await until(lambda: cluster.left() == ([], []))


async def test_leaving_a_block_while_the_cluster_is_away_does_not_raise_and_releases_later(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """T39, T40."""
    async with cluster.connect(timeout=0.3) as client:
        leave = contextlib.ExitStack()
        with caplog.at_level(logging.WARNING, "tenure"):
            async with client.lease(KEY):
                leave.enter_context(cluster.partition())
        assert "goes on in the background" in caplog.text
        leave.close()
        await until(lambda: cluster.left() == ([], []))


async def test_an_abandon_that_cannot_be_answered_goes_on_in_the_background(cluster: FakeCluster) -> None:
    """T38: in a shared session a grant that nobody knows would be kept alive for ever."""
    async with cluster.connect(timeout=0.3, attempt_timeout=0.1) as client, client.lease("other", ttl=30):
        cluster.drop_next_reply("acquire")
        acquiring = asyncio.create_task(client.lease(KEY, ttl=30).acquire())
        await until(lambda: KEY in cluster.left()[0])
        with cluster.partition():
            with pytest.raises(tenure.OutcomeUnknown):
                await acquiring
            assert KEY in cluster.left()[0]
        await until(lambda: KEY not in cluster.left()[0])


async def test_releasing_twice_is_no_error(client: Client) -> None:
    held = await client.lease(KEY).acquire()
    await held.release()
    await held.release()


async def test_releasing_what_was_lost_says_so(cluster: FakeCluster, client: Client) -> None:
    held = await client.lease(KEY, ttl=30).acquire()
    await client.break_(KEY, reason="test")
    with pytest.raises(tenure.LeaseLost) as lost:
        await held.release()
    assert lost.value.reason == "broken"
    assert held.state is State.LOST


async def test_t33_a_handle_that_nobody_refers_to_any_more_is_released(
    cluster: FakeCluster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """T33: the renewal ends with the owner object."""
    async with client.lease("other", ttl=30):
        held = await client.lease(KEY, ttl=30).acquire()
        with caplog.at_level(logging.WARNING, "tenure"):
            del held
            gc.collect()
            await until(lambda: cluster.left() == (["other"], []))
    assert "dropped without releasing" in caplog.text


def test_t33_a_handle_whose_event_loop_is_gone_is_released(cluster: FakeCluster) -> None:
    """T33: the renewal ends with the task that held."""
    kept: list[object] = []

    async def forgetful() -> None:
        client = cluster.connect()
        kept.extend((client, await client.lease(KEY, ttl=30).acquire()))

    asyncio.run(forgetful())
    assert cluster.left() == ([KEY], [])
    asyncio.run(cluster.pass_time(12))

    async def freed() -> None:
        await until(lambda: cluster.left() == ([], []))

    asyncio.run(freed())
    client = kept[0]
    assert isinstance(client, Client)
    asyncio.run(client.close())


async def test_closing_the_client_loses_what_is_held_and_releases_nothing(cluster: FakeCluster) -> None:
    """T21: nobody renews it any more, so it must not be believed in; and nothing says that its holder has
    stopped, so nobody else may have it yet."""
    client = cluster.connect()
    held = await client.lease(KEY, ttl=30).acquire()
    await client.close()
    assert (held.state, held.lost_reason) == (State.LOST, "closed")
    await asyncio.wait_for(held.lost.wait(), 5)
    assert cluster.left() == ([KEY], [])


async def test_those_who_asked_are_told_of_the_loss(cluster: FakeCluster, client: Client) -> None:
    told: list[str] = []
    held = await client.lease(KEY, ttl=30).acquire()
    held.on_lost(lambda handle: told.append(handle.lost_reason))
    cluster.expire_now(KEY)
    await cluster.pass_time(12)
    await asyncio.wait_for(held.lost.wait(), 5)
    held.on_lost(lambda handle: told.append("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert told == ["session_expired", "late"]


async def test_renewing_by_hand_extends_the_validity(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=30) as held:
        cluster.clock.jump(5)
        before = held.expires_in
        assert await held.renew() > before + 4


async def test_renewing_by_hand_what_is_over_raises_and_is_a_loss(
    cluster: FakeCluster, client: Client
) -> None:
    held = await client.lease(KEY, ttl=30).acquire()
    await client.break_(KEY, reason="test")
    with pytest.raises(tenure.LeaseLost):
        await held.renew()
    assert held.state is State.LOST


async def test_t3_t54_a_session_that_ends_while_it_waits_is_replaced(
    cluster: FakeCluster, client: Client, rival: Client
) -> None:
    """T3, T54: the waiter is told at once, and queues anew in a live session as long as it has time."""
    holding = await rival.lease(KEY, ttl=300).acquire()
    waiting = asyncio.create_task(client.lease(KEY, ttl=30).acquire(wait=600))
    await until(lambda: bool(cluster.left()[1]))
    cluster.clock.jump(31)
    await until(lambda: len(cluster.left()[1]) == 1)
    await holding.release()
    held = await waiting
    assert held.is_held
    await held.release()


async def test_t3_waiting_keeps_the_waiters_session_alive(
    cluster: FakeCluster, client: Client, rival: Client
) -> None:
    """T3: a waiter with a TTL of 5 s waits 60 s, and what it is granted is a live lease."""
    holding = await rival.lease(KEY, ttl=300).acquire()
    waiting = asyncio.create_task(client.lease(KEY, ttl=5).acquire(wait=600))
    await until(lambda: bool(cluster.left()[1]))
    await cluster.pass_time(60)
    await holding.release()
    held = await waiting
    assert held.is_held
    assert held.expires_in > 4
    await held.release()
