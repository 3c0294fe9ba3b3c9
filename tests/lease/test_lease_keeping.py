"""Renew, release, break, and sessions with many leases."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import limits, results


def test_renewing_moves_the_deadline_to_a_full_ttl_and_keeps_the_token(world: World) -> None:
    grant = world.granted("k", ttl_ms=10_000)
    world.wait(9_999)
    renewed = expect(results.Renewed, world.renew(grant.lease.lease_id)).grant
    assert renewed.session.deadline_ms == world.now_ms + 10_000
    assert renewed.lease == grant.lease
    assert renewed.session.renewed_wall_ms == world.wall_ms
    assert world.kinds() == ["renewed"]


def test_a_renewal_never_shortens(world: World) -> None:
    grant = world.granted("k", ttl_ms=60_000)
    shorter = expect(results.Renewed, world.renew(grant.lease.lease_id, ttl_ms=1_000)).grant
    assert shorter.session.deadline_ms == grant.session.deadline_ms
    assert shorter.session.ttl_ms == 1_000
    world.wait(59_500)
    later = expect(results.Renewed, world.renew(grant.lease.lease_id)).grant
    assert later.session.deadline_ms == world.now_ms + 1_000


def test_an_expired_lease_cannot_be_renewed_even_if_the_key_is_free(world: World) -> None:
    grant = world.granted("k", ttl_ms=10_000)
    world.wait(10_000)
    assert world.renew(grant.lease.lease_id) == results.Lost("expired")
    assert world.table.session(TENANT, grant.session.session_id) is None
    assert world.renew(grant.lease.lease_id) == results.Lost("expired")


@pytest.mark.parametrize("reason", ["released", "broken", "abandoned", "session_closed"])
def test_a_renewal_after_the_end_says_how_it_ended(world: World, reason: str) -> None:
    world.open("s")
    world.acquire("k", session="s", lease="one", request="r")
    ends = {
        "released": lambda: world.release("one"),
        "broken": lambda: world.break_key("k"),
        "abandoned": lambda: world.abandon("r", "s"),
        "session_closed": lambda: world.close("s"),
    }
    ends[reason]()
    detail = "stuck" if reason == "broken" else ""
    assert world.renew("one") == results.Lost(reason, detail)  # type: ignore[arg-type]
    assert world.renew("never") == results.Lost("unknown")


def test_a_renewal_touches_only_what_its_session_owns(world: World) -> None:
    """T15: a live holder's renewal keeps nobody else's lease alive."""
    world.open("s1", "A", ttl_ms=10_000)
    world.open("s2", "B", ttl_ms=10_000)
    world.acquire("a", "A", session="s1", lease="a")
    world.acquire("b", "B", session="s2", lease="b")
    world.acquire("c", "B", session="s2", lease="c")
    before = world.table.session(TENANT, "s1")
    world.wait(5_000)
    world.renew("b")
    assert world.table.session(TENANT, "s1") == before
    world.wait(5_000)
    assert world.renew("a") == results.Lost("expired")
    assert isinstance(world.renew("c"), results.Renewed)


def test_a_session_is_renewed_by_its_id_or_through_any_of_its_leases(world: World) -> None:
    world.open("s", ttl_ms=10_000)
    world.acquire("a", session="s", lease="a")
    world.acquire("b", session="s", lease="b")
    world.wait(9_000)
    world.renew("a")
    world.wait(9_000)
    renewed = expect(results.SessionIs, world.renew(session="s", ttl_ms=20_000))
    assert (renewed.leases, renewed.session.ttl_ms) == (2, 20_000)
    assert renewed.session.deadline_ms == world.now_ms + 20_000
    assert isinstance(world.renew("b"), results.Renewed)


def test_a_private_session_is_renewed_and_closed_by_its_id(world: World) -> None:
    grant = world.granted("k", "A", grace_ms=10_000)
    name = grant.session.session_id
    assert name == grant.lease.lease_id
    assert isinstance(world.open(name), results.Invalid)
    world.wait(20_000)
    renewed = expect(results.SessionIs, world.renew(session=name, ttl_ms=40_000))
    assert (renewed.leases, renewed.session.deadline_ms) == (1, world.now_ms + 40_000)
    world.wait(39_999)
    world.acquire("k", "B", wait=True)
    assert world.close(name) == results.SessionClosed(1)
    assert [(event.kind, event.detail) for event in world.events] == [
        ("released", "session_closed"),
        ("granted", ""),
    ]
    assert world.renew(name) == results.Lost("session_closed")
    assert world.release(name) == results.Lost("session_closed")
    assert world.renew(session=name) == results.NoSession()
    assert world.close(name) == results.NoSession()


def test_a_private_session_that_expired_is_told_so_whether_anybody_has_met_it_or_not(world: World) -> None:
    name = world.granted("k", ttl_ms=10_000).session.session_id
    world.wait(10_000)
    for _ in range(2):
        assert world.renew(session=name) == results.SessionExpired()
        assert world.close(name) == results.SessionExpired()
        world.expire()
    assert world.renew(name) == results.Lost("expired")
    world.wait(limits.REQUEST_MEMORY_MS)
    assert world.renew(session=name) == results.NoSession()


def test_a_private_session_that_waits_has_no_name_yet(world: World) -> None:
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", lease="b", wait=True)
    assert world.renew(session="b") == results.NoSession()
    assert world.close("b") == results.NoSession()
    assert world.queue() == ["B"]
    world.open("s")
    world.acquire("other", session="s", lease="of-s")
    assert world.renew(session="of-s") == results.NoSession()
    assert world.close("of-s") == results.NoSession()


def test_a_renewal_names_exactly_one_of_lease_and_session(world: World) -> None:
    assert isinstance(world.renew(), results.Invalid)
    assert isinstance(world.renew("a", session="s"), results.Invalid)
    assert isinstance(world.renew("a", ttl_ms=0), results.Invalid)


def test_releasing_twice_is_harmless_and_cannot_hit_a_later_lease(world: World) -> None:
    """T37: the key was taken again before the retry of a release whose answer was lost."""
    world.open("s")
    world.acquire("k", session="s", lease="first", request="r1")
    assert world.release("first") == results.Released(False)
    second = world.granted("k", session="s", lease="second", request="r2")
    assert world.release("first") == results.Released(True)
    assert world.table.holders(TENANT, "k") == [second]


def test_a_release_after_another_end_says_which(world: World) -> None:
    world.acquire("k", lease="one", ttl_ms=1_000)
    world.wait(1_000)
    assert world.release("one") == results.Lost("expired")
    world.acquire("k", lease="two")
    world.break_key("k")
    assert world.release("two") == results.Lost("broken", "stuck")
    assert world.release("never") == results.Lost("unknown")


def test_a_release_is_never_followed_by_grace(world: World) -> None:
    world.acquire("k", lease="one", grace_ms=60_000)
    world.release("one")
    assert world.granted("k", "B").lease.owner == "B"


def test_grace_is_counted_from_the_deadline_however_late_the_expiry_is_found(world: World) -> None:
    world.acquire("k", ttl_ms=10_000, grace_ms=5_000)
    world.wait(14_999)
    held = expect(results.Held, world.acquire("k", "B"))
    assert (held.holders, held.blocked_until_ms) == ([], world.now_ms + 1)
    world.wait(1)
    assert world.granted("k", "B").lease.owner == "B"


def test_a_break_ends_the_holder_and_fences_what_it_held(world: World) -> None:
    grant = world.granted("k", "A", lease="one", grace_ms=2_000)
    broken = world.break_key("k", "runaway")
    assert broken == results.Broken([results.BrokenLease("A", grant.lease.token)])
    assert [(event.kind, event.detail) for event in world.events] == [("broken", "runaway")]
    assert world.floor() > grant.lease.token
    assert world.renew("one") == results.Lost("broken", "runaway")
    held = expect(results.Held, world.acquire("k", "B"))
    assert held.blocked_until_ms == world.now_ms + 2_000


def test_a_break_without_a_holder_still_raises_the_floor_of_a_known_key(world: World) -> None:
    assert world.break_key("unknown") == results.Broken([])
    assert world.table.key_state(TENANT, "unknown") is None
    world.acquire("k", lease="one")
    world.release("one")
    floor = world.floor()
    assert world.break_key("k") == results.Broken([])
    assert world.floor() > floor


def test_a_break_hands_on_to_the_next_waiter_above_the_new_floor(world: World) -> None:
    world.acquire("k", "A")
    world.acquire("k", "B", lease="b", wait=True)
    world.break_key("k")
    assert world.kinds() == ["broken", "granted"]
    (grant,) = world.table.holders(TENANT, "k")
    assert (grant.lease.owner, grant.lease.token) == ("B", world.floor())


def test_a_break_does_not_hit_the_waiter_whose_turn_had_come(world: World) -> None:
    """The holder had expired before the break, so there was nobody to break; its successor stays."""
    world.acquire("k", "A", ttl_ms=10_000)
    world.acquire("k", "B", wait=True)
    world.wait(10_000)
    assert world.break_key("k") == results.Broken([])
    assert world.kinds() == ["expired", "granted"]
    assert world.holder() == "B"


def test_closing_a_session_ends_all_that_it_has(world: World) -> None:
    world.open("s", "A")
    world.acquire("a", "A", session="s", lease="a", grace_ms=60_000)
    world.acquire("b", "A", session="s", lease="b")
    world.acquire("c", "B")
    world.acquire("c", "A", session="s", wait=True)
    world.acquire("a", "B", wait=True)
    assert world.close("s") == results.SessionClosed(2)
    assert world.kinds() == ["queue_left", "released", "granted", "released"]
    assert world.holder("a") == "B"
    assert world.renew("a") == results.Lost("session_closed")
    assert world.renew(session="s") == results.NoSession()
    assert world.close("s") == results.NoSession()


def test_a_closed_session_is_not_granted_what_it_hands_on(world: World) -> None:
    world.open("s", "A")
    world.open("t", "B")
    world.acquire("k", "A", session="s")
    world.acquire("other", "B", session="t")
    world.acquire("other", "A", session="s", wait=True)
    world.close("s")
    world.close("t")
    assert world.holder("other") is None


def test_opening_again_answers_the_present_session(world: World) -> None:
    opened = expect(results.SessionIs, world.open("s", "A", 10_000))
    world.acquire("k", "A", session="s")
    world.wait(1_000)
    again = expect(results.SessionIs, world.open("s", "other", 99_000))
    assert (again.session, again.leases) == (opened.session, 1)
    world.wait(9_000)
    assert world.open("s") == results.SessionExpired()
    world.expire()
    assert world.open("s") == results.SessionExpired()


def test_a_tenant_sees_and_touches_nothing_of_another(world: World) -> None:
    mine = world.granted("k", lease="mine", request="r")
    theirs = world.granted("k", lease="theirs", request="r", tenant="other")
    assert theirs.lease.tenant == "other"
    assert world.release("mine", tenant="other") == results.Lost("unknown")
    assert world.renew("mine", tenant="other") == results.Lost("unknown")
    assert world.claim("mine", tenant="other") == results.Lost("unknown")
    assert isinstance(world.commit(mine, tenant="other"), results.CommitRefused)
    assert world.table.holders(TENANT, "k") == [mine]
