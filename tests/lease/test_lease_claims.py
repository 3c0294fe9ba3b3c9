"""What a grant to a waiter is before it is claimed, and what the claim makes of it."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import limits, results


@pytest.mark.parametrize("ttl_ms", [3_000, 60_000])
def test_a_claimed_lease_lives_exactly_for_its_ttl(world: World, ttl_ms: int) -> None:
    """A short TTL does not become the claim window: the key is free again when its holder was told."""
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", lease="b", ttl_ms=ttl_ms, wait=True)
    world.release("a")
    world.wait(100)
    claimed = grant_in(world.claim("b"))
    assert claimed.session.deadline_ms == world.now_ms + ttl_ms
    world.restart()
    world.wait(ttl_ms - 1)
    assert world.expire() == results.Done(0)
    world.wait(1)
    (item,) = world.table.due(world.now_ms, 10)
    assert (item.kind, item.id) == ("session", "b")
    assert world.renew("b") == results.Lost("expired")
    assert world.holder() is None


def test_a_claim_leaves_an_explicit_session_what_it_was_promised(world: World) -> None:
    world.open("s", "B", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", lease="b", wait=True)
    world.renew(session="s", ttl_ms=3_000)
    promised_ms = world.table.session(TENANT, "s").deadline_ms
    world.release("a")
    assert grant_in(world.claim("b")).session.deadline_ms == promised_ms


def test_a_waiter_that_never_claimed_leaves_no_grace(world: World) -> None:
    """Nobody was told of the grant, so there is no late write of its holder to wait for."""
    world.acquire("k", "A", lease="a")
    world.acquire("k", "dead", lease="d", grace_ms=20_000, wait=True)
    world.acquire("k", "C", wait=True)
    world.release("a")
    world.wait(limits.CLAIM_WINDOW_MS)
    assert world.expire() == results.Done(1)
    assert world.kinds() == ["expired", "granted"]
    assert world.holder() == "C"


def test_the_break_of_an_unclaimed_grant_leaves_no_grace(world: World) -> None:
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", lease="b", grace_ms=10_000, wait=True)
    world.release("a")
    assert len(expect(results.Broken, world.break_key()).leases) == 1
    assert isinstance(world.acquire("k", "C"), results.Granted)


def test_a_claimed_grant_does_leave_its_grace(world: World) -> None:
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", lease="b", grace_ms=10_000, wait=True)
    world.release("a")
    world.claim("b")
    world.break_key()
    assert expect(results.Held, world.acquire("k", "C")).blocked_until_ms == world.now_ms + 10_000


def test_a_session_that_asks_again_claims_what_it_was_granted(world: World) -> None:
    """The answer tells the holder of its lease, so from then on the lease must be one that it can use."""
    world.open("s", "B", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", request="r1", lease="b", wait=True)
    world.wait(30_000)
    world.renew("a")
    world.release("a")
    asked = expect(results.Granted, world.acquire("k", "B", session="s", request="r2"))
    assert (asked.claimed, asked.replayed) == (True, False)
    (grant,) = asked.grants
    assert (grant.lease.lease_id, grant.lease.claim_deadline_ms) == ("b", 0)
    assert grant.session.deadline_ms == world.now_ms + 60_000
    assert isinstance(world.commit(grant), results.Committed)
    world.wait(limits.CLAIM_WINDOW_MS)
    world.expire()
    assert isinstance(world.renew("b"), results.Renewed)
    again = expect(results.Granted, world.acquire("k", "B", session="s", request="r1", wait=True))
    assert again.replayed
    assert again.grants[0].lease == grant.lease


def test_asking_again_with_conflict_claims_nothing(world: World) -> None:
    world.open("s", "B", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", lease="b", wait=True)
    world.release("a")
    assert isinstance(world.acquire("k", "B", session="s", if_held="conflict"), results.Held)
    world.wait(limits.CLAIM_WINDOW_MS)
    assert world.claim("b") == results.Lost("expired")
