"""A pool of permits gets another number of slots while it is held and waited for."""

from typing import Any

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import limits, results


def permit(world: World, owner: str, slots: int, **kwargs: Any) -> results.Result:
    named: dict[str, Any] = {"lease": owner, "request": f"q-{owner}"} | kwargs
    return world.acquire("k", owner, mode="permit", slots=slots, **named)


def held(world: World) -> dict[int, str]:
    return {grant.lease.slot: grant.lease.owner for grant in world.table.holders(TENANT, "k")}


def test_with_more_slots_those_who_wait_are_granted_in_the_same_entry(world: World) -> None:
    for owner in "ab":
        permit(world, owner, 2)
    for owner in "cde":
        permit(world, owner, 2, wait=True)
    assert world.resize(4) == results.Resized(4, 2, 4)
    assert world.kinds() == ["resized", "granted", "granted"]
    assert (world.events[0].owner, world.events[0].detail, world.events[0].mode) == (
        "operator",
        "4",
        "permit",
    )
    assert held(world) == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert world.queue("k") == ["e"]
    world.restart()
    world.release("b")
    assert held(world) == {0: "a", 1: "e", 2: "c", 3: "d"}


def test_with_fewer_slots_nobody_loses_a_permit_and_none_is_granted_until_there_is_room(world: World) -> None:
    grants = {owner: grant_in(permit(world, owner, 4)) for owner in "abcd"}
    permit(world, "e", 4, wait=True)
    assert world.resize(2) == results.Resized(2, 4, 4)
    assert isinstance(world.commit(grants["d"], slot=3), results.Committed)
    world.restart()
    assert isinstance(world.renew("d"), results.Renewed)
    for owner in "ab":
        world.release(owner)
        assert world.queue("k") == ["e"]
    world.release("c")
    assert held(world) == {3: "d", 0: "e"}
    world.release("d")
    assert grant_in(permit(world, "f", 2)).lease.slot == 1
    assert isinstance(permit(world, "g", 2), results.Held)


def test_who_asks_from_now_on_names_the_new_number(world: World) -> None:
    permit(world, "a", 2)
    world.resize(3)
    assert permit(world, "b", 2) == results.ModeConflict("permit", "permit", "k", 3, 2)
    assert isinstance(permit(world, "b", 3), results.Granted)
    assert isinstance(permit(world, "a", 2), results.Granted), "its own request is known as ever"


def test_a_waiter_keeps_its_place_and_goes_on_polling_as_it_began(world: World) -> None:
    permit(world, "a", 1)
    permit(world, "b", 1, wait=True)
    permit(world, "c", 1, wait=True)
    world.resize(2)
    world.claim("b")
    assert expect(results.Waiting, permit(world, "c", 1, wait=True)).position == 1
    world.resize(3)
    assert grant_in(permit(world, "c", 1, wait=True)).lease.slot == 2


def test_a_set_of_keys_that_waits_leaves_and_is_told_of_the_conflict_when_it_asks_again(world: World) -> None:
    permit(world, "a", 2)
    permit(world, "b", 2)
    asked: dict[str, Any] = {"keys": ["k", "l"], "mode": "permit", "slots": 2, "wait": True, "request": "set"}
    assert isinstance(world.acquire(**asked), results.Waiting)
    world.resize(3)
    assert world.kinds() == ["queue_left", "queue_left", "resized"]
    assert {event.detail for event in world.events} == {"resized", "3"}
    assert world.queue("l") == []
    again = world.acquire(**asked)
    assert again == results.ModeConflict("permit", "permit", "k", 3, 2)


def test_more_waiting_sets_than_one_entry_may_drop_are_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 3)
    permit(world, "a", 1)
    for number in range(2):
        world.acquire(keys=["k", f"l{number}"], mode="permit", slots=1, wait=True)
    assert isinstance(world.resize(2), results.Unsupported)
    assert len(world.queue("k")) == 2


def test_only_a_pool_that_is_in_use_has_a_number_to_change(world: World) -> None:
    assert world.resize(2) == results.NotHeld()
    world.acquire("k", "A", lease="one")
    assert world.resize(2) == results.ModeConflict("exclusive", "permit", "k", 0, 2)
    world.release("one")
    assert world.resize(2) == results.NotHeld()
    assert isinstance(world.resize(0), results.Invalid)
    assert isinstance(world.resize(limits.HOLDERS_PER_KEY_MAX + 1), results.Invalid)


def test_asked_again_nothing_changes_and_the_next_phase_decides_anew(world: World) -> None:
    permit(world, "a", 2)
    world.resize(3)
    assert world.resize(3) == results.Resized(3, 3, 1)
    assert world.events == []
    world.release("a")
    assert isinstance(permit(world, "b", 5), results.Granted)


def test_a_pool_that_is_only_waited_for_is_resized_too(world: World) -> None:
    permit(world, "a", 1, ttl_ms=5_000, grace_ms=60_000)
    permit(world, "b", 1, wait=True, ttl_ms=600_000)
    permit(world, "c", 1, wait=True, ttl_ms=600_000)
    world.wait(5_000)
    world.expire()
    assert held(world) == {}
    assert world.resize(2) == results.Resized(2, 1, 0)
    world.wait(30_000)
    for owner in "bc":
        permit(world, owner, 1, wait=True)
    world.wait(30_000)
    world.expire()
    assert sorted(held(world).values()) == ["b", "c"]
