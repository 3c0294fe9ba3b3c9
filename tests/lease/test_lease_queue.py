"""Waiting: the order of the queue, the waiters' signs of life, the hand-off and its claim."""

import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import limits, results


def test_waiters_are_granted_first_come_first_served(world: World) -> None:
    world.acquire("k", "A", lease="a")
    for owner in "BCD":
        world.acquire("k", owner, lease=owner, wait=True)
    order = []
    world.release("a")
    for _ in range(3):
        (grant,) = world.table.holders(TENANT, "k")
        order.append(grant.lease.owner)
        world.release(grant.lease.lease_id)
    assert order == ["B", "C", "D"]


def test_the_next_waiter_is_granted_in_the_entry_of_the_release(world: World) -> None:
    """T55: no idle time between two holders. T52: the hand-off is state, so a later poll finds it."""
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", request="rb", wait=True)
    world.release("a")
    assert world.kinds() == ["released", "granted"]
    world.restart()
    assert grant_in(world.acquire("k", "B", request="rb", wait=True)).lease.owner == "B"


def test_a_grant_to_a_waiter_must_be_claimed_and_then_has_its_full_ttl(world: World) -> None:
    """T2, T3: a waiter that is granted is alive, and its TTL does not run while it queues."""
    world.acquire("k", "A", lease="a", ttl_ms=20_000)
    world.acquire("k", "B", lease="b", ttl_ms=5_000, wait=True)
    world.wait(20_000)
    world.expire()
    (unclaimed,) = world.table.holders(TENANT, "k")
    assert unclaimed.lease.claim_deadline_ms == world.now_ms + limits.CLAIM_WINDOW_MS
    assert unclaimed.session.deadline_ms == unclaimed.lease.claim_deadline_ms
    assert expect(results.CommitRefused, world.commit(unclaimed)).code == "not_live"
    world.wait(3_000)
    claimed = grant_in(world.claim("b"))
    assert claimed.session.deadline_ms == world.now_ms + 5_000
    assert claimed.lease.token == unclaimed.lease.token
    assert isinstance(world.commit(claimed), results.Committed)


def test_a_dead_waiter_costs_the_claim_window_and_not_its_ttl(world: World) -> None:
    """T2: success is never reported to, and the key never kept for, a waiter that died in the queue."""
    world.acquire("k", "A", lease="a")
    world.acquire("k", "dead", ttl_ms=600_000, wait=True)
    world.acquire("k", "C", request="rc", wait=True)
    world.release("a")
    world.wait(limits.CLAIM_WINDOW_MS - 1)
    assert isinstance(world.acquire("k", "C", request="rc", wait=True), results.Waiting)
    world.wait(1)
    assert grant_in(world.acquire("k", "C", request="rc", wait=True)).lease.owner == "C"


def test_a_waiter_stays_for_as_long_as_it_polls_whatever_its_age(world: World) -> None:
    """T51: a waiter lives by its own polls and is never ended by age. T3: its session lives with it."""
    world.open("holder", ttl_ms=3_600_000)
    world.acquire("k", "A", session="holder")
    world.acquire("k", "B", request="rb", ttl_ms=5_000, wait=True)
    for _ in range(40):
        world.wait(limits.POLL_SLICE_MS)
        world.expire()
        waiting = expect(results.Waiting, world.acquire("k", "B", request="rb", ttl_ms=5_000, wait=True))
        assert waiting.position == 1
    assert world.queue() == ["B"]


def test_a_waiter_that_is_silent_for_two_slices_leaves_the_queue(world: World) -> None:
    """T40: an orphan waiter disappears by itself."""
    world.open("holder", ttl_ms=3_600_000)
    world.acquire("k", "A", session="holder")
    world.acquire("k", "B", wait=True)
    world.wait(limits.WAITER_SILENCE_MS - 1)
    assert world.table.due(world.now_ms, 10) == []
    world.wait(1)
    (item,) = world.table.due(world.now_ms, 10)
    assert item.kind == "waiter"
    assert world.expire() == results.Done(1)
    assert world.queue() == []
    assert [event.detail for event in world.events] == ["silent"]


def test_silent_waiters_are_passed_over_without_any_reaper(world: World) -> None:
    world.open("holder", ttl_ms=3_600_000)
    world.acquire("k", "A", session="holder", lease="a")
    world.acquire("k", "silent", wait=True)
    world.wait(1)
    world.acquire("k", "C", request="rc", wait=True)
    world.wait(limits.WAITER_SILENCE_MS - 1)
    world.acquire("k", "C", request="rc", wait=True)
    world.release("a")
    assert world.kinds() == ["released", "granted"]
    assert world.holder() == "C"


def test_a_poll_that_comes_too_late_queues_anew_at_the_end(world: World) -> None:
    world.open("holder", ttl_ms=3_600_000)
    world.acquire("k", "A", session="holder")
    world.acquire("k", "B", request="rb", wait=True)
    world.wait(1_000)
    world.acquire("k", "C", request="rc", wait=True)
    world.wait(limits.WAITER_SILENCE_MS - 1_000)
    late = expect(results.Waiting, world.acquire("k", "B", request="rb", wait=True))
    assert (late.position, late.ahead) == (2, ["C"])


def test_polling_keeps_the_place_and_tells_it(world: World) -> None:
    world.acquire("k", "A", lease="a")
    for owner in "BCD":
        world.acquire("k", owner, request=owner, wait=True)
    polled = expect(results.Waiting, world.acquire("k", "D", request="D", wait=False))
    assert (polled.position, polled.ahead) == (3, ["B", "C"])
    assert [holder.owner for holder in polled.holders] == ["A"]
    world.restart()
    world.abandon("B")
    assert expect(results.Waiting, world.acquire("k", "D", request="D", wait=True)).position == 2


def test_no_more_than_ten_of_those_ahead_are_named(world: World) -> None:
    world.acquire("k", "A")
    for number in range(15):
        last = expect(results.Waiting, world.acquire("k", f"w{number}", wait=True))
    assert last.position == 15
    assert last.ahead == [f"w{number}" for number in range(10)]


def test_a_full_queue_refuses_and_says_its_bound(world: World) -> None:
    machine = world.machine
    machine.apply(world.now_ms, world.acquire_command("k", "A"))
    for _ in range(limits.WAITERS_PER_KEY_MAX):
        applied = machine.apply(world.now_ms, world.acquire_command("k", "B", wait=True))
        assert isinstance(applied.result, results.Waiting)
    one_more = machine.apply(world.now_ms, world.acquire_command("k", "B", wait=True))
    assert one_more.result == results.QueueFull(limits.WAITERS_PER_KEY_MAX)
    machine.check()


def test_a_waiter_whose_session_has_expired_is_told_so_at_once_and_never_wins(world: World) -> None:
    """T54: it neither waits for ever nor gets a key without a lease."""
    world.open("s", "B", ttl_ms=10_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", request="rb", wait=True)
    world.wait(10_000)
    world.expire()
    assert world.kinds() == ["queue_left"]
    assert world.acquire("k", "B", session="s", request="rb", wait=True) == results.SessionExpired()
    world.release("a")
    assert world.holder() is None


def test_a_waiter_with_an_expired_session_is_skipped_before_the_reaper_comes(world: World) -> None:
    """T54, T2: the waiter's session is looked at again at the moment of the hand-off."""
    world.open("s", "B", ttl_ms=10_000)
    world.open("t", "C", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", wait=True)
    world.acquire("k", "C", session="t", wait=True)
    world.wait(10_000)
    world.release("a")
    assert world.kinds() == ["released", "queue_left", "granted"]
    assert world.holder() == "C"


def test_renewing_its_session_keeps_an_explicit_waiter(world: World) -> None:
    world.open("s", "B", ttl_ms=10_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", lease="b", wait=True)
    world.wait(9_000)
    world.renew(session="s")
    world.wait(9_000)
    world.release("a")
    assert world.holder() == "B"
    assert grant_in(world.claim("b")).session.deadline_ms == world.now_ms + 10_000


def test_a_claim_never_shortens_the_session(world: World) -> None:
    world.open("s", "B", ttl_ms=60_000)
    world.renew(session="s", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", lease="b", wait=True)
    world.renew(session="s", ttl_ms=1_000)
    deadline_ms = world.table.session(TENANT, "s").deadline_ms
    world.release("a")
    assert grant_in(world.claim("b")).session.deadline_ms == deadline_ms


def test_an_unclaimed_grant_of_a_session_expires_with_its_claim_window(world: World) -> None:
    world.open("s", "B", ttl_ms=60_000)
    world.acquire("k", "A", lease="a")
    world.acquire("k", "B", session="s", lease="b", wait=True)
    world.release("a")
    world.wait(limits.CLAIM_WINDOW_MS)
    (item,) = world.table.due(world.now_ms, 10)
    assert (item.kind, item.id) == ("claim", "b")
    assert world.expire() == results.Done(1)
    assert world.claim("b") == results.Lost("expired")
    assert isinstance(world.renew(session="s"), results.SessionIs)


def test_a_queue_forms_during_a_grace_period_and_is_served_at_its_end(world: World) -> None:
    world.acquire("k", "A", ttl_ms=10_000, grace_ms=5_000)
    world.wait(10_000)
    waiting = expect(results.Waiting, world.acquire("k", "B", wait=True))
    assert waiting.holders == []
    world.acquire("k", "C", wait=True)
    world.wait(4_999)
    assert world.expire() == results.Done(0)
    world.wait(1)
    (item,) = world.table.due(world.now_ms, 10)
    assert (item.kind, item.id) == ("grace", "k")
    assert world.expire() == results.Done(1)
    assert world.holder() == "B"
    assert world.queue() == ["C"]


def test_of_many_dead_waiters_an_entry_drops_a_bounded_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is handed on by the entries that follow, and nobody passes the live waiter behind the dead."""
    monkeypatch.setattr(limits, "DROPS_PER_ENTRY_MAX", 3)
    monkeypatch.setattr(limits, "EXPIRE_BATCH_MAX", 2)
    world.acquire("k", "A", lease="one", ttl_ms=600_000)
    for number in range(10):
        world.acquire("k", f"dead{number}", wait=True)
    world.wait(limits.WAITER_SILENCE_MS - 1_000)
    world.acquire("k", "B", request="live", wait=True, ttl_ms=600_000)
    world.wait(1_000)
    world.release("one")
    assert world.kinds() == ["released"] + ["queue_left"] * 3
    assert world.holder("k") is None
    assert isinstance(world.acquire("k", "X"), results.Held)
    assert len(world.events) <= 3
    entries = 0
    while world.holder("k") is None:
        entries += 1
        world.expire()
        assert len(world.events) <= 3 + limits.EXPIRE_BATCH_MAX + 1
    assert world.holder("k") == "B"
    assert entries <= 10


def test_a_dead_waiter_that_asks_again_among_many_dead_ones_waits_anew_and_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DROPS_PER_ENTRY_MAX", 2)
    world.acquire("k", "A", ttl_ms=600_000)
    for number in range(6):
        world.acquire("k", f"W{number}", request=f"w{number}", wait=True)
    world.wait(limits.WAITER_SILENCE_MS)
    again = expect(results.Waiting, world.acquire("k", "W4", request="w4", wait=True))
    assert world.kinds() == ["queue_left"] * 3 + ["queue_joined"]
    assert world.queue("k") == ["W2", "W3", "W5", "W4"]
    assert again.position == 4
    world.wait(1)
    world.expire()
    assert world.queue("k") == ["W4"]


def test_waiters_of_dead_sessions_are_dropped_in_bounded_numbers_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DROPS_PER_ENTRY_MAX", 2)
    world.acquire("k", "A", lease="one", ttl_ms=600_000)
    for number in range(5):
        world.open(f"s{number}", f"S{number}", ttl_ms=10_000)
        world.acquire("k", f"S{number}", session=f"s{number}", wait=True)
    world.acquire("k", "B", wait=True)
    world.wait(10_000)
    world.release("one")
    assert world.queue("k") == ["S2", "S3", "S4", "B"]
    world.acquire("k", "X")
    assert world.queue("k") == ["S4", "B"]
    world.acquire("k", "X")
    assert world.holder("k") == "B"
