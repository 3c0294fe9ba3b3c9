"""Whose time counts against a lease, and how long a dead holder can keep a key."""

import asyncio

import pytest
from cases_sabotage import (
    contenders_judge_by_their_own_ttl,
    expiry_does_not_look_again,
    leaderless_time_counts,
    leaders_do_not_tick,
    leases_live_by_the_wall_clock,
)

from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.stage import Stage, play
from tenure_cluster.lease.commands import ExpireItem
from tenure_cluster.lease.results import Done

TTL_MS = 5_000


async def revokes_outlive_their_leader(stage: Stage) -> None:
    old = await stage.start()
    a = stage.actor("A")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    assert old.replica is not None
    [session] = old.replica.table.sessions.values()
    revoke = ExpireItem("session", session.tenant, session.session_id, session.deadline_ms)
    await asyncio.sleep(1.0)
    stage.cut_off(old, also=[a])
    held.keep()
    new = await stage.leader(not_in=(old,))
    await stage.until(lambda: stage.effects("Renew"), "A has renewed under the new leader")
    assert new.service is not None
    await stage.until(lambda: new.raft is not None and new.raft.now_ms() > revoke.deadline_ms, "it is due")
    settled: list[object] = []
    stage.world.loop.spawn(new.process, new.service.proposer.expire, [revoke], settled.append)
    await stage.until(lambda: settled, "the deposed leader's revoke is applied under the new one")
    assert settled == [Done(0)], "the revoke ended a lease that had been renewed"
    stage.mend()
    await stage.alike()
    await asyncio.sleep(TTL_MS / 1000)
    assert stage.events("expired", "k") == []
    assert held.held


def test_a_deposed_leaders_revoke_spares_the_renewed_lease() -> None:
    """T4: an expiry carries the deadline that was seen; applied under a later leader it is checked again."""
    play(revokes_outlive_their_leader)


def test_a_revoke_that_is_not_checked_again_ends_a_renewed_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    expiry_does_not_look_again(monkeypatch)
    with pytest.raises(AssertionError, match="had been renewed"):
        play(revokes_outlive_their_leader)


async def nobody_leads_for_longer_than_the_ttl(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    await asyncio.sleep(1.0)
    nodes = list(stage.world.nodes.values())
    stage.kill(*nodes)
    await asyncio.sleep(6 * TTL_MS / 1000)
    stage.restart(*nodes)
    await stage.leader()
    back_at = stage.now
    tried = await b.try_acquire("k", ttl_ms=TTL_MS)
    assert tried.code == "held", "the time without a leader was counted against the lease"
    assert (await held.renew()).ok
    granted = await b.acquire("k", ttl_ms=TTL_MS, wait_s=30)
    taken_over_s = stage.granted_at("k", granted.token) - back_at
    assert TTL_MS / 1000 * 0.99 < taken_over_s < TTL_MS / 1000 + 1.0


def test_time_without_a_leader_ends_no_lease_and_starts_none_anew() -> None:
    """T7: nobody could renew, so nothing lapsed; from the first renewal on the TTL counts as ever."""
    play(nobody_leads_for_longer_than_the_ttl)


def test_a_clock_that_runs_on_without_a_leader_ends_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    leaderless_time_counts(monkeypatch)
    with pytest.raises(AssertionError, match="counted against"):
        play(nobody_leads_for_longer_than_the_ttl)


async def wrong_clocks_everywhere(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    held.keep()
    b.client.clock.rate = 50.0
    for day in (1, -2, 1, 365, -365):
        for node in stage.world.nodes.values():
            node.clock.step_wall(day * 86_400_000)
        for _ in range(4):
            await asyncio.sleep(0.5)
            tried = await b.try_acquire("k", ttl_ms=1_000)
            assert tried.code == "held", "a clock that is wrong took the key from its holder"
            assert tried.answer["holder"]["token"] == held.token
    assert held.held
    a.vanish()
    sent_at = max(call.answered_attempt_at for call in stage.world.history.calls if call.client == a.host)
    b.client.clock.rate = 1.0
    granted = await b.acquire("k", ttl_ms=1_000, wait_s=30)
    assert stage.granted_at("k", granted.token) >= sent_at + TTL_MS / 1000 / 1.006


def test_no_wall_clock_and_no_clients_clock_decides_anything() -> None:
    """T9: a contender whose clock runs fifty times too fast, and nodes whose wall clocks jump by days and
    years."""
    play(wrong_clocks_everywhere)


def test_a_wall_clock_in_the_decision_takes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    leases_live_by_the_wall_clock(monkeypatch)
    with pytest.raises(AssertionError, match="is wrong took the key"):
        play(wrong_clocks_everywhere)


async def a_contender_is_in_a_hurry(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    asked_at = stage.now
    await a.acquire("k", ttl_ms=4 * TTL_MS)
    while True:
        tried = await b.try_acquire("k", ttl_ms=1_000)
        if tried.ok:
            break
        await asyncio.sleep(0.3)
    held_s = stage.granted_at("k", tried.answer["lease"]["token"]) - asked_at
    assert held_s >= 4 * TTL_MS / 1000 / 1.006, "the contender's own TTL ended the holder's lease"


def test_a_contender_with_a_short_ttl_waits_for_the_holders_long_one() -> None:
    """T12: the TTL is a property of the held lease only."""
    play(a_contender_is_in_a_hurry)


def test_a_contender_that_judges_by_its_own_ttl_steals(monkeypatch: pytest.MonkeyPatch) -> None:
    contenders_judge_by_their_own_ttl(monkeypatch)
    with pytest.raises(AssertionError, match="contender's own TTL"):
        play(a_contender_is_in_a_hurry)


CHANGES = 8


async def leaders_change_over_a_dead_holder(stage: Stage) -> None:
    leader: SimNode = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    await a.acquire("k", ttl_ms=TTL_MS)
    [grant] = stage.events("granted", "k")
    a.vanish()
    successor = b.begin(b.acquire("k", ttl_ms=TTL_MS, wait_s=600))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    leaderless_s, changes = 0.0, 0
    while not successor.done():
        await asyncio.sleep(1.2)
        assert changes < CHANGES, f"the dead holder has the key after {changes} changes of leader"
        stage.kill(leader)
        since, dead = stage.now, leader
        leader = await stage.leader()
        leaderless_s += stage.now - since
        stage.restart(dead)
        changes += 1
    freed_s = stage.granted_at("k", (await successor).token) - grant[0].first_applied_at
    assert changes >= 3
    assert TTL_MS / 1000 / 1.006 < freed_s < TTL_MS / 1000 * 1.006 + leaderless_s + 1.0 * changes


def test_frequent_elections_do_not_keep_a_dead_holder() -> None:
    """T59: a crashed holder's key is free within TTL, total leaderless time, and a tick per change."""
    play(leaders_change_over_a_dead_holder)


def test_without_ticks_every_election_gives_a_dead_holder_its_time_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaders_do_not_tick(monkeypatch)
    with pytest.raises(AssertionError, match="dead holder has the key"):
        play(leaders_change_over_a_dead_holder)
