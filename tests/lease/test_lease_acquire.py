"""Acquire, claim, abandon: one request has one outcome, whatever is asked again and in which order."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import commands, limits, results
from tenure_cluster.lease.types import Tenant


def test_a_free_key_is_granted_at_once_with_a_token_and_its_full_ttl(world: World) -> None:
    grant = grant_in(world.acquire("build", "A", ttl_ms=30_000, metadata={"run": "7"}))
    assert (grant.lease.key, grant.lease.owner, grant.lease.token) == ("build", "A", 1)
    assert grant.lease.metadata == {"run": "7"}
    assert grant.session.deadline_ms == world.now_ms + 30_000
    assert grant.session.private
    assert grant.session.session_id == grant.lease.lease_id
    assert world.kinds() == ["granted"]


def test_a_held_key_is_refused_naming_the_holder_and_leaves_nothing_behind(world: World) -> None:
    """T43: a failed try queues nothing, holds nothing and refreshes nobody."""
    world.acquire("k", "A", ttl_ms=30_000, lease="a")
    before = world.table.session(TENANT, "a")
    world.wait(10_000)
    for _ in range(3):
        held = expect(results.Held, world.acquire("k", "B", wait=False))
        assert [holder.owner for holder in held.holders] == ["A"]
        assert held.waiters == 0
        assert world.events == []
    assert world.table.session(TENANT, "a") == before
    assert world.queue() == []
    assert len(world.table.sessions) == 1


def test_tokens_rise_across_keys_regrants_and_restarts_and_belong_to_the_tenant(world: World) -> None:
    tokens = []
    for key in ("a", "b", "a", "a"):
        tokens.append(world.granted(key, lease=f"lease {len(tokens)}").lease.token)
        world.release(f"lease {len(tokens) - 1}")
        world.restart()
    assert tokens == sorted(set(tokens))
    assert world.granted("a", tenant="other").lease.token == 1


def test_a_replay_answers_the_same_grant_and_renews_nothing(world: World) -> None:
    first = world.granted("k", request="r")
    world.wait(5_000)
    again = expect(results.Granted, world.acquire("k", request="r"))
    assert again.grants == [first]
    assert again.replayed
    assert world.events == []


def test_a_replay_after_the_end_says_why_and_does_not_grant_anew(world: World) -> None:
    """T38: whatever became of an acquire, the same request_id finds it."""
    world.acquire("k", request="released", lease="one")
    world.release("one")
    assert world.acquire("k", request="released") == results.Lost("released")
    world.acquire("k", request="broken")
    world.break_key("k")
    assert world.acquire("k", request="broken") == results.Lost("broken", "stuck")
    world.acquire("k", request="expired", ttl_ms=1_000)
    world.wait(1_000)
    assert world.acquire("k", request="expired") == results.Lost("expired")
    assert world.holder() is None


def test_a_request_id_is_refused_for_another_key_whatever_became_of_it(world: World) -> None:
    world.acquire("k", request="held")
    world.acquire("k", request="queued", wait=True)
    world.acquire("gone", request="ended", lease="one")
    world.release("one")
    for request in ("held", "queued", "ended"):
        assert isinstance(world.acquire("another", request=request, wait=True), results.Invalid)
    assert world.table.key_state(TENANT, "another") is None


def test_requests_of_different_sessions_and_of_none_are_different_requests(world: World) -> None:
    world.open("s1")
    world.open("s2")
    leases = [
        world.granted("a", request="r").lease,
        world.granted("b", request="r", session="s1").lease,
        world.granted("c", request="r", session="s2").lease,
    ]
    assert len({lease.token for lease in leases}) == 3
    scopes = [("", "a"), ("s1", "b"), ("s2", "c")]
    for scope, key in scopes:
        (grant,) = world.table.granted(TENANT, scope, "r")
        assert grant.lease.key == key


def test_a_private_request_is_never_taken_for_one_of_a_session(world: World) -> None:
    """A request_id may look like anything, also like the name under which a session's request is kept."""
    world.open("s1")
    world.granted("a", request="r", session="s1")
    assert grant_in(world.acquire("b", request="2:s1r")).lease.key == "b"
    assert grant_in(world.acquire("a", request="r", session="s1")).lease.key == "a"


def test_the_session_that_holds_is_answered_at_once_as_it_asks(world: World) -> None:
    world.open("s")
    present = world.granted("k", request="r1", session="s")
    same = expect(results.Granted, world.acquire("k", request="r2", session="s", wait=True))
    assert same.grants == [present]
    assert not same.replayed
    conflict = world.acquire("k", request="r3", session="s", wait=True, if_held="conflict")
    assert isinstance(conflict, results.Held)
    assert world.queue() == []


def test_ownership_is_the_lease_id_and_the_owner_name_decides_nothing(world: World) -> None:
    """T71, T16: two attempts under one name are two parties; a later lease is not the earlier one."""
    first = world.granted("k", "worker-1")
    assert isinstance(world.acquire("k", "worker-1"), results.Held)
    world.release(first.lease.lease_id)
    second = world.granted("k", "worker-1")
    assert world.renew(first.lease.lease_id) == results.Lost("released")
    assert isinstance(world.commit(first), results.CommitRefused)
    assert isinstance(world.commit(second), results.Committed)


def test_a_contender_is_refused_by_the_holders_ttl_never_by_its_own(world: World) -> None:
    """T12: the TTL is a property of the held lease only."""
    world.acquire("k", "A", ttl_ms=60_000)
    world.wait(59_999)
    assert isinstance(world.acquire("k", "B", ttl_ms=1), results.Held)
    world.wait(1)
    assert grant_in(world.acquire("k", "B", ttl_ms=1)).session.ttl_ms == 1


def test_a_redelivered_task_finds_the_live_lease_and_takes_over_with_a_higher_token(world: World) -> None:
    """T70: the second delivery waits or reports; after the first has died it is fenced off."""
    first = world.granted("task/1", "worker-1", ttl_ms=10_000)
    assert isinstance(world.acquire("task/1", "worker-2"), results.Held)
    world.wait(10_000)
    second = world.granted("task/1", "worker-2")
    assert second.lease.token > first.lease.token
    assert expect(results.CommitRefused, world.commit(first)).code == "stale_token"


def test_only_the_stamp_of_the_leader_is_time(world: World) -> None:
    """T9: a wall clock that is days ahead or behind ends nothing and prolongs nothing."""
    first = world.granted("k", "A", ttl_ms=10_000)
    fast = world.acquire_command("k", "B", wall_ms=2**52)
    assert isinstance(world.apply(fast), results.Held)
    assert world.table.holders(TENANT, "k") == [first]
    slow = world.acquire_command("j", "B", ttl_ms=10_000, wall_ms=0)
    assert grant_in(world.apply(slow)).session.deadline_ms == world.now_ms + 10_000


def test_a_stamp_that_falls_does_not_turn_time_back(world: World) -> None:
    world.wait(50_000)
    world.acquire("k", ttl_ms=1_000)
    assert world.apply(commands.Tick(0), at_ms=7) == results.Done(0)
    assert world.table.time_ms == world.now_ms
    assert grant_in(world.apply(world.acquire_command("j"), at_ms=7)).lease.granted_ms == world.now_ms


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": []},
        {"keys": [""]},
        {"ttl_ms": 0},
        {"ttl_ms": -1},
        {"ttl_ms": 2**62},
        {"grace_ms": -1},
        {"grace_ms": limits.GRACE_MS_MAX + 1},
        {"session": ""},
    ],
)
def test_a_misshapen_acquire_is_invalid_and_changes_nothing(world: World, wrong: dict[str, object]) -> None:
    assert isinstance(world.acquire(**wrong), results.Invalid)  # type: ignore[arg-type]
    assert world.table.sessions == {}
    assert world.events == []


def test_nothing_is_held_without_a_ttl(world: World) -> None:
    """T69: whoever is killed holds nothing for longer than the TTL that it had to name."""
    assert isinstance(world.acquire("k", ttl_ms=None), results.Invalid)
    world.acquire("k", ttl_ms=5_000)
    world.wait(5_000)
    assert isinstance(world.acquire("k", "B"), results.Granted)


def test_a_lease_id_that_is_in_use_is_refused(world: World) -> None:
    world.open("s")
    world.acquire("k", lease="held")
    world.acquire("k", lease="queued", wait=True)
    world.acquire("k", lease="reserved", session="s", wait=True)
    world.acquire("x", lease="ended")
    world.release("ended")
    world.open("expired", ttl_ms=1)
    world.wait(1)
    world.expire()
    for taken in ("held", "queued", "reserved", "ended", "s", "expired"):
        assert isinstance(world.acquire("free", lease=taken), results.Invalid)
    assert isinstance(world.open("held"), results.Invalid)
    assert isinstance(world.open("reserved"), results.Invalid)


def test_a_session_that_is_unknown_expired_or_private_cannot_acquire(world: World) -> None:
    assert world.acquire("k", session="nobody") == results.NoSession()
    private = world.granted("k")
    assert world.acquire("x", session=private.session.session_id) == results.NoSession()
    world.open("s", ttl_ms=1_000)
    world.wait(1_000)
    assert world.acquire("x", session="s") == results.SessionExpired()


def test_abandoning_a_grant_frees_the_key_in_the_same_entry(world: World) -> None:
    """T40: an acquire that raced with its caller's giving up leaves no orphan."""
    world.acquire("k", "A", request="r", grace_ms=10_000)
    world.acquire("k", "B", wait=True)
    assert world.abandon("r") == results.Abandoned(True)
    assert world.kinds() == ["released", "granted"]
    assert world.holder() == "B"
    assert world.acquire("k", "A", request="r") == results.Lost("abandoned")


def test_abandoning_a_place_in_the_queue_removes_it(world: World) -> None:
    """T40: an orphan waiter goes when its caller gives up."""
    world.acquire("k", "A")
    world.acquire("k", "B", request="r", wait=True)
    assert world.abandon("r") == results.Abandoned(True)
    assert world.queue() == []
    assert world.abandon("r") == results.Abandoned(False)
    assert world.acquire("k", "B", request="r", wait=True) == results.Lost("abandoned")


def test_clearing_up_behind_a_closed_connection_spares_whoever_has_asked_again(world: World) -> None:
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", request="rb", wait=True)
    (waiter,) = world.table.queue(TENANT, "k")
    world.wait(1)
    world.acquire("k", "B", request="rb", wait=True)
    assert world.abandon("rb", polled_until_ms=waiter.poll_deadline_ms) == results.Abandoned(False)
    assert world.queue() == ["B"]
    (waiter,) = world.table.queue(TENANT, "k")
    assert world.abandon("rb", polled_until_ms=waiter.poll_deadline_ms) == results.Abandoned(True)
    assert world.queue() == []
    assert isinstance(world.acquire("k", "B", request="rb", wait=True), results.Waiting)
    (waiter,) = world.table.queue(TENANT, "k")
    world.release("a")
    assert world.abandon("rb", polled_until_ms=waiter.poll_deadline_ms) == results.Abandoned(False)
    assert world.holder() == "B"


def test_an_acquire_that_arrives_after_its_abandon_does_not_grant(world: World) -> None:
    assert world.abandon("r") == results.Abandoned(False)
    assert world.acquire("k", request="r", wait=True) == results.Lost("abandoned")
    world.wait(limits.REQUEST_MEMORY_MS - 1)
    assert world.abandon("r") == results.Abandoned(False)
    world.wait(limits.REQUEST_MEMORY_MS - 1)
    assert world.acquire("k", request="r") == results.Lost("abandoned")
    world.wait(1)
    assert isinstance(world.acquire("k", request="r"), results.Granted)


def test_abandoning_what_has_ended_keeps_how_it_ended(world: World) -> None:
    world.acquire("k", request="r", lease="one")
    world.release("one")
    assert world.abandon("r") == results.Abandoned(False)
    assert world.acquire("k", request="r") == results.Lost("released")


def test_claiming_is_idempotent_and_says_what_became_of_the_lease(world: World) -> None:
    assert world.claim("never") == results.Lost("unknown")
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", lease="b", wait=True)
    world.release("a")
    first = expect(results.Granted, world.claim("b"))
    assert (first.claimed, first.replayed) == (True, False)
    again = expect(results.Granted, world.claim("b"))
    assert again.replayed
    assert again.grants == first.grants
    world.release("b")
    assert world.claim("b") == results.Lost("released")


def test_no_token_beyond_the_greatest_is_ever_minted(world: World) -> None:
    for machine in (world.machine, world.replica):
        machine.table.tenants[TENANT] = Tenant(TENANT, limits.TOKEN_MAX - 1, 0)
    assert world.granted("k", lease="last").lease.token == limits.TOKEN_MAX
    world.acquire("k", "B", wait=True)
    assert world.acquire("free") == results.TokensExhausted()
    assert world.break_key("k") == results.TokensExhausted()
    assert world.release("last") == results.Released(False)
    assert world.kinds() == ["released"]
    assert world.holder() is None
