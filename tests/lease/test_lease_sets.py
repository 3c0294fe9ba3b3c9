"""Sets of keys: all or none, in one entry. T48: nobody is left with the first of several keys. T56: asking
for them in different orders deadlocks nobody."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import limits, results, snapshot


def holders(world: World, *keys: str) -> list[str | None]:
    return [world.holder(key) for key in keys]


def leases_in(result: results.Result) -> list[tuple[str, str, int]]:
    grants = expect(results.Granted, result).grants
    return [(grant.lease.key, grant.lease.lease_id, grant.lease.token) for grant in grants]


def test_a_set_is_granted_at_once_with_a_lease_and_a_token_for_each_key(world: World) -> None:
    granted = world.acquire(keys=["b", "a", "c"], lease="l")
    assert leases_in(granted) == [("b", "l", 1), ("a", "l.1", 2), ("c", "l.2", 3)]
    assert world.kinds() == ["granted"] * 3
    assert holders(world, "a", "b", "c") == ["A"] * 3


def test_of_a_set_that_is_not_free_nothing_is_granted(world: World) -> None:
    world.acquire("c", "X")
    refused = expect(results.Held, world.acquire(keys=["a", "b", "c"]))
    assert refused.key == "c"
    assert [holder.owner for holder in refused.holders] == ["X"]
    assert holders(world, "a", "b") == [None, None]
    assert len(world.table.sessions) == 1


def test_a_waiting_set_is_granted_when_its_last_key_comes_free(world: World) -> None:
    world.acquire("a", "X", lease="x")
    world.acquire("b", "Y", lease="y")
    waiting = expect(results.Waiting, world.acquire(keys=["a", "b"], lease="s", request="s", wait=True))
    assert [holder.owner for holder in waiting.holders] == ["X", "Y"]
    world.release("x")
    assert holders(world, "a", "b") == [None, "Y"]
    world.release("y")
    assert world.kinds() == ["released", "granted", "granted"]
    assert [key for key, *_ in leases_in(world.claim("s.1"))] == ["a", "b"]


def test_others_pass_a_set_that_waits_until_it_has_waited_for_its_time(world: World) -> None:
    world.acquire("a", "X", lease="x", ttl_ms=600_000)
    world.acquire(keys=["a", "b"], owner="S", request="s", wait=True)
    assert isinstance(world.acquire("b", "Y", lease="y", ttl_ms=600_000), results.Granted)
    world.acquire("b", "Z", lease="z", request="z", wait=True)
    world.wait(limits.SET_PATIENCE_MS - 1)
    world.release("y")
    assert world.holder("b") == "Z"
    world.claim("z")
    world.wait(1)
    world.release("z")
    assert world.holder("b") is None
    assert isinstance(world.acquire("b", "Y"), results.Held)
    world.release("x")
    assert holders(world, "a", "b") == ["S", "S"]


def test_a_set_does_not_starve_however_many_come_after_it(world: World) -> None:
    """Two keys that are never free at the same time while others keep coming."""
    world.acquire("a", "X", lease="a0", ttl_ms=600_000)
    world.acquire("b", "X", lease="b0", ttl_ms=600_000)
    world.acquire(keys=["a", "b"], owner="S", request="s", wait=True, ttl_ms=600_000)
    started_ms, number = world.now_ms, 0
    while world.holder("a") != "S" and number < 100:
        number += 1
        for key in "ab":
            name = f"{key}{number}"
            world.acquire(key, "X", lease=name, request=name, wait=True, ttl_ms=600_000)
            world.release(f"{key}{number - 1}")
            world.claim(name)
        world.wait(1_000)
    assert holders(world, "a", "b") == ["S", "S"]
    assert world.now_ms - started_ms <= limits.SET_PATIENCE_MS + 2_000


@pytest.mark.parametrize("keys", [["a", "b"], ["b", "a"]])
def test_two_sets_in_different_orders_do_not_deadlock(world: World, keys: list[str]) -> None:
    world.acquire("a", "X", lease="x", ttl_ms=600_000)
    world.acquire("b", "Y", lease="y", ttl_ms=600_000)
    world.acquire(keys=["a", "b"], owner="S", lease="s", request="s", wait=True)
    world.acquire(keys=keys, owner="T", lease="t", request="t", wait=True)
    world.wait(limits.SET_PATIENCE_MS)
    world.release("y")
    world.release("x")
    assert holders(world, "a", "b") == ["S", "S"]
    world.claim("s")
    world.release("s", whole_set=True)
    assert holders(world, "a", "b") == ["T", "T"]


def test_sets_of_sessions_that_hold_a_key_of_one_another_are_a_circle(world: World) -> None:
    for name in "st":
        world.open(name, name.upper(), ttl_ms=600_000)
    world.acquire("a", "S", session="s")
    world.acquire("b", "T", session="t")
    assert isinstance(world.acquire(keys=["b", "c"], owner="S", session="s", wait=True), results.Waiting)
    circle = world.acquire(keys=["d", "a"], owner="T", session="t", wait=True)
    assert circle == results.Deadlock(["T", "a", "S", "b"])


def test_a_wait_behind_a_set_counts_as_one_for_it_from_the_first(world: World) -> None:
    """It steps aside for a while only: then who waits for it and is waited for by it would wait for ever."""
    for name in "st":
        world.open(name, name.upper(), ttl_ms=600_000)
    world.acquire("a", "X", ttl_ms=600_000)
    world.acquire("b", "T", session="t")
    world.acquire(keys=["a", "b"], owner="S", session="s", wait=True)
    circle = world.acquire("a", "T", session="t", wait=True)
    assert circle == results.Deadlock(["T", "a", "S", "b"])


def test_a_private_set_between_two_keys_can_be_part_of_a_circle(world: World) -> None:
    world.open("t", "T", ttl_ms=600_000)
    world.acquire("a", "X", ttl_ms=600_000)
    world.acquire("b", "T", session="t")
    world.acquire(keys=["a", "b"], owner="S", wait=True)
    circle = world.acquire("a", "T", session="t", wait=True)
    assert circle == results.Deadlock(["T", "a", "S", "b"])


def test_who_waits_for_something_else_does_not_pass_a_set(world: World) -> None:
    """Otherwise the set would wait for a session that waits, perhaps for the set."""
    for name in "st":
        world.open(name, name.upper(), ttl_ms=600_000)
    world.acquire("b", "X", ttl_ms=600_000)
    world.acquire("c", "S", session="s")
    world.acquire("c", "T", session="t", wait=True)
    world.acquire(keys=["a", "b"], owner="S", session="s", wait=True)
    assert isinstance(world.acquire("a", "T", session="t"), results.Held)
    assert isinstance(world.acquire("a", "Y"), results.Granted)


def test_a_replay_of_a_set_is_the_same_grants(world: World) -> None:
    first = leases_in(world.acquire(keys=["a", "b"], lease="l", request="r"))
    again = expect(results.Granted, world.acquire(keys=["a", "b"], request="r"))
    assert again.replayed
    assert leases_in(again) == first


@pytest.mark.parametrize("keys", [["a"], ["b", "a"], ["a", "b", "c"], ["a", "c"]])
def test_a_request_id_of_a_set_stands_for_no_other_keys(world: World, keys: list[str]) -> None:
    world.acquire(keys=["a", "b"], request="r")
    assert isinstance(world.acquire(keys=keys, request="r"), results.Invalid)


def test_a_set_of_which_one_lease_is_over_is_lost_as_a_whole_to_its_request(world: World) -> None:
    world.acquire(keys=["a", "b"], lease="l", request="r")
    world.break_key("b")
    assert world.acquire(keys=["a", "b"], request="r") == results.Lost("broken", "stuck")
    assert world.holder("a") == "A"


def test_what_is_remembered_of_a_set_goes_with_its_last_lease(world: World) -> None:
    world.acquire(keys=["a", "b"], lease="l", request="r")
    world.release("l")
    world.wait(limits.REQUEST_MEMORY_MS - 40_000)
    world.renew("l.1", ttl_ms=600_000)
    world.wait(100_000)
    world.tick()
    assert world.acquire(keys=["a", "b"], request="r") == results.Lost("unknown")
    world.release("l.1")
    world.wait(limits.REQUEST_MEMORY_MS)
    world.tick()
    assert world.table.sets == {}
    assert isinstance(world.acquire(keys=["a", "b"], request="r"), results.Granted)


def test_each_lease_of_a_set_is_released_on_its_own_or_all_together(world: World) -> None:
    world.acquire(keys=["a", "b", "c"], lease="l")
    assert world.release("l.1") == results.Released(False)
    assert holders(world, "a", "b", "c") == ["A", None, "A"]
    assert world.release("l.1", whole_set=True) == results.Released(False)
    assert holders(world, "a", "b", "c") == [None, None, None]
    assert world.release("l", whole_set=True) == results.Released(True)
    assert world.table.sessions == {}


def test_a_set_of_a_private_session_lives_and_dies_by_one_renewal(world: World) -> None:
    world.acquire(keys=["a", "b"], lease="l", ttl_ms=10_000)
    world.wait(9_000)
    world.renew("l.1")
    world.wait(9_000)
    world.expire()
    assert holders(world, "a", "b") == ["A", "A"]
    world.wait(1_000)
    world.expire()
    assert world.kinds() == ["expired", "expired"]
    assert world.table.sessions == {}


def test_a_dead_waiter_of_a_set_costs_the_claim_window_and_both_keys_go_on(world: World) -> None:
    world.acquire("a", "X", lease="x")
    world.acquire(keys=["a", "b"], owner="S", lease="s", request="s", wait=True)
    world.release("x")
    world.acquire("a", "Y", request="y", wait=True)
    world.acquire("b", "Z", request="z", wait=True)
    world.wait(limits.CLAIM_WINDOW_MS)
    world.expire()
    assert holders(world, "a", "b") == ["Y", "Z"]


def test_a_set_that_gives_up_lets_those_behind_it_go_on_at_every_key(world: World) -> None:
    world.acquire("c", "X", ttl_ms=600_000)
    world.acquire(keys=["a", "b", "c"], owner="S", request="s", wait=True)
    world.wait(limits.SET_PATIENCE_MS)
    for key in "ab":
        world.acquire(key, key.upper(), request=key, wait=True)
    assert holders(world, "a", "b") == [None, None]
    world.abandon("s")
    assert holders(world, "a", "b") == ["A", "B"]


def test_abandoning_a_granted_set_gives_back_all_of_it(world: World) -> None:
    world.acquire(keys=["a", "b"], request="r")
    assert world.abandon("r") == results.Abandoned(True)
    assert holders(world, "a", "b") == [None, None]


def test_a_session_that_holds_one_key_of_a_set_does_not_wait_for_itself(world: World) -> None:
    world.open("s", "S", ttl_ms=600_000)
    world.acquire("b", "S", session="s")
    held = expect(results.Held, world.acquire(keys=["a", "b"], owner="S", session="s", wait=True))
    assert held.key == "b"
    world.acquire("a", "S", session="s")
    both = expect(results.Granted, world.acquire(keys=["a", "b"], owner="S", session="s"))
    assert [grant.lease.key for grant in both.grants] == ["a", "b"]


def test_shared_sets_hold_together(world: World) -> None:
    for owner in "xy":
        granted = world.acquire(keys=["a", "b"], owner=owner, mode="shared")
        assert isinstance(granted, results.Granted)
    assert isinstance(world.acquire(keys=["b", "c"]), results.Held)


@pytest.mark.parametrize(
    "keys", [["a", "a"], ["a", ""], [f"k{number}" for number in range(limits.SET_KEYS_MAX + 1)]]
)
def test_a_misshapen_set_is_invalid(world: World, keys: list[str]) -> None:
    assert isinstance(world.acquire(keys=keys), results.Invalid)


def test_sets_granted_and_waiting_survive_a_restart(world: World) -> None:
    world.acquire(keys=["a", "b"], lease="l", request="r")
    world.acquire(keys=["b", "c"], lease="m", request="q", wait=True)
    world.restart()
    assert [key for key, *_ in leases_in(world.acquire(keys=["a", "b"], request="r"))] == ["a", "b"]
    world.release("l", whole_set=True)
    assert [key for key, *_ in leases_in(world.claim("m"))] == ["b", "c"]


def test_no_more_sets_are_passed_than_the_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SETS_PASSED_MAX", 2)
    world.acquire("x", "X")
    for number in range(3):
        world.acquire(keys=["a", "x"], request=f"s{number}", wait=True)
    assert isinstance(world.acquire("a", "Y"), results.Held)
    assert snapshot.digest(world.table) == snapshot.digest(world.replica.table)
    assert len(world.table.queue(TENANT, "a")) == 3
