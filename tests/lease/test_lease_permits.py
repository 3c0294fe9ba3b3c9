"""Pools of permits: as many holders as slots, each with a token and a guard of its own."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import limits, results


def permit(world: World, owner: str, slots: int = 2, **kwargs: object) -> results.Result:
    named = {"lease": owner, "request": f"q-{owner}"} | kwargs
    return world.acquire("k", owner, mode="permit", slots=slots, **named)  # type: ignore[arg-type]


def held(world: World) -> dict[int, str]:
    return {grant.lease.slot: grant.lease.owner for grant in world.table.holders(TENANT, "k")}


def test_a_pool_has_as_many_holders_as_slots(world: World) -> None:
    tokens = [grant_in(permit(world, owner)).lease.token for owner in "ab"]
    assert held(world) == {0: "a", 1: "b"}
    assert len(set(tokens)) == 2
    refused = expect(results.Held, permit(world, "c"))
    assert [(holder.owner, holder.slot) for holder in refused.holders] == [("a", 0), ("b", 1)]


def test_the_lowest_free_slot_is_granted_with_a_new_token(world: World) -> None:
    before = [grant_in(permit(world, owner, 3)).lease.token for owner in "abc"]
    world.release("b")
    lease = grant_in(permit(world, "d", 3)).lease
    assert lease.slot == 1
    assert lease.token > max(before)


def test_waiters_are_served_first_come_first_and_a_newcomer_takes_no_free_slot_before_them(
    world: World,
) -> None:
    """T42: trying and failing costs nobody anything."""
    for owner in "ab":
        permit(world, owner)
    for owner in "cd":
        permit(world, owner, wait=True)
    assert isinstance(permit(world, "e"), results.Held)
    world.release("b")
    assert held(world) == {0: "a", 1: "c"}
    world.release("a")
    assert held(world) == {0: "d", 1: "c"}


def test_several_slots_that_come_free_at_once_go_to_as_many_waiters(world: World) -> None:
    for owner in "abc":
        permit(world, owner, 3, ttl_ms=10_000)
    for owner in "xyz":
        permit(world, owner, 3, wait=True)
    world.wait(10_000)
    world.expire()
    assert sorted(held(world).values()) == ["x", "y", "z"]


@pytest.mark.parametrize(("mode", "slots"), [("permit", 3), ("permit", 1), ("exclusive", 0), ("shared", 0)])
def test_a_pool_goes_with_nothing_else_while_it_is_held(world: World, mode: str, slots: int) -> None:
    permit(world, "a")
    for wait in (False, True):
        refused = world.acquire("k", "x", mode=mode, slots=slots, wait=wait)
        assert refused == results.ModeConflict("permit", mode, "k", 2, slots)


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_held_key_is_no_pool(world: World, mode: str) -> None:
    world.acquire("k", "a", mode=mode)
    assert permit(world, "b", wait=True) == results.ModeConflict(mode, "permit", "k", 0, 2)


def test_a_pool_that_is_only_waited_for_keeps_its_number_of_slots(world: World) -> None:
    permit(world, "a", 1, ttl_ms=1_000, grace_ms=10_000)
    permit(world, "b", 1, wait=True)
    world.wait(1_000)
    world.expire()
    assert held(world) == {}
    assert isinstance(permit(world, "c", 2), results.ModeConflict)


def test_when_nobody_holds_the_number_of_slots_can_change_either_way(world: World) -> None:
    for slots in (2, 5, 1):
        lease = grant_in(permit(world, "a", slots, lease=f"a{slots}", request=f"r{slots}")).lease
        state = world.table.key_state(TENANT, "k")
        assert state is not None
        assert (state.mode, state.slots) == ("permit", slots)
        world.release(lease.lease_id)


def test_each_slot_is_guarded_on_its_own(world: World) -> None:
    a, b = (grant_in(permit(world, owner)) for owner in "ab")
    world.release("a")
    c = grant_in(permit(world, "c"))
    assert c.lease.token > b.lease.token
    assert isinstance(world.commit(b, slot=1, mode="once"), results.Committed)
    late = expect(results.CommitRefused, world.commit(a, slot=0, mode="once", require_live=False))
    assert (late.code, late.floor) == ("stale_token", c.lease.token)
    assert isinstance(world.commit(c, slot=0, mode="once"), results.Committed)


def test_a_commit_to_a_slot_that_is_not_the_holders_is_refused(world: World) -> None:
    a, b = (grant_in(permit(world, owner)) for owner in "ab")
    for grant, slot in ((a, 1), (b, 0), (a, 7)):
        refused = expect(results.CommitRefused, world.commit(grant, slot=slot))
        assert refused.code in ("stale_token", "not_live")


@pytest.mark.parametrize("writer", ["exclusive", "shared"])
def test_no_slot_of_a_pool_that_is_no_more_can_be_written_through(world: World, writer: str) -> None:
    b = [grant_in(permit(world, owner)) for owner in "ab"][1]
    assert isinstance(world.commit(b, slot=1), results.Committed)
    world.release("a")
    world.release("b")
    world.acquire("k", "w", mode=writer)
    refused = expect(results.CommitRefused, world.commit(b, slot=1, require_live=False))
    assert refused.code in ("stale_token", "not_live")


def test_a_break_ends_every_permit_and_every_token(world: World) -> None:
    grants = [grant_in(permit(world, owner)) for owner in "ab"]
    assert len(expect(results.Broken, world.break_key("k")).leases) == 2
    for grant in grants:
        refused = world.commit(grant, slot=grant.lease.slot, require_live=False)
        assert expect(results.CommitRefused, refused).code == "stale_token"


@pytest.mark.parametrize("slots", [0, -1, limits.HOLDERS_PER_KEY_MAX + 1])
def test_a_number_of_slots_outside_the_bounds_is_invalid(world: World, slots: int) -> None:
    assert isinstance(permit(world, "a", slots), results.Invalid)


def test_a_session_gets_the_permit_that_it_holds_again(world: World) -> None:
    world.open("s", "a")
    first = grant_in(permit(world, "a", session="s"))
    again = grant_in(permit(world, "a", session="s", request="r2", lease="l2"))
    assert again.lease == first.lease
    refused = permit(world, "a", session="s", request="r3", lease="l3", if_held="conflict")
    assert isinstance(refused, results.Held)


def pool_of_sessions(world: World, *names: str) -> None:
    for name in names:
        world.open(name, name.upper(), ttl_ms=600_000)
        world.acquire(f"of-{name}", name.upper(), session=name)
        world.acquire("pool", name.upper(), session=name, mode="permit", slots=2)


def test_one_holder_of_a_pool_who_can_go_on_is_enough_for_a_wait_to_be_allowed(world: World) -> None:
    pool_of_sessions(world, "a", "b")
    world.open("c", "C", ttl_ms=600_000)
    world.acquire("mine", "C", session="c")
    world.acquire("mine", "A", session="a", wait=True)
    waits = world.acquire("pool", "C", session="c", mode="permit", slots=2, wait=True)
    assert isinstance(waits, results.Waiting)


def test_a_wait_for_a_pool_whose_holders_all_wait_for_the_asker_is_a_circle(world: World) -> None:
    pool_of_sessions(world, "a", "b")
    world.open("c", "C", ttl_ms=600_000)
    world.acquire("mine", "C", session="c")
    world.acquire("mine", "A", session="a", wait=True)
    world.acquire("of-a", "B", session="b", wait=True)
    refused = world.acquire("pool", "C", session="c", mode="permit", slots=2, wait=True)
    assert refused == results.Deadlock(["C", "pool", "A", "mine"])


def test_of_a_pool_that_was_made_smaller_one_holder_who_can_go_on_is_not_enough(world: World) -> None:
    """Both must leave before there is room for one, and A waits for the asker."""
    pool_of_sessions(world, "a", "b")
    world.open("c", "C", ttl_ms=600_000)
    world.acquire("mine", "C", session="c")
    world.acquire("mine", "A", session="a", wait=True)
    world.resize(1, "pool")
    refused = world.acquire("pool", "C", session="c", mode="permit", slots=1, wait=True)
    assert refused == results.Deadlock(["C", "pool", "A", "mine"])
    world.resize(2, "pool")
    waits = world.acquire("pool", "C", session="c", mode="permit", slots=2, wait=True)
    assert isinstance(waits, results.Waiting)


def test_who_waits_for_the_end_of_a_grace_period_can_go_on(world: World) -> None:
    pool_of_sessions(world, "a", "b")
    world.open("c", "C", ttl_ms=600_000)
    world.acquire("mine", "C", session="c")
    world.acquire("mine", "A", session="a", wait=True)
    world.acquire("resting", "X", lease="x", grace_ms=60_000)
    world.break_key("resting")
    waits = world.acquire("resting", "B", session="b", mode="permit", slots=2, wait=True)
    assert isinstance(waits, results.Waiting)
    waits = world.acquire("pool", "C", session="c", mode="permit", slots=2, wait=True)
    assert isinstance(waits, results.Waiting)


def test_a_pool_survives_a_restart(world: World) -> None:
    for owner in "ab":
        permit(world, owner)
    permit(world, "c", wait=True)
    world.restart()
    world.release("a")
    assert held(world) == {0: "c", 1: "b"}
