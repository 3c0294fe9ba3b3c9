"""Holders that are cut off, paused or restarted, and what they may still believe and do."""

import asyncio

import pytest
from cases_sabotage import (
    handles_wait_to_be_told,
    heartbeats_succeed,
    leases_never_expire,
    releases_go_by_the_key,
    renewers_go_on,
    whoever_has_the_name_has_the_key,
)

from tenure._handle import HandleLife, State
from tenure_chaos.sim.actor import NotGranted
from tenure_chaos.sim.stage import Missed, Stage, play
from tenure_cluster.lease import granting

TTL_MS = 5_000


async def the_holder_is_cut_off_and_comes_back(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    held.keep()
    assert (await held.commit("A was here")).ok
    successor = b.begin(b.acquire("k", ttl_ms=TTL_MS, wait_s=60))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    nodes = list(stage.world.nodes)
    stage.cut([a.host], nodes)
    stage.cut(nodes, [a.host])
    await stage.until(lambda: not held.held, "A's handle is LOST while nothing is heard from anybody")
    lost_at = stage.now
    assert held.life.reason == "expired"
    granted = await successor
    assert lost_at < stage.granted_at("k", granted.token), "B was granted the key while A said HELD"
    stage.mend()
    late = await held.commit("A writes late", require_live=False)
    assert late.code == "stale_token", "A's late write passed the guard"
    assert await b.record("k") == "A was here"
    assert (await granted.commit("B is here")).ok


def test_a_holder_that_is_cut_off_stops_before_its_successor_begins() -> None:
    """T1: the first handle is LOST by its own clock before the second grant; its late write fails the
    guard."""
    play(the_holder_is_cut_off_and_comes_back)


def test_without_the_floor_of_the_grant_the_late_write_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granting, "_raise_floor_by_grant", lambda step, lease, slots: None)
    with pytest.raises(AssertionError, match="late write passed"):
        play(the_holder_is_cut_off_and_comes_back)


def test_a_handle_without_a_clock_of_its_own_is_held_beside_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handles_wait_to_be_told(monkeypatch)
    with pytest.raises(Missed, match="A's handle is LOST"):
        play(the_holder_is_cut_off_and_comes_back)


async def every_answer_is_lost(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    keeping = held.keep()
    successor = b.begin(b.acquire("k", ttl_ms=TTL_MS, wait_s=60))
    await stage.until(lambda: stage.effects("Renew"), "A renews")
    stage.cut(list(stage.world.nodes), [a.host])
    await stage.until(lambda: held.state is State.AT_RISK, "A's handle says that it is AT_RISK")
    await stage.until(lambda: held.state is State.LOST, "A's handle is LOST without any answer")
    assert held.life.valid_until - 0.1 < a.now < held.life.valid_until + 0.1
    lost_at = stage.now
    await stage.within(1.0, keeping, "A renews no more")
    renewals = len(stage.effects("Renew"))
    granted = await stage.within(3 * TTL_MS / 1000, successor, "the key is free again")
    assert lost_at < stage.granted_at("k", granted.token)
    assert len(stage.effects("Renew")) == renewals, "a lease was kept alive that its holder calls LOST"


def test_loss_is_told_by_a_timer_and_ends_the_renewals() -> None:
    """T10, T13, T26: renewals arrive, and every answer hangs in the partition. The holder says AT_RISK, then
    LOST, by its own timer; after that nobody keeps the lease alive."""
    play(every_answer_is_lost)


def test_a_renewer_that_outlives_its_handle_keeps_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    renewers_go_on(monkeypatch)
    with pytest.raises(Missed, match="renews no more"):
        play(every_answer_is_lost)


async def the_holder_sleeps_through_its_lease(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("attempt 1"), stage.actor("attempt 2")
    held = await a.acquire("job", ttl_ms=TTL_MS)
    held.keep()
    assert (await held.commit("begun")).ok
    again = await b.try_acquire("job", ttl_ms=TTL_MS)
    assert again.code == "held", "a second delivery ran beside the first"
    successor = b.begin(b.acquire("job", ttl_ms=TTL_MS, wait_s=60))
    a.pause()
    granted = await successor
    assert granted.token > held.token
    assert (await granted.commit("done by the second")).ok
    a.resume()
    assert held.state is State.LOST, "the first thing that A reads after its pause is HELD"
    late = await held.commit("done by the first", require_live=False)
    assert late.code == "stale_token"
    assert await b.record("job") == "done by the second"
    assert (await granted.release()).ok
    assert (await a.acquire("job", ttl_ms=TTL_MS)).token > granted.token


def test_a_paused_holder_reads_lost_first_and_its_job_goes_on_elsewhere() -> None:
    """T24, T70: the handle's state is evaluated at every read; the second delivery waits, then has the higher
    token. The same program can acquire anew."""
    play(the_holder_sleeps_through_its_lease)


def test_a_handle_whose_state_is_set_by_its_renewer_is_held_after_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HandleLife, "state", lambda self, now: self._state)
    with pytest.raises(AssertionError, match="is HELD"):
        play(the_holder_sleeps_through_its_lease)


async def a_worker_starts_again_under_its_name(stage: Stage) -> None:
    await stage.start()
    before, after = stage.actor("before"), stage.actor("after")
    old = await before.open_session(TTL_MS, owner="worker-1")
    held = await before.acquire("k", owner="worker-1", session_id=old)
    before.vanish()
    new = await after.open_session(TTL_MS, owner="worker-1")
    keeping = after.keep_session(new, TTL_MS / 3000)
    tried = await after.try_acquire("k", owner="worker-1", session_id=new)
    assert tried.code == "held", "the new session was given what the dying one holds"
    granted = await after.acquire("k", owner="worker-1", session_id=new, wait_s=60)
    assert granted.lease_id != held.lease_id
    assert granted.token > held.token
    assert (await after.renew_session(old)).code == "session_expired"
    assert (await after.close_session(old)).code == "session_expired"
    holder = await after.holder("k")
    assert holder is not None
    assert holder["token"] == granted.token
    keeping.cancel()


def test_a_new_session_does_not_own_what_its_predecessor_left() -> None:
    """T16: ownership is bound to the new lease id, never to a leftover record of the same name."""
    play(a_worker_starts_again_under_its_name)


def test_a_new_session_that_trusts_the_name_owns_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whoever_has_the_name_has_the_key(monkeypatch)
    with pytest.raises(AssertionError, match="what the dying one holds"):
        play(a_worker_starts_again_under_its_name)


async def two_attempts_of_one_worker(stage: Stage) -> None:
    await stage.start()
    first, second = stage.actor("attempt 1"), stage.actor("attempt 2")
    held = await first.acquire("k", owner="worker-1", ttl_ms=TTL_MS)
    tried = await second.try_acquire("k", owner="worker-1", ttl_ms=TTL_MS)
    assert tried.code == "held", "the second attempt was given the lease of the first"
    granted = await second.acquire("k", owner="worker-1", ttl_ms=4 * TTL_MS, wait_s=60)
    assert (await held.renew()).answer["reason"] == "expired"
    assert (await held.release()).answer["reason"] == "expired"
    assert (await held.commit("by the first", require_live=False)).code == "stale_token"
    holder = await second.holder("k")
    assert holder is not None, "the first attempt's release took the second one's lease"
    assert holder["token"] == granted.token
    assert (await granted.commit("by the second")).ok


def test_two_attempts_under_one_name_are_two_parties() -> None:
    """T71: every check is on lease id and token, never on the owner's name."""
    play(two_attempts_of_one_worker)


def test_two_attempts_are_one_where_the_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    whoever_has_the_name_has_the_key(monkeypatch)
    with pytest.raises(AssertionError, match="the lease of the first"):
        play(two_attempts_of_one_worker)


def test_a_release_by_key_takes_the_other_attempts_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    releases_go_by_the_key(monkeypatch)
    with pytest.raises(AssertionError, match="the second one's lease"):
        play(two_attempts_of_one_worker)


async def a_lease_lapses_unnoticed(stage: Stage) -> None:
    await stage.start()
    a = stage.actor("A")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    a.pause()
    await stage.until(lambda: stage.events("expired", "k"), "the lease has expired, and nobody wants the key")
    a.resume()
    [(effect, event)] = stage.events("expired", "k")
    assert event["token"] == held.token
    assert event["wall_ms"] > 0
    assert effect.at_ms == event["at_ms"]
    renewed = await held.renew()
    assert not renewed.ok, "a heartbeat of an expired lease reported success"
    assert (renewed.code, renewed.answer["reason"]) == ("lost", "expired")
    released = await held.release()
    assert (released.code, released.answer["reason"]) == ("lost", "expired")
    assert (await held.commit("too late")).code == "not_live"
    again = await a.acquire("k", ttl_ms=TTL_MS)
    assert again.token > held.token
    assert (await again.renew()).ok


def test_a_lapsed_holder_is_told_by_its_next_call_and_acquires_anew() -> None:
    """T25, T35: the next call, whichever it is, says lost and why; so does the event, with its time. The key
    is free, and still the renewal is refused. The program acquires again without a restart."""
    play(a_lease_lapses_unnoticed)


def test_a_heartbeat_that_is_not_checked_reports_success(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeats_succeed(monkeypatch)
    with pytest.raises(AssertionError, match="reported success"):
        play(a_lease_lapses_unnoticed)


async def a_worker_is_killed(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    assert (await a.try_acquire("job")).code == "invalid", "a lock without a time has been granted"
    held = await a.acquire("job", ttl_ms=TTL_MS)
    held.keep()
    await asyncio.sleep(3 * TTL_MS / 1000)
    a.die()
    died_at = stage.now
    granted = await b.acquire("job", ttl_ms=TTL_MS, wait_s=12)
    waited_s = stage.granted_at("job", granted.token) - died_at
    assert waited_s < TTL_MS / 1000 + 0.3, "a dead worker kept its lock"


def test_a_killed_workers_lock_is_free_within_its_ttl() -> None:
    """T69: however long it has held, a worker that is killed keeps its key for a TTL at most; there is no
    lock without one."""
    play(a_worker_is_killed)


def test_a_lock_without_a_heartbeat_outlives_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    leases_never_expire(monkeypatch)
    with pytest.raises(NotGranted):
        play(a_worker_is_killed)
