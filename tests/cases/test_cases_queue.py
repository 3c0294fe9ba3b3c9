"""Waiting for a key: who stays in the queue, who leaves it, and how the key is handed on."""

import asyncio
from dataclasses import replace

import pytest
from cases_sabotage import (
    callers_who_hang_up_are_not_noticed,
    dead_sessions_keep_their_place,
    hand_off_is_left_to_the_next_request,
    polls_do_not_refresh,
    requests_are_not_remembered,
    silence_ends_a_waiter_after,
    silence_ends_nothing,
    tries_queue,
)

from tenure import _requests
from tenure_chaos.sim.stage import Missed, Stage, play
from tenure_chaos.sim.workloads.calls import How
from tenure_cluster.lease.limits import CLAIM_WINDOW_MS, POLL_SLICE_MS, WAITER_SILENCE_MS

TTL_MS = 5_000


async def a_waiter_outlives_its_ttl(stage: Stage) -> None:
    await stage.start()
    a, dead, b = stage.actor("A"), stage.actor("dead"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=60_000)
    dead.begin(dead.acquire("k", ttl_ms=TTL_MS, wait_s=600))
    await stage.until(lambda: len(stage.events("queue_joined", "k")) == 1, "the one that dies waits first")
    dead.vanish()
    waiting = b.begin(b.acquire("k", ttl_ms=TTL_MS, wait_s=600))
    await asyncio.sleep(4 * TTL_MS / 1000)
    assert stage.events("queue_left", "k") == [], "a waiter's TTL ran while it was waiting"
    released_at = stage.now
    assert (await held.release()).ok
    granted = await waiting
    assert stage.now - released_at < CLAIM_WINDOW_MS / 1000 + 1.0
    assert granted.answer["lease"]["expires_in_ms"] > 0.98 * TTL_MS
    assert (await granted.renew()).ok
    [_, to_the_dead, to_b] = [event["token"] for _, event in stage.events("granted", "k")]
    assert to_the_dead < to_b == granted.token


def test_a_waiter_lives_while_it_waits_and_a_dead_one_is_passed_over() -> None:
    """T3: a wait of four TTLs ends with a whole one; the dead waiter before it costs a claim window."""
    play(a_waiter_outlives_its_ttl)


def test_a_waiter_whose_ttl_runs_is_gone_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    silence_ends_a_waiter_after(TTL_MS, monkeypatch)
    with pytest.raises(AssertionError, match="ran while it was waiting"):
        play(a_waiter_outlives_its_ttl)


async def a_waiter_vanishes(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    held.keep()
    b.begin(b.acquire("k", ttl_ms=TTL_MS, wait_s=600))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    b.vanish()
    gone = await stage.until(
        lambda: stage.events("queue_left", "k"),
        "the orphan has left the queue",
        within_s=WAITER_SILENCE_MS / 1000 + 2.0,
    )
    assert gone[0][1]["detail"] == "silent"
    assert await a.queue("k") == []
    assert held.held


def test_an_orphan_waiter_disappears() -> None:
    """T40: a waiter of whom nothing is heard for two slices has left the queue."""
    play(a_waiter_vanishes)


def test_an_orphan_stays_where_silence_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    silence_ends_nothing(monkeypatch)
    with pytest.raises(Missed, match="the orphan has left"):
        play(a_waiter_vanishes)


async def tries_fail_again_and_again(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=2 * TTL_MS)
    assert leader.replica is not None
    table = leader.replica.table
    sizes = (len(table.sessions), len(table.leases), len(table.waiters), len(table.ended))
    lefts = []
    for _ in range(30):
        tried = await b.try_acquire("k", ttl_ms=TTL_MS)
        assert tried.code == "held", "a try that cannot wait has queued"
        holder = await b.holder("k")
        assert holder is not None
        lefts.append(holder["expires_in_ms"])
        await asyncio.sleep(0.1)
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[0] - lefts[-1] > 2_800, "failed tries refreshed the holder's lease"
    assert await b.queue("k") == []
    assert sizes == (len(table.sessions), len(table.leases), len(table.waiters), len(table.ended))
    assert (await held.release()).ok
    await asyncio.sleep(1.0)
    assert await b.holder("k") is None


def test_failed_tries_queue_nothing_and_refresh_nobody() -> None:
    """T43: thirty refused tries leave the table as it was, and the holder's time runs on."""
    play(tries_fail_again_and_again)


def test_tries_that_queue_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_queue(monkeypatch)
    with pytest.raises(AssertionError, match="cannot wait has queued"):
        play(tries_fail_again_and_again)


async def a_waiter_waits_for_six_minutes(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=30_000)
    held.keep()
    waiting = b.begin(b.acquire("k", ttl_ms=30_000, wait_s=1_000))
    for _ in range(4):
        await asyncio.sleep(90)
        assert stage.events("queue_left", "k") == [], "a live waiter was evicted"
    assert len(stage.events("queue_joined", "k")) == 1
    assert (await held.release()).ok
    assert (await stage.within(1.0, waiting, "the waiter is woken")).token > held.token


def test_a_waiter_that_polls_is_never_too_old() -> None:
    """T51: what keeps a waiter is its own poll; its age ends nothing."""
    play(a_waiter_waits_for_six_minutes)


def test_waiters_whose_polls_count_for_nothing_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    polls_do_not_refresh(monkeypatch)
    with pytest.raises(AssertionError, match="was evicted"):
        play(a_waiter_waits_for_six_minutes)


async def the_news_of_the_hand_off_is_lost(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=30_000)
    waiting = b.begin(b.acquire("k", ttl_ms=30_000, wait_s=600))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    b.client.lose_reply = 1.0
    assert (await held.release()).ok
    [_, (_, handed)] = stage.events("granted", "k")
    stage.kill(leader)
    b.client.lose_reply = 0.0
    granted = await stage.within(4.0, waiting, "the next poll finds the grant")
    assert granted.token == handed["token"]
    assert granted.answer["lease"]["expires_in_ms"] > 25_000


def test_a_hand_off_whose_news_is_lost_is_found_by_the_next_poll() -> None:
    """T52: the hand-off is state. The leader dies with the message; the waiter asks again and has the key."""
    play(the_news_of_the_hand_off_is_lost)


def test_without_memory_of_the_request_the_hand_off_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    requests_are_not_remembered(monkeypatch)
    with pytest.raises(Missed, match="the next poll finds the grant"):
        play(the_news_of_the_hand_off_is_lost)


async def the_session_of_a_waiter_dies(stage: Stage) -> None:
    await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    held = await a.acquire("k", ttl_ms=60_000)
    session = await b.open_session(3_000)
    opened_at = stage.now
    waiting = b.begin(b.try_acquire("k", session_id=session, wait_s=600))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    behind = c.begin(c.acquire("k", ttl_ms=TTL_MS, wait_s=600))
    said = await stage.within(4.0, waiting, "B is told that its session has expired")
    assert said.code == "session_expired"
    assert stage.now - opened_at > 2.9
    assert (await b.try_acquire("k", session_id=session, wait_s=600)).code == "session_expired"
    assert (await held.release()).ok
    assert (await stage.within(1.0, behind, "the next live waiter has the key")).token > held.token


def test_a_waiter_whose_session_died_is_told_at_once_and_granted_nothing() -> None:
    """T54: its poll ends when the session does, long before its slice; the key goes to the next."""
    play(the_session_of_a_waiter_dies)


def test_a_dead_session_that_keeps_its_place_waits_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    dead_sessions_keep_their_place(monkeypatch)
    with pytest.raises(Missed, match="its session has expired"):
        play(the_session_of_a_waiter_dies)


async def a_key_goes_from_hand_to_hand(stage: Stage) -> None:
    await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    held = await a.acquire("k", ttl_ms=60_000)
    second = b.begin(b.acquire("k", ttl_ms=3_000, wait_s=600))
    await stage.until(lambda: len(stage.events("queue_joined", "k")) == 1, "B waits")
    third = c.begin(c.acquire("k", ttl_ms=3_000, wait_s=600))
    await stage.until(lambda: len(stage.events("queue_joined", "k")) == 2, "C waits")
    began = stage.now
    assert (await held.release()).ok
    to_b = await stage.within(0.5, second, "the next waiter has the key at once")
    assert stage.now - began < 0.1
    to_c = await stage.within(6.0, third, "B's lease ends, and C has the key")
    for ending, token in (("released", to_b.token), ("expired", to_c.token)):
        [(effect, _)] = stage.events(ending, "k")
        assert [event["token"] for event in effect.events if event["kind"] == "granted"] == [token]


def test_the_next_waiter_is_granted_in_the_entry_that_frees_the_key() -> None:
    """T55: no idle time between holders, whether the last one released or died."""
    play(a_key_goes_from_hand_to_hand)


def test_a_hand_off_that_waits_for_the_next_request_idles(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_off_is_left_to_the_next_request(monkeypatch)
    with pytest.raises(Missed, match="has the key at once"):
        play(a_key_goes_from_hand_to_hand)


async def a_caller_asks_for_more_than_a_slice(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=60_000)
    hour = {"key": "k", "owner": "B", "ttl_ms": TTL_MS, "request_id": "patient", "wait_ms": 3_600_000}
    patient = replace(_requests.acquire(hour), repeatable=False)
    began = stage.now
    said = await b.ask(patient, How(timeout_s=7_200.0))
    assert 0.99 * POLL_SLICE_MS / 1000 < stage.now - began < POLL_SLICE_MS / 1000 + 1.0
    assert said.answer["status"] == "waiting"
    assert await b.queue("k") == ["B"]
    assert held.held


def test_a_poll_lasts_no_longer_than_a_slice() -> None:
    """T58: whoever asks to wait for an hour is answered "waiting" after 25 s, and keeps its place."""
    play(a_caller_asks_for_more_than_a_slice)


async def callers_hang_up(stage: Stage) -> None:
    await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    held = await a.acquire("k", ttl_ms=60_000)
    waiting = b.begin(b.acquire("k", ttl_ms=60_000, wait_s=600))
    await stage.until(lambda: stage.events("queue_joined", "k"), "B waits")
    waiting.cancel()
    await stage.until(
        lambda: stage.events("queue_left", "k"), "the one that hung up has left the queue", within_s=4.0
    )
    assert (await held.release()).ok
    granted = await c.acquire("k", ttl_ms=60_000)
    assert (await granted.release()).ok
    # This caller can't ask again, and hangs up before its acquire is on every disk.
    for node in stage.world.nodes.values():
        node.disk.sync_min_s = node.disk.sync_max_s = 0.3
    asking = b.begin(b.asking(_requests.acquire({"key": "k", "owner": "B", "ttl_ms": 60_000})))
    await asyncio.sleep(0.2)
    asking.cancel()
    await stage.until(lambda: len(stage.events("granted", "k")) == 3, "B is granted, and was not told")
    await stage.until(
        lambda: len(stage.events("released", "k")) == 3,
        "a grant that nobody can name is given up",
        within_s=4,
    )


def test_a_caller_that_hangs_up_leaves_nothing() -> None:
    """T58: abandonment is detected and undone: a place in the queue, and a grant whose caller cannot ask
    again."""
    # The rule looks for a caller's abandon; this one is the service's own.
    play(callers_hang_up, allowing="Abandon Abandoned, was never asked for")


def test_callers_who_hang_up_unnoticed_leave_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    callers_who_hang_up_are_not_noticed(monkeypatch)
    with pytest.raises(Missed, match="has left the queue"):
        play(callers_hang_up)
