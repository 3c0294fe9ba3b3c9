"""What the table answers to reads."""

import pytest
from lease_world import TENANT, World

from tenure_cluster.lease import limits
from tenure_cluster.lease.table import waiter_item_id


def keys_of(
    world: World, prefix: str = "", after: str | None = None, **named: object
) -> tuple[list[str], str | None]:
    grants, following = world.table.list_leases(
        named.get("tenant", TENANT), prefix, after, named.get("owner"), named.get("limit", 100)
    )
    return [grant.lease.key for grant in grants], following


def test_leases_are_listed_in_the_order_of_their_keys_bytes(world: World) -> None:
    names = ["z", "a", "ä", "a/b", "A", "\U0001f511", "￿", "b"]
    for name in names:
        world.acquire(name)
    listed, following = keys_of(world)
    assert listed == sorted(names, key=lambda name: name.encode())
    assert following is None


def test_pages_join_without_gap_or_overlap(world: World) -> None:
    names = sorted(f"job/{number}" for number in range(25))
    for name in names:
        world.acquire(name)
    pages, after = [], None
    while True:
        page, after = keys_of(world, "job/", after, limit=10)
        pages.append(page)
        if after is None:
            break
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [name for page in pages for name in page] == names


def test_a_last_page_that_is_full_says_that_it_is_the_last(world: World) -> None:
    for number in range(10):
        world.acquire(f"k{number}")
    assert keys_of(world, limit=10)[1] is None


def test_a_listing_can_be_narrowed_by_prefix_and_owner_and_stays_in_its_tenant(world: World) -> None:
    world.acquire("a/1", "A")
    world.acquire("a/2", "B")
    world.acquire("b/1", "A")
    world.acquire("a/3", "A", tenant="other")
    assert keys_of(world, "a/")[0] == ["a/1", "a/2"]
    assert keys_of(world, owner="A")[0] == ["a/1", "b/1"]
    assert keys_of(world, tenant="other")[0] == ["a/3"]
    assert keys_of(world, tenant="nobody") == ([], None)


def test_the_queue_is_told_first_come_first(world: World) -> None:
    world.acquire("k", "A")
    for owner in "BCD":
        world.acquire("k", owner, request=owner, wait=True)
    world.acquire("k", "B", request="B", wait=True)
    assert world.queue() == ["B", "C", "D"]
    assert world.table.queue(TENANT, "unknown") == []


def test_the_state_of_a_held_key_is_told_whether_or_not_its_guard_was_written(world: World) -> None:
    grant = world.granted("k", lease="a")
    for _ in range(2):
        state = world.table.key_state(TENANT, "k")
        assert state.guards[0].floor == grant.lease.token
        assert (state.idle_since_ms, state.blocked_until_ms) == (-1, 0)
        world.commit(grant)
    world.release("a")
    assert world.table.key_state(TENANT, "k").idle_since_ms == world.now_ms


def test_a_session_tells_how_many_leases_it_has(world: World) -> None:
    world.open("s")
    assert world.table.lease_count(TENANT, "s") == 0
    world.acquire("a", session="s")
    world.acquire("b", session="s")
    assert world.table.lease_count(TENANT, "s") == 2
    private = world.granted("c").session.session_id
    assert world.table.lease_count(TENANT, private) == 1
    assert world.table.lease_count(TENANT, "nobody") == 0


def test_the_live_grants_of_a_request_are_found_by_its_scope(world: World) -> None:
    world.open("s")
    grant = world.granted("k", session="s", request="r", lease="a")
    assert world.table.granted(TENANT, "s", "r") == [grant]
    assert world.table.granted(TENANT, "", "r") is None
    world.release("a")
    assert world.table.granted(TENANT, "s", "r") is None


def test_a_waiter_is_named_unambiguously_in_an_expiry(world: World) -> None:
    world.open("1:a")
    world.acquire("k")
    world.acquire("k", session="1:a", request="b:c", wait=True)
    world.acquire("k", request="1:ab:c", wait=True)
    assert [waiter_item_id(waiter) for waiter in world.table.waiters.values()] == ["3:1:ab:c", "0:1:ab:c"]


def test_a_page_holds_all_leases_of_its_last_key(world: World) -> None:
    for number in range(3):
        for _ in range(3):
            world.acquire(f"k{number}", mode="shared")
    page, after = world.table.list_leases(TENANT, "", None, None, 4)
    assert [grant.lease.key for grant in page] == ["k0"] * 3 + ["k1"] * 3
    assert after == "k1"
    page, after = world.table.list_leases(TENANT, "", after, None, 4)
    assert ([grant.lease.key for grant in page], after) == (["k2"] * 3, None)


def test_a_page_looks_at_a_bounded_number_of_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of many are the owner's: a page may come up empty and is not the last for that."""
    monkeypatch.setattr(limits, "LISTING_STEPS_MAX", 4)
    for number in range(10):
        world.acquire(f"k{number}", "rare" if number == 9 else "other")
    found: list[str] = []
    pages, after = 0, None
    while True:
        page, after = world.table.list_leases(TENANT, "k", after, "rare", 100)
        found += [grant.lease.key for grant in page]
        pages += 1
        if after is None:
            break
    assert found == ["k9"]
    assert pages == 3
