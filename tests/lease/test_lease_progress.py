"""Notes of progress, leases that demand it, and the closing of sessions with much in them."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import limits, results


def test_a_note_is_kept_with_the_lease_and_told(world: World) -> None:
    world.acquire("k", lease="one")
    world.wait(1_500)
    lease = expect(results.Renewed, world.renew("one", progress=("plan", "reading", 3))).grant.lease
    assert lease.life is not None
    assert lease.life.progress is not None
    assert (lease.life.progress.step, lease.life.progress.at_ms) == ("plan", world.now_ms)
    assert [(event.kind, event.detail) for event in world.events] == [("renewed", ""), ("progress", "plan")]
    world.restart()
    (grant,) = world.table.holders(TENANT, "k")
    assert grant.lease == lease


def test_saying_the_same_again_is_no_progress(world: World) -> None:
    world.acquire("k", lease="one", ttl_ms=60_000, progress_ms=5_000)
    world.renew("one", progress=("plan", "", 1))
    world.wait(4_000)
    world.renew("one", progress=("plan", "", 1))
    assert "progress" not in world.kinds()
    world.wait(1_000)
    assert world.renew("one", progress=("plan", "", 2)) == results.Lost("expired", "no_progress")


def test_renewals_alone_do_not_keep_a_lease_that_demands_progress(world: World) -> None:
    world.acquire("k", lease="one", ttl_ms=60_000, progress_ms=5_000)
    for counter in range(3):
        world.wait(4_000)
        world.renew("one", progress=("work", "", counter))
    for _ in range(4):
        world.wait(1_000)
        world.renew("one")
    assert world.holder("k") == "A"
    world.wait(1_000)
    world.expire()
    assert [(event.kind, event.detail) for event in world.events] == [("expired", "no_progress")]


def test_however_often_progress_is_told_the_lease_stands_in_the_calendar_once(world: World) -> None:
    world.acquire("k", lease="one", ttl_ms=600_000, progress_ms=20_000)
    for counter in range(100):
        world.wait(100)
        world.renew("one", progress=("work", "", counter))
    buckets = world.table.deadlines.progress._buckets
    assert sum(len(bucket) for bucket in buckets.values()) == 1
    world.wait(20_000)
    (item,) = [item for item in world.table.due(world.now_ms, 10) if item.kind == "progress"]
    assert item.id == "one"


def test_a_lease_that_shows_no_progress_takes_nothing_else_of_its_session_with_it(world: World) -> None:
    world.open("s", ttl_ms=60_000)
    world.acquire("k", session="s", progress_ms=1_000)
    world.acquire("other", session="s")
    world.wait(1_000)
    world.expire()
    assert world.holder("k") is None
    assert world.holder("other") == "A"


def test_progress_is_demanded_from_the_claim_on_and_not_while_parked(world: World) -> None:
    world.acquire("k", lease="one", ttl_ms=60_000)
    world.acquire("k", lease="two", request="two", wait=True, ttl_ms=600_000, progress_ms=2_000)
    world.release("one")
    world.wait(4_000)
    world.claim("two")
    world.wait(1_999)
    assert world.holder("k") == "A"
    world.park("two", 60_000)
    world.wait(50_000)
    world.unpark("two")
    world.wait(1_999)
    assert world.holder("k") == "A"
    world.wait(1)
    assert world.renew("two") == results.Lost("expired", "no_progress")


def test_progress_of_one_lease_of_a_set_is_progress_of_the_set(world: World) -> None:
    world.acquire(keys=["a", "b"], lease="l", ttl_ms=60_000, progress_ms=2_000)
    world.wait(1_500)
    world.renew("l.1", progress=("x", "", 1))
    world.wait(1_500)
    world.expire()
    assert [world.holder(key) for key in "ab"] == ["A", "A"]


def test_progress_goes_with_a_lease(world: World) -> None:
    world.open("s")
    assert isinstance(world.renew(session="s", progress=("x", "", 1)), results.Invalid)


# Closing what is large


@pytest.fixture
def large(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 3)
    monkeypatch.setattr(limits, "EXPIRE_BATCH_MAX", 2)
    world.open("s", ttl_ms=600_000)
    for number in range(6):
        world.acquire(f"k{number}", session="s", lease=f"l{number}", grace_ms=5_000)
    world.acquire("busy", "X", ttl_ms=600_000)
    world.acquire("busy", session="s", request="w", wait=True)
    return world


def test_a_large_session_is_over_at_once_and_taken_away_bit_by_bit(large: World) -> None:
    assert large.close("s") == results.SessionClosed(6)
    assert large.events == []
    assert [large.holder(f"k{number}") for number in range(6)] == [None] * 6
    assert large.renew("l3") == results.Lost("session_closed")
    assert large.acquire("new", session="s") == results.NoSession()
    assert large.close("s") == results.NoSession()
    entries = 0
    while large.table.session(TENANT, "s") is not None:
        large.expire()
        entries += 1
        assert len(large.events) <= 2 * limits.EXPIRE_BATCH_MAX
    assert entries > 2
    assert large.table.waiters == {}
    assert large.acquire("new", session="s") == results.NoSession()


def test_what_a_large_closed_session_held_is_free_for_the_next_who_asks(large: World) -> None:
    large.acquire("k5", "W", request="r", wait=True)
    large.close("s")
    assert isinstance(large.acquire("k4", "Y"), results.Granted)
    assert isinstance(large.acquire("busy", "Y", wait=True, request="y"), results.Waiting)
    assert large.queue("busy") == ["Y"]
    while large.table.session(TENANT, "s") is not None:
        large.expire()
    assert large.holder("k5") == "W"


def test_a_large_closed_session_survives_a_restart_as_closed(large: World) -> None:
    large.close("s")
    large.restart()
    assert large.renew("l0") == results.Lost("session_closed")
    while large.table.session(TENANT, "s") is not None:
        large.expire()
    assert not [lease for lease in large.table.leases.values() if lease.session_id == "s"]
