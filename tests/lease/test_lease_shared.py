"""Shared leases: readers of one phase hold together under one token, and no writer starves."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import limits, results


def read(world: World, owner: str, lease: str, **kwargs: object) -> results.Result:
    return world.acquire("k", owner, lease=lease, request=f"q-{lease}", mode="shared", **kwargs)  # type: ignore[arg-type]


def owners(world: World) -> list[str]:
    return [grant.lease.owner for grant in world.table.holders(TENANT, "k")]


def test_readers_hold_together_and_carry_one_token(world: World) -> None:
    tokens = {grant_in(read(world, owner, owner)).lease.token for owner in "abc"}
    assert owners(world) == ["a", "b", "c"]
    assert len(tokens) == 1


def test_the_next_phase_and_the_next_writer_have_higher_tokens(world: World) -> None:
    first = grant_in(read(world, "a", "a")).lease.token
    world.release("a")
    second = grant_in(read(world, "b", "b")).lease.token
    world.release("b")
    writer = world.granted("k", "w", lease="w").lease.token
    world.release("w")
    assert first < second < writer < grant_in(read(world, "c", "c")).lease.token


def test_a_reader_keeps_a_writer_out_and_a_writer_a_reader(world: World) -> None:
    read(world, "a", "a")
    held = expect(results.Held, world.acquire("k", "w"))
    assert [(holder.owner, holder.mode) for holder in held.holders] == [("a", "shared")]
    world.release("a")
    world.granted("k", "w", lease="w")
    assert isinstance(read(world, "b", "b"), results.Held)


def test_a_writer_waits_for_no_more_readers_than_were_there_when_it_queued(world: World) -> None:
    for name in "abc":
        read(world, name, name)
    world.acquire("k", "w", lease="w", request="w", wait=True)
    for late in "xyz":
        assert isinstance(read(world, late, late), results.Held)
        assert isinstance(read(world, late, f"{late}2", wait=True), results.Waiting)
    for name in "abc":
        assert world.holder("k") != "w"
        world.release(name)
    assert owners(world) == ["w"]


def test_readers_behind_a_writer_are_granted_together_up_to_the_next_writer(world: World) -> None:
    world.granted("k", "w", lease="w")
    read(world, "a", "a", wait=True)
    read(world, "b", "b", wait=True)
    world.acquire("k", "v", lease="v", request="v", wait=True)
    read(world, "c", "c", wait=True)
    world.release("w")
    assert world.kinds() == ["released", "granted", "granted"]
    assert owners(world) == ["a", "b"]
    assert world.queue("k") == ["v", "c"]
    world.release("a")
    world.release("b")
    assert owners(world) == ["v"]
    world.release("v")
    assert owners(world) == ["c"]


def test_readers_go_on_when_the_writer_before_them_gives_up(world: World) -> None:
    read(world, "a", "a")
    world.acquire("k", "w", request="w", wait=True)
    read(world, "b", "b", wait=True)
    world.abandon("w")
    assert owners(world) == ["a", "b"]


def test_readers_go_on_when_the_writer_before_them_is_silent_for_too_long(world: World) -> None:
    world.open("s", "a", ttl_ms=600_000)
    world.acquire("k", "a", session="s", mode="shared")
    world.acquire("k", "w", request="w", wait=True)
    world.wait(limits.WAITER_SILENCE_MS - 1)
    read(world, "b", "b", wait=True)
    world.wait(1)
    world.expire()
    assert owners(world) == ["a", "b"]


def test_readers_go_on_when_the_writers_session_is_closed(world: World) -> None:
    read(world, "a", "a")
    world.open("s", "w")
    world.acquire("k", "w", session="s", wait=True)
    read(world, "b", "b", wait=True)
    world.close("s")
    assert world.kinds() == ["queue_left", "granted"]
    assert owners(world) == ["a", "b"]


def test_a_renewal_keeps_nobody_elses_lease(world: World) -> None:
    """T15: a reader's watchdog renewed a dead reader's slot."""
    read(world, "a", "a", ttl_ms=10_000)
    read(world, "b", "b", ttl_ms=10_000)
    world.wait(9_000)
    world.renew("a")
    world.wait(1_000)
    world.expire()
    assert owners(world) == ["a"]
    assert world.renew("b") == results.Lost("expired")


def test_a_grace_period_of_one_reader_keeps_out_whoever_comes_next(world: World) -> None:
    read(world, "a", "a", ttl_ms=60_000)
    read(world, "b", "b", ttl_ms=10_000, grace_ms=5_000)
    world.wait(12_000)
    held = expect(results.Held, read(world, "c", "c"))
    assert held.blocked_until_ms == world.now_ms + 3_000
    read(world, "d", "d", wait=True)
    world.wait(3_000)
    world.expire()
    assert owners(world) == ["a", "d"]


def test_a_session_that_reads_gets_its_lease_again_and_cannot_become_the_writer(world: World) -> None:
    world.open("s", "a")
    lease = world.granted("k", "a", session="s", mode="shared").lease
    assert world.granted("k", "a", session="s", mode="shared").lease == lease
    assert world.acquire("k", "a", session="s", wait=True) == results.ModeConflict("shared", "exclusive", "k")
    held = expect(
        results.Held, world.acquire("k", "a", session="s", mode="shared", if_held="conflict", wait=True)
    )
    assert [holder.owner for holder in held.holders] == ["a"]


def test_upgrading_beside_a_waiting_writer_is_no_deadlock_but_a_refusal(world: World) -> None:
    world.open("s", "a")
    world.acquire("k", "a", session="s", mode="shared")
    world.acquire("k", "w", wait=True)
    assert isinstance(world.acquire("k", "a", session="s", wait=True), results.ModeConflict)


def test_a_break_ends_all_readers_and_their_token(world: World) -> None:
    grants = [grant_in(read(world, name, name)) for name in "ab"]
    world.acquire("k", "w", request="w", lease="w", wait=True)
    broken = expect(results.Broken, world.break_key("k"))
    assert [lease.owner for lease in broken.leases] == ["a", "b"]
    assert world.kinds() == ["broken", "broken", "granted"]
    for grant in grants:
        refused = expect(results.CommitRefused, world.commit(grant, require_live=False))
        assert refused.code == "stale_token"


def test_to_the_guard_the_readers_of_a_phase_are_one_writer(world: World) -> None:
    a, b = (grant_in(read(world, name, name)) for name in "ab")
    assert isinstance(world.commit(a, mode="once", value=b"1"), results.Committed)
    assert expect(results.CommitRefused, world.commit(b, mode="once")).code == "token_used"
    record = world.table.record(TENANT, "k")
    assert record is not None
    assert record.owner == "a"


@pytest.mark.parametrize("require_live", [True, False])
def test_a_reader_writes_only_while_its_own_lease_lives(world: World, require_live: bool) -> None:
    a, b = (grant_in(read(world, name, name)) for name in "ab")
    world.release("a")
    refused = expect(results.CommitRefused, world.commit(a, require_live=require_live))
    assert refused.code == "not_live"
    stolen = world.commit(key="k", lease="nobody's", token=b.lease.token, require_live=require_live)
    assert expect(results.CommitRefused, stolen).code == "not_live"
    assert isinstance(world.commit(b, require_live=require_live), results.Committed)


def test_there_are_bounds_to_the_readers_of_a_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDERS_PER_KEY_MAX", 2)
    read(world, "a", "a")
    read(world, "b", "b")
    assert isinstance(read(world, "c", "c"), results.Held)
    assert isinstance(read(world, "d", "d", wait=True), results.Waiting)
    world.release("a")
    assert owners(world) == ["b", "d"]


def test_readers_survive_a_restart_in_their_order(world: World) -> None:
    for name in "abc":
        read(world, name, name)
    world.release("a")
    world.restart()
    assert owners(world) == ["b", "c"]
    assert grant_in(read(world, "d", "d")).lease.token == world.floor("k")


def test_sessions_that_read_each_others_keys_and_want_to_write_are_a_circle(world: World) -> None:
    for name, key in (("a", "k1"), ("b", "k2"), ("c", "k2")):
        world.open(name, name.upper(), ttl_ms=60_000)
        world.acquire(key, name.upper(), session=name, mode="shared")
    assert isinstance(world.acquire("k2", "A", session="a", wait=True), results.Waiting)
    circle = world.acquire("k1", "C", session="c", wait=True)
    assert circle == results.Deadlock(["C", "k1", "A", "k2"])


def test_a_reader_behind_a_reader_does_not_wait_for_it(world: World) -> None:
    """A waits as a reader behind B, who waits as one too: not B keeps A out, but whoever keeps B out."""
    for name in "abc":
        world.open(name, name.upper(), ttl_ms=60_000)
    world.acquire("k", "C", session="c")
    world.acquire("mine", "A", session="a")
    world.acquire("k", "B", session="b", mode="shared", wait=True)
    world.acquire("mine", "B", session="b", wait=True)
    assert isinstance(world.acquire("k", "A", session="a", mode="shared", wait=True), results.Waiting)
