"""Handover to another session, and parking for a human in the loop."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import results


@pytest.fixture
def two(world: World) -> World:
    for name in "ab":
        world.open(name, name.upper(), ttl_ms=600_000)
    return world


# Handover


def test_a_handover_ends_one_token_and_begins_another_in_one_entry(two: World) -> None:
    old = two.granted("k", "A", session="a", lease="one", metadata={"run": "7"}, grace_ms=5_000)
    two.renew("one", progress=("plan", "", 3))
    two.acquire("k", "X", request="x", wait=True)
    given = expect(results.HandedOver, two.handover("one", "b", "two")).grant
    assert two.kinds() == ["handed_over", "granted"]
    assert given.lease.token > old.lease.token
    assert (given.lease.owner, given.lease.metadata, given.lease.grace_ms) == ("B", {"run": "7"}, 5_000)
    assert given.lease.life is not None
    assert given.lease.life.progress is not None
    assert given.lease.life.progress.counter == 3
    assert two.holder("k") == "B"
    assert two.queue("k") == ["X"]
    late = expect(results.CommitRefused, two.commit(old, require_live=False))
    assert late.code == "stale_token"
    assert two.renew("one") == results.Lost("handed_over")


def test_a_handover_that_is_asked_again_is_answered_with_the_same_lease(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    first = expect(results.HandedOver, two.handover("one", "b"))
    again = expect(results.HandedOver, two.handover("one", "b"))
    assert again.replayed
    assert again.grant == first.grant
    assert two.handover("one", "a") == results.Lost("handed_over")


def test_a_successor_that_waits_gets_its_own_request_answered(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.acquire("k", "X", request="x", wait=True)
    two.acquire("k", "worker-b", session="b", request="r", wait=True)
    given = expect(results.HandedOver, two.handover("one", "b", "two")).grant
    assert given.lease.owner == "worker-b"
    assert two.queue("k") == ["X"]
    assert grant_in(two.acquire("k", "worker-b", session="b", request="r")).lease == given.lease


def test_only_a_live_explicit_session_can_be_a_successor(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.acquire("other", "X", lease="private")
    for nobody in ("private", "never"):
        assert two.handover("one", nobody) == results.NoSession()
    assert two.holder("k") == "A"


def test_a_handover_that_would_close_a_circle_is_refused(two: World) -> None:
    """C waits for k, and B waits for what C holds: were B to hold k, both would wait for ever."""
    two.open("c", "C", ttl_ms=600_000)
    two.acquire("k", "A", session="a", lease="one")
    two.acquire("of-c", "C", session="c")
    two.acquire("k", "C", session="c", wait=True)
    two.acquire("of-c", "B", session="b", wait=True)
    assert two.handover("one", "b") == results.Deadlock(["B", "of-c", "C", "k"])
    assert two.holder("k") == "A"


def test_a_permit_keeps_its_slot(two: World) -> None:
    two.acquire("k", "X", lease="zero", mode="permit", slots=3)
    two.acquire("k", "A", session="a", lease="one", mode="permit", slots=3)
    two.release("zero")
    given = expect(results.HandedOver, two.handover("one", "b")).grant.lease
    assert given.slot == 1
    assert two.handover(given.lease_id, "a", "three") != results.Lost("unknown")


def test_a_reader_hands_over_within_its_phase(two: World) -> None:
    reader = two.granted("k", "A", session="a", lease="one", mode="shared")
    two.acquire("k", "X", mode="shared")
    given = expect(results.HandedOver, two.handover("one", "b")).grant
    assert given.lease.token == reader.lease.token
    assert expect(results.CommitRefused, two.commit(reader)).code == "not_live"


def test_whoever_holds_a_permit_is_not_given_another(two: World) -> None:
    for name in "ab":
        two.acquire("k", name.upper(), session=name, lease=f"of-{name}", mode="permit", slots=2)
    held = expect(results.Held, two.handover("of-a", "b"))
    assert [holder.owner for holder in held.holders] == ["B"]


# Parking


def test_a_parked_lease_needs_no_heartbeats_until_its_limit(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    parked = expect(results.Parked, two.park("one", 3_600_000)).grant
    assert parked.lease.parked
    two.wait(3_599_999)
    two.expire()
    assert two.holder("k") == "A"
    two.wait(1)
    two.expire()
    assert two.holder("k") is None
    assert two.renew("one") == results.Lost("expired")


def test_a_parked_lease_outlives_its_session(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one", request="r")
    two.park("one")
    two.close("a")
    assert two.holder("k") == "A"
    awake = expect(results.Unparked, two.unpark("one", ttl_ms=10_000)).grant
    assert awake.session.private
    assert awake.session.deadline_ms == two.now_ms + 10_000


def test_unparking_mints_a_token_and_keeps_the_id(two: World) -> None:
    old = two.granted("k", "A", session="a", lease="one")
    two.park("one")
    awake = expect(results.Unparked, two.unpark("one", "b"))
    assert awake.grant.lease.lease_id == "one"
    assert awake.grant.lease.token > old.lease.token
    assert awake.grant.session.session_id == "b"
    assert expect(results.CommitRefused, two.commit(old, require_live=False)).code == "stale_token"
    assert isinstance(two.commit(awake.grant), results.Committed)
    again = expect(results.Unparked, two.unpark("one", "b"))
    assert again.replayed
    assert again.grant.lease == awake.grant.lease


def test_a_lease_takes_up_the_ttl_that_it_had(two: World) -> None:
    two.acquire("k", "A", lease="one", ttl_ms=7_000)
    two.park("one")
    two.park("one")
    assert expect(results.Unparked, two.unpark("one")).grant.session.ttl_ms == 7_000


def test_while_parked_nothing_is_written_and_a_renewal_changes_nothing(two: World) -> None:
    grant = two.granted("k", "A", session="a", lease="one")
    parked = expect(results.Parked, two.park("one", 60_000)).grant
    assert expect(results.CommitRefused, two.commit(grant)).code == "not_live"
    two.wait(30_000)
    assert expect(results.Renewed, two.renew("one", ttl_ms=600_000)).grant == parked
    assert expect(results.SessionIs, two.renew(session="one")).session == parked.session


def test_the_request_of_a_parked_lease_is_still_known_in_its_scope(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one", request="r")
    two.park("one")
    assert grant_in(two.acquire("k", "A", session="a", request="r")).lease.lease_id == "one"
    two.restart()
    two.unpark("one", "b")
    assert grant_in(two.acquire("k", "A", session="a", request="r")).lease.lease_id == "one"
    assert two.abandon("r", "a") == results.Abandoned(True)


def test_shared_leases_and_sets_are_not_parked(two: World) -> None:
    two.acquire("k", "A", lease="reader", mode="shared")
    two.acquire(keys=["x", "y"], lease="set")
    for lease in ("reader", "set", "set.1"):
        assert isinstance(two.park(lease), results.Unsupported)


def test_unparking_that_would_close_a_circle_is_refused_with_all_of_it(
    two: World,
) -> None:
    """B waits for what X holds, and X for what C holds, who waits for the key."""
    for name in ("x", "c"):
        two.open(name, name.upper(), ttl_ms=600_000)
        two.acquire(f"of-{name}", name.upper(), session=name)
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.acquire("k", "C", session="c", wait=True)
    two.acquire("of-c", "X", session="x", wait=True)
    two.acquire("of-x", "B", session="b", wait=True)
    assert two.unpark("one", "b") == results.Deadlock(["B", "of-x", "X", "of-c", "C", "k"])


def test_unparking_into_a_session_that_waits_for_the_key_is_refused(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.acquire("k", "B", session="b", wait=True)
    assert two.unpark("one", "b") == results.Deadlock(["B", "k"])


def test_a_parked_lease_can_be_broken_and_released(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.break_key("k", "forgotten")
    assert two.unpark("one") == results.Lost("broken", "forgotten")
    two.acquire("k", "A", session="a", lease="two")
    two.park("two")
    assert two.release("two") == results.Released(False)
    assert two.table.session(TENANT, "two") is None


def test_a_parking_that_comes_late_does_not_park_what_was_taken_up_since(two: World) -> None:
    held = two.granted("k", "A", lease="one")
    two.park("one", 5_000, token=held.lease.token)
    taken = expect(results.Unparked, two.unpark("one", token=held.lease.token)).grant
    assert two.park("one", 5_000, token=held.lease.token) == results.StaleToken(taken.lease.token)
    assert expect(results.Unparked, two.unpark("one", token=held.lease.token)).grant == taken


def test_taking_up_what_was_not_parked_yet_keeps_the_parking_out(two: World) -> None:
    held = two.granted("k", "A", session="a", lease="one")
    taken = expect(results.Unparked, two.unpark("one", "a", token=held.lease.token))
    assert (taken.replayed, two.kinds()) == (False, ["unparked"])
    assert taken.grant.lease.token > held.lease.token
    assert taken.grant.session.session_id == "a"
    assert two.park("one", token=held.lease.token) == results.StaleToken(taken.grant.lease.token)
    assert two.commit(held) != two.commit(taken.grant)


def test_a_taking_up_that_comes_late_does_not_take_up_what_was_parked_since(two: World) -> None:
    held = two.granted("k", "A", lease="one")
    two.park("one", token=held.lease.token)
    taken = expect(results.Unparked, two.unpark("one", token=held.lease.token)).grant
    two.park("one", token=taken.lease.token)
    assert two.unpark("one", token=held.lease.token) == results.StaleToken(taken.lease.token)


# Asking for what one has parked


@pytest.mark.parametrize("if_held", ["return", "conflict"])
@pytest.mark.parametrize("wait", [True, False])
def test_a_session_does_not_wait_behind_the_lease_that_it_parked(
    two: World, if_held: str, *, wait: bool
) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.restart()
    held = expect(results.Held, two.acquire("k", "A", session="a", wait=wait, if_held=if_held))
    assert [holder.owner for holder in held.holders] == ["A"]
    assert two.queue("k") == []
    assert isinstance(two.acquire("k", "B", session="b", wait=True), results.Waiting)


def test_a_parked_lease_is_not_taken_up_by_a_session_that_is_over(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.wait(600_001)
    assert two.unpark("one", "b") == results.SessionExpired()
    assert isinstance(two.acquire("k", "C", wait=True), results.Waiting)


def test_a_session_with_a_parked_permit_and_one_that_it_was_given_is_told_of_both(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one", mode="permit", slots=2)
    two.park("one")
    two.acquire("k", "B", session="b", lease="other", mode="permit", slots=2)
    two.handover("other", "a")
    asked = two.acquire("k", "A", session="a", mode="permit", slots=2, wait=True, if_held="return")
    assert len(expect(results.Held, asked).holders) == 2


def test_a_session_that_parked_one_of_several_keys_gets_none_of_them(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    assert isinstance(two.acquire(keys=["j", "k"], session="a", wait=True), results.Held)
    assert two.holder("j") is None


def test_it_is_whoever_parked_it_last_who_would_wait_for_itself(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.unpark("one", "b")
    two.park("one")
    two.park("one")
    assert isinstance(two.acquire("k", "B", session="b", wait=True), results.Held)
    assert isinstance(two.acquire("k", "A", session="a", wait=True), results.Waiting)


def test_a_session_whose_lease_was_taken_up_elsewhere_waits_like_any_other(two: World) -> None:
    two.acquire("k", "A", session="a", lease="one")
    two.park("one")
    two.unpark("one", "b")
    assert isinstance(two.acquire("k", "A", session="a", wait=True), results.Waiting)
