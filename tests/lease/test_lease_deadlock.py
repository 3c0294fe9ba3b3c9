"""T56: a wait that would close a circle of sessions is refused, naming the circle; no other wait is."""

import pytest
from lease_world import TENANT, World

from tenure_cluster.lease import limits, results


def hold(world: World, session: str, *keys: str) -> None:
    world.open(session, session.upper(), ttl_ms=600_000)
    for key in keys:
        world.acquire(key, session.upper(), session=session)


def wait_for(world: World, session: str, key: str) -> results.Result:
    return world.acquire(key, session.upper(), session=session, wait=True)


def test_two_sessions_that_want_each_others_key(world: World) -> None:
    hold(world, "a", "k1")
    hold(world, "b", "k2")
    assert isinstance(wait_for(world, "a", "k2"), results.Waiting)
    assert wait_for(world, "b", "k1") == results.Deadlock(["B", "k1", "A", "k2"])
    assert world.events == []
    assert world.queue("k1") == []


def test_a_long_circle_is_found_and_named_in_the_direction_of_waiting(world: World) -> None:
    names = [f"s{number}" for number in range(40)]
    for number, name in enumerate(names):
        hold(world, name, f"k{number}")
    for number, name in enumerate(names[:-1]):
        assert isinstance(wait_for(world, name, f"k{number + 1}"), results.Waiting)
    closed = wait_for(world, names[-1], "k0")
    assert isinstance(closed, results.Deadlock)
    assert closed.cycle[:4] == ["S39", "k0", "S0", "k1"]
    assert len(closed.cycle) == 80


def test_a_session_that_waits_for_a_key_cannot_wait_for_it_again(world: World) -> None:
    """Nobody can wait for themselves: the second wait would end with the first one's lease."""
    hold(world, "a", "k")
    hold(world, "b")
    assert isinstance(wait_for(world, "b", "k"), results.Waiting)
    assert wait_for(world, "b", "k") == results.Deadlock(["B", "k"])
    assert world.queue("k") == ["B"]
    assert isinstance(world.acquire("k", "B", session="b"), results.Held)


def test_its_waiters_for_another_key_do_close_a_circle(world: World) -> None:
    hold(world, "c", "k")
    hold(world, "a")
    hold(world, "b", "mine")
    wait_for(world, "a", "k")
    wait_for(world, "b", "k")
    assert wait_for(world, "a", "mine") == results.Deadlock(["A", "mine", "B", "k"])


def test_a_circle_through_a_place_in_a_queue(world: World) -> None:
    """B waits behind A for a key of C's, so A waiting for B's key would never end."""
    hold(world, "c", "k")
    hold(world, "a")
    hold(world, "b", "mine")
    wait_for(world, "a", "k")
    wait_for(world, "b", "k")
    assert wait_for(world, "a", "mine") == results.Deadlock(["A", "mine", "B", "k"])


def test_those_behind_in_a_queue_are_not_waited_for(world: World) -> None:
    hold(world, "c", "k")
    hold(world, "a")
    hold(world, "b", "mine")
    wait_for(world, "b", "k")
    wait_for(world, "a", "k")
    assert isinstance(wait_for(world, "a", "mine"), results.Waiting)


def test_many_may_wait_for_one_and_private_sessions_close_no_circle(world: World) -> None:
    hold(world, "a", "k1")
    world.acquire("k2", "B")
    for _ in range(3):
        assert isinstance(world.acquire("k1", "B", wait=True), results.Waiting)
    assert isinstance(wait_for(world, "a", "k2"), results.Waiting)


def test_what_is_over_blocks_nobody(world: World) -> None:
    hold(world, "a", "k1")
    world.open("b", "B", ttl_ms=10_000)
    world.acquire("k2", "B", session="b")
    wait_for(world, "a", "k2")
    world.wait(10_000)
    hold(world, "c", "k3")
    assert isinstance(wait_for(world, "c", "k1"), results.Waiting)
    assert isinstance(wait_for(world, "a", "k3"), results.Deadlock)
    world.expire()
    assert world.holder("k2") == "A"


def test_tenants_do_not_wait_for_one_another(world: World) -> None:
    hold(world, "a", "k1")
    hold(world, "b", "k2")
    wait_for(world, "a", "k2")
    world.acquire("k1", "X", tenant="other")
    assert isinstance(world.acquire("k1", "X", tenant="other", wait=True), results.Waiting)


def test_the_search_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A circle that hides behind more waiters than may be looked at is let through; time-outs end it."""
    hold(world, "a", "k")
    hold(world, "z")
    world.acquire("far", "X")
    for _ in range(20):
        world.acquire("far", "X", wait=True)
    wait_for(world, "z", "far")
    wait_for(world, "z", "k")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "DEADLOCK_SEARCH_MAX", 20)
        assert isinstance(wait_for(world, "a", "far"), results.Waiting)
    world.abandon(world.table.queue(TENANT, "far")[-1].request_id, "a")
    assert wait_for(world, "a", "far") == results.Deadlock(["A", "far", "Z", "k"])
