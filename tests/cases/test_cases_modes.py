"""Holders beside one another, sets of keys, and waiters in a circle."""

import pytest
from cases_sabotage import any_reader_renews_all, circles_close, sets_are_granted_in_parts, tries_queue

from tenure_chaos.sim.stage import Missed, Stage, perform, play

TTL_MS = 5_000


async def a_reader_dies_beside_a_live_one(stage: Stage) -> None:
    await stage.start()
    live, dead, writer = stage.actor("live"), stage.actor("dead"), stage.actor("writer")
    kept = await live.acquire("k", mode="shared", ttl_ms=TTL_MS)
    kept.keep()
    left = await dead.acquire("k", mode="shared", ttl_ms=TTL_MS)
    assert left.token == kept.token, "readers of one phase have one epoch"
    died_at = stage.now
    dead.vanish()
    await stage.until(lambda: stage.events("expired", "k"), "the dead reader's lease ends", within_s=8.0)
    assert TTL_MS / 1000 / 1.006 < stage.now - died_at < TTL_MS / 1000 + 1.0
    assert kept.held
    assert (await writer.try_acquire("k", ttl_ms=TTL_MS)).code == "held"
    waiting = writer.begin(writer.acquire("k", ttl_ms=TTL_MS, wait_s=60))
    await stage.until(lambda: stage.events("queue_joined", "k"), "the writer waits")
    assert (await kept.release()).ok
    assert (await stage.within(0.5, waiting, "the writer has the key")).token > kept.token


def test_a_live_readers_renewal_keeps_no_dead_one() -> None:
    """T15: a renewal touches only what its session owns."""
    play(a_reader_dies_beside_a_live_one)


def test_a_renewal_for_all_readers_keeps_the_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    any_reader_renews_all(monkeypatch)
    with pytest.raises(Missed, match="the dead reader's lease ends"):
        perform(a_reader_dies_beside_a_live_one)


async def tries_at_a_full_pool(stage: Stage) -> None:
    await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    pool = {"mode": "permit", "slots": 2, "ttl_ms": 60_000}
    first, second = await a.acquire("pool", **pool), await b.acquire("pool", **pool)
    for _ in range(10):
        tried = await c.try_acquire("pool", **pool)
        assert tried.code == "held", "a try at a full pool has queued"
    assert await c.queue("pool") == []
    assert (await first.release()).ok
    again = await stage.within(0.5, c.acquire("pool", **pool), "the free slot is granted at the next try")
    assert again.answer["lease"]["slot"] == first.answer["lease"]["slot"]
    assert second.answer["lease"]["slot"] != again.answer["lease"]["slot"]
    assert again.token > second.token > first.token


def test_tries_at_a_full_pool_stop_nobody() -> None:
    """T42: a try that fails leaves nothing, so the next permit that comes free is granted at once."""
    play(tries_at_a_full_pool)


def test_tries_that_queue_at_a_full_pool_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_queue(monkeypatch)
    with pytest.raises(AssertionError, match="full pool has queued"):
        perform(tries_at_a_full_pool)


async def two_sessions_want_each_others_keys(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    of_a, of_b = await a.open_session(60_000), await b.open_session(60_000)
    one = await a.acquire("one", session_id=of_a)
    await b.acquire("two", session_id=of_b)
    waiting = a.begin(a.acquire("two", session_id=of_a, wait_s=60))
    await stage.until(lambda: stage.events("queue_joined", "two"), "A waits for B")
    # Who waits for whom is part of the state, so another leader knows it as well.
    stage.kill(leader)
    await stage.leader()
    refused = await b.try_acquire("one", session_id=of_b, wait_s=60)
    assert refused.code == "deadlock", "both wait for ever"
    assert refused.answer["cycle"] == ["B", "one", "A", "two"]
    assert (await b.close_session(of_b)).ok
    assert (await stage.within(3.0, waiting, "A has both keys")).key == "two"
    assert (await one.renew()).ok


def test_a_circle_of_waiting_is_refused_and_named() -> None:
    """T56: the wait that would close it is refused, also by the next leader; whoever gives way frees the
    other."""
    play(two_sessions_want_each_others_keys)


def test_a_circle_that_is_not_looked_for_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    circles_close(monkeypatch)
    with pytest.raises(AssertionError, match="both wait for ever"):
        play(two_sessions_want_each_others_keys)


async def a_set_finds_one_of_its_keys_held(stage: Stage) -> None:
    leader = await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    two = await a.acquire("two", ttl_ms=60_000)
    tried = await b.try_acquire_set(["one", "two", "three"], ttl_ms=60_000)
    assert tried.code == "held", "part of a set was granted"
    assert tried.answer["key"] == "two"
    assert await b.holder("one") is None
    waiting = b.begin(b.try_acquire_set(["one", "two", "three"], ttl_ms=60_000, wait_s=60))
    await stage.until(lambda: stage.events("queue_joined", "three"), "the set waits")
    # Until all of them are free it keeps none of them from others, but not for ever.
    assert (await (await c.acquire("one", ttl_ms=60_000)).release()).ok
    stage.kill(leader)
    await stage.leader()
    assert (await two.release()).ok
    granted = await stage.within(3.0, waiting, "the set is granted")
    assert [lease["key"] for lease in granted.answer["leases"]] == ["one", "two", "three"]
    [(of_one, _)] = stage.events("granted", "one")[1:]
    [(of_two, _)] = stage.events("granted", "two")[1:]
    assert of_one is of_two, "the keys of a set were granted in more than one entry"


def test_a_set_of_keys_is_granted_whole_or_not_at_all() -> None:
    """T48: a set is one entry, and its caller is left with nothing or with all of it, over a change of leader
    too."""
    play(a_set_finds_one_of_its_keys_held)


def test_a_set_that_is_granted_in_parts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sets_are_granted_in_parts(monkeypatch)
    with pytest.raises(AssertionError, match="part of a set was granted"):
        play(a_set_finds_one_of_its_keys_held)


async def two_sets_want_the_same_keys_in_different_orders(stage: Stage) -> None:
    await stage.start()
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    held = await c.acquire("one", ttl_ms=60_000)
    ahead = a.begin(a.try_acquire_set(["one", "two"], ttl_ms=TTL_MS, wait_s=60))
    await stage.until(lambda: stage.events("queue_joined", "two"), "the first set waits")
    behind = b.begin(b.try_acquire_set(["two", "one"], ttl_ms=TTL_MS, wait_s=60))
    await stage.until(lambda: len(stage.events("queue_joined", "two")) == 2, "both sets wait")
    assert (await held.release()).ok
    first = await stage.within(1.0, ahead, "the first set is granted")
    assert len(first.answer["leases"]) == 2
    second = await stage.within(TTL_MS / 1000 + 2.0, behind, "the second set is granted")
    assert [lease["key"] for lease in second.answer["leases"]] == ["two", "one"]


def test_two_sets_in_different_orders_make_no_circle() -> None:
    """T56: sets are taken as a whole, so whoever came first has all and the other comes next."""
    play(two_sets_want_the_same_keys_in_different_orders)
