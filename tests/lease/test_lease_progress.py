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


# Notes that come late


def holds(world: World, *notes: tuple[str, str, int]) -> None:
    """A lease that demands progress within five seconds, of which these notes were told, one a second."""
    world.acquire("k", lease="one", ttl_ms=60_000, progress_ms=5_000)
    for note in notes:
        world.renew("one", progress=note)
        assert "progress" in world.kinds()
        world.wait(1_000)


def deadline_and_note(world: World) -> tuple[int, str, int]:
    (grant,) = world.table.holders(TENANT, "k")
    assert grant.lease.life is not None
    assert grant.lease.life.progress is not None
    note = grant.lease.life.progress
    return grant.lease.life.progress_deadline_ms, note.step, note.counter


@pytest.mark.parametrize(
    "late",
    [("read", "", 3), ("read", "page 4", 4), ("write", "", 6), ("write", "done", 1)],
    ids=["left-step", "left-step-text", "present-step", "present-step-text"],
)
def test_a_note_that_comes_after_a_later_one_is_no_progress(world: World, late: tuple[str, str, int]) -> None:
    holds(world, ("read", "", 3), ("read", "", 4), ("write", "", 7))
    before = deadline_and_note(world)
    world.restart()
    assert isinstance(world.renew("one", progress=late), results.Renewed)
    assert "progress" not in world.kinds()
    assert deadline_and_note(world) == before
    world.wait(4_000)
    assert world.renew("one", progress=late) == results.Lost("expired", "no_progress")


@pytest.mark.parametrize(
    "new",
    [("write", "", 8), ("write", "checked", 7), ("read", "", 5), ("check", "", 1), ("read", "again", 0)],
    ids=["counts-on", "says-more", "back-and-further", "another-step", "without-counter"],
)
def test_a_note_that_says_what_was_not_known_is_progress(world: World, new: tuple[str, str, int]) -> None:
    holds(world, ("read", "", 4), ("write", "", 7))
    world.renew("one", progress=new)
    assert "progress" in world.kinds()
    assert deadline_and_note(world) == (world.now_ms + 5_000, new[0], new[2])


def test_of_a_bounded_number_of_steps_it_is_known_how_far_they_came(world: World) -> None:
    steps = [f"step {number}" for number in range(limits.PROGRESS_STEPS_MAX + 1)]
    holds(world, *[(step, "", 2) for step in steps])
    world.renew("one", progress=(steps[1], "", 1))
    assert "progress" not in world.kinds()
    world.renew("one", progress=(steps[0], "", 1))
    assert "progress" in world.kinds()


def test_who_takes_a_lease_up_may_count_from_the_start(world: World) -> None:
    holds(world, ("read", "", 9))
    world.park("one")
    world.unpark("one")
    world.renew("one", progress=("read", "", 1))
    assert "progress" in world.kinds()


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


@pytest.mark.parametrize("others", [0, 5], ids=["small", "large"])
def test_closing_takes_no_grace_period_from_a_lease_that_had_expired(
    world: World, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Whether its session is closed at once or bit by bit."""
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 3)
    world.open("s", ttl_ms=600_000)
    world.acquire("k", session="s", lease="late", grace_ms=60_000, progress_ms=2_000)
    world.acquire("due", session="s", lease="other", grace_ms=60_000, progress_ms=9_000)
    for number in range(others):
        world.acquire(f"k{number}", session="s", lease=f"l{number}")
    world.wait(3_000)
    world.close("s")
    world.wait(10_000)
    assert world.renew("late") == results.Lost("expired", "no_progress")
    assert world.renew("other") == results.Lost("session_closed")
    assert isinstance(world.acquire("k", "B"), results.Held)
    assert isinstance(world.acquire("due", "B"), results.Granted)
