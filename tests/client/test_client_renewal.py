"""The renewal thread: one for all, what it survives, and that nothing is believed in without it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest
from client_steps import until

import tenure
from tenure import Client, State, _background
from tenure._background import THREAD_NAME
from tenure._kept import KeptSession
from tenure.testing import FakeCluster

KEY = "job/7"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


def renewal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


async def test_a_lease_is_held_for_as_long_as_it_is_renewed(cluster: FakeCluster, client: Client) -> None:
    async with client.lease(KEY, ttl=30) as held:
        token = held.token
        await cluster.pass_time(300)
        assert (held.state, held.token) == (State.HELD, token)
        assert 25 <= cluster.calls["/v1/renew"] <= 35
        assert cluster.left() == ([KEY], [])


async def test_a_thousand_leases_cost_one_heartbeat(cluster: FakeCluster, client: Client) -> None:
    """And one thread, whatever the number of clients."""
    async with cluster.connect() as other, other.lease("other", ttl=30):
        leases = [client.lease(f"job/{number}", ttl=30) for number in range(1_000)]
        handles = await asyncio.gather(*(lease.acquire() for lease in leases))
        assert len({handle.session_id for handle in handles}) == 1
        assert cluster.calls["/v1/sessions"] == 2
        assert len(renewal_threads()) == 1
        cluster.calls.clear()
        await cluster.pass_time(60)
        assert all(handle.state is State.HELD for handle in handles)
        assert cluster.calls["/v1/renew"] <= 2 * 7
        assert cluster.calls["/v1/batch"] == 0
        await asyncio.gather(*(handle.release() for handle in handles))
        assert cluster.left() == (["other"], [])


async def test_the_thread_ends_with_the_last_client_that_needed_it(cluster: FakeCluster) -> None:
    async with (
        cluster.connect() as client,
        cluster.connect() as other,
        client.lease(KEY),
        other.lease("other"),
    ):
        assert len(renewal_threads()) == 1
    await until(lambda: not renewal_threads())
    async with cluster.connect() as client, client.lease(KEY) as held:
        assert held.is_held
        assert len(renewal_threads()) == 1


async def test_t13_missed_renewals_surface_as_at_risk_and_then_as_lost(
    cluster: FakeCluster, client: Client
) -> None:
    """T13, T10: the loss comes from the local clock; no answer is needed for it."""
    held = await client.lease(KEY, ttl=30).acquire()
    with cluster.partition():
        await cluster.pass_time(16)
        assert held.state is State.AT_RISK
        held.check()
        await cluster.pass_time(15)
        assert (held.state, held.lost_reason) == (State.LOST, "expired")
        await asyncio.wait_for(held.lost.wait(), 5)


async def test_t1_the_handle_is_lost_before_the_cluster_grants_again(
    cluster: FakeCluster, client: Client
) -> None:
    """T1: seen from both sides, in steps of a fifth of a second."""
    async with cluster.connect() as rival:
        held = await client.lease(KEY, ttl=30).acquire()
        with cluster.partition():
            while held.is_held:
                await cluster.pass_time(0.2)
                assert not held.is_held or cluster.left()[0] == [KEY]
        assert cluster.left()[0] == [KEY], "the cluster waits longer than the holder believes"
        successor = await rival.lease(KEY, ttl=30).acquire(wait=30)
        assert successor.token > held.token
        with pytest.raises(tenure.CommitRefused) as refused:
            await client.commit(KEY, lease_id=held.lease_id, token=held.token, value="late")
        assert refused.value.code == "stale_token"
        await successor.release()


async def test_t22_t30_a_cluster_that_is_away_for_half_a_ttl_costs_no_lease(
    cluster: FakeCluster, client: Client
) -> None:
    """T22, T26, T30: no leader, refused connections and lost answers are retried, not losses."""
    async with client.lease(KEY, ttl=30) as held:
        for _ in range(3):
            with cluster.partition():
                await cluster.pass_time(17)
                assert held.state is State.AT_RISK
            await cluster.pass_time(5)
            assert held.state is State.HELD
        with cluster.pause():
            await cluster.pass_time(17)
            assert held.is_held
        await cluster.pass_time(5)
        assert held.state is State.HELD


async def test_t30_an_error_that_nobody_foresaw_does_not_end_the_renewal(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T30: a fault in the transport, once."""
    async with client.lease(KEY, ttl=30) as held:
        answer = cluster.answer
        faults = ["no such thing", "nor this"]

        async def faulty(attempt):
            if faults and attempt.target == "/v1/renew":
                raise ZeroDivisionError(faults.pop())
            return await answer(attempt)

        monkeypatch.setattr(cluster, "answer", faulty)
        await cluster.pass_time(60)
        assert not faults
        assert held.state is State.HELD


async def test_t25_what_the_cluster_has_ended_is_lost_at_the_next_renewal(
    cluster: FakeCluster, client: Client
) -> None:
    """T25, T26: the answer to a renewal is looked at, and afterwards nothing is renewed."""
    held = await client.lease(KEY, ttl=30).acquire()
    assert cluster.expire_now(KEY)
    await cluster.pass_time(12)
    assert (held.state, held.lost_reason) == (State.LOST, "session_expired")
    cluster.calls.clear()
    await cluster.pass_time(60)
    assert cluster.calls["/v1/renew"] == 0


async def test_one_broken_lease_of_a_session_is_lost_and_the_others_stay(
    cluster: FakeCluster, client: Client
) -> None:
    """T15, T35: renewing the session says nothing of a single lease, so each is asked for."""
    handles = [await client.lease(f"job/{number}", ttl=30).acquire() for number in range(3)]
    await client.break_("job/1", reason="test")
    await cluster.pass_time(12)
    await asyncio.wait_for(handles[1].lost.wait(), 5)
    assert [handle.state for handle in handles] == [State.HELD, State.LOST, State.HELD]
    assert handles[1].lost_reason == "broken"
    cluster.calls.clear()
    await cluster.pass_time(30)
    assert cluster.calls["/v1/batch"] == 0, "they agree again"
    await handles[0].release()
    await handles[2].release()


async def test_t21_if_the_renewal_ends_by_a_fault_of_its_own_the_handle_is_lost(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T21: the loop can't end while a handle is HELD without making it LOST."""
    held = await client.lease(KEY, ttl=30).acquire()

    def faulty(session: KeptSession, sent_at: float, remaining_ms: int) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(KeptSession, "renewed", faulty)
    cluster.clock.jump(11)
    await asyncio.wait_for(held.lost.wait(), 5)
    assert held.state is State.LOST


async def test_t21_if_the_whole_thread_ends_every_handle_is_lost(
    cluster: FakeCluster, client: Client
) -> None:
    """T21."""
    handles = [await client.lease(f"job/{number}", ttl=30).acquire() for number in range(3)]
    thread = _background._shared.thread
    assert thread is not None
    thread.stop(wait=True)
    assert [handle.state for handle in handles] == [State.LOST] * 3
    again = await client.lease("job/again", ttl=30).acquire()
    assert again.is_held, "a new thread was started"
    await again.release()


async def test_t32_a_body_that_blocks_its_event_loop_keeps_its_lease(
    cluster: FakeCluster, client: Client
) -> None:
    """T32: in real time, for one and a half times the TTL."""
    async with client.lease(KEY, ttl=1) as held:
        time.sleep(1.5)  # noqa: ASYNC251 -- that is the case
        assert held.is_held
        held.check()


async def test_a_suspended_process_reads_lost_before_anything_else(
    cluster: FakeCluster, client: Client
) -> None:
    """T24: after the pause nothing has had time to run."""
    held = await client.lease(KEY, ttl=30).acquire()
    cluster.clock.jump(31)
    assert held.state is State.LOST
    assert held.expires_in == 0
    with pytest.raises(tenure.LeaseLost):
        held.check()


async def test_t46_a_lease_that_was_released_is_not_renewed_any_more(
    cluster: FakeCluster, client: Client
) -> None:
    """T46, T33: and neither is its session."""
    async with client.lease(KEY, ttl=30):
        pass
    cluster.calls.clear()
    await cluster.pass_time(120)
    assert cluster.calls["/v1/renew"] == 0


async def test_an_idle_session_is_used_again_while_it_has_time(cluster: FakeCluster, client: Client) -> None:
    async with client.lease("one", ttl=30):
        pass
    async with client.lease("two", ttl=30):
        pass
    assert cluster.calls["/v1/sessions"] == 1
    cluster.clock.jump(20)
    async with client.lease("three", ttl=30) as held:
        assert held.expires_in > 29
    assert cluster.calls["/v1/sessions"] == 2
