"""The calendar of deadlines: exact, cheap to renew, bounded in what it looks at and in what it keeps."""

import random

import pytest

from tenure_cluster.lease.calendar import BUCKET_MS, FULL_BUCKET, HORIZON_MS, LATER, Calendar

MANY = 1_000_000


class Things:
    """Things with deadlines that can be moved and ended, and a calendar of them."""

    def __init__(self) -> None:
        self.deadlines: dict[str, int] = {}
        self.calendar: Calendar[str] = Calendar(self.look)
        self.looks = 0

    def look(self, name: str) -> int | None:
        self.looks += 1
        return self.deadlines.get(name)

    def add(self, name: str, deadline_ms: int, now_ms: int = 0) -> None:
        self.deadlines[name] = deadline_ms
        self.calendar.push(name, deadline_ms, now_ms)

    def end(self, name: str) -> None:
        del self.deadlines[name]
        self.calendar.discard(name)

    def due(self, now_ms: int, limit: int = MANY, steps_max: int = MANY) -> list[str]:
        return [name for name, _ in self.calendar.due(now_ms, limit, steps_max)]


@pytest.fixture
def things() -> Things:
    return Things()


@pytest.mark.parametrize("deadline_ms", [1, BUCKET_MS - 1, BUCKET_MS, BUCKET_MS + 1, 1_000, 86_400_000])
def test_a_thing_is_due_at_its_deadline_and_not_a_millisecond_before(
    things: Things, deadline_ms: int
) -> None:
    things.add("a", deadline_ms)
    assert things.due(deadline_ms - 1) == []
    assert things.calendar.due(deadline_ms, 10, MANY) == [("a", deadline_ms)]


def test_it_is_named_until_it_has_ended(things: Things) -> None:
    things.add("a", 100)
    assert things.due(100) == things.due(100) == ["a"]
    things.end("a")
    assert things.due(100) == []
    assert things.calendar.next_ms() is None


def test_a_renewed_thing_is_due_at_its_new_deadline(things: Things) -> None:
    things.add("a", 100)
    things.deadlines["a"] = 5_000
    assert things.due(4_999) == []
    assert things.due(5_000) == ["a"]


def test_an_overdue_thing_that_turns_out_to_live_is_due_later(things: Things) -> None:
    """The look may run ahead of the log: a renewal that is on its way moves the deadline once more."""
    things.add("a", 100)
    assert things.due(150) == ["a"]
    things.deadlines["a"] = 300
    assert things.due(150) == []
    assert things.due(300) == ["a"]


def test_no_more_than_the_limit_is_named(things: Things) -> None:
    for number in range(100):
        things.add(f"t{number}", number)
    assert len(things.due(200, limit=7)) == 7
    assert len(things.due(200)) == 100


def test_next_ms_is_never_late_and_after_an_empty_look_always_ahead(things: Things) -> None:
    pick = random.Random(7)
    for number in range(300):
        things.add(f"t{number}", pick.randrange(1, 100_000))
    now_ms = 0
    looks = 0
    while things.deadlines:
        for name in things.due(now_ms):
            assert things.deadlines[name] <= now_ms
            if pick.random() < 0.3:
                things.deadlines[name] += pick.randrange(60_000)
            else:
                things.end(name)
        if not things.due(now_ms):
            at_ms = things.calendar.next_ms()
            if at_ms is None:
                break
            assert now_ms < at_ms <= min(things.deadlines.values())
            now_ms = at_ms
        looks += 1
    assert things.deadlines == {}
    assert looks < 3_000


def test_when_to_look_again_is_known_without_looking_through_a_full_bucket(things: Things) -> None:
    for number in range(10 * FULL_BUCKET):
        things.add(f"t{number}", 1_600 + number % BUCKET_MS)
    things.looks = 0
    assert things.calendar.next_ms() == 1_600
    assert things.looks == 0
    now_ms = 1_600
    ended = 0
    while things.deadlines:
        for name in things.due(now_ms):
            ended += things.deadlines[name] == now_ms  # none is late, though the bucket is full
            things.end(name)
        at_ms = things.calendar.next_ms()
        assert at_ms is None or at_ms > now_ms
        now_ms = at_ms or now_ms
    assert ended == 10 * FULL_BUCKET


def test_one_look_is_bounded_and_the_next_goes_on_where_it_stopped(things: Things) -> None:
    for number in range(1_000):
        things.add(f"t{number}", 10)
    found: set[str] = set()
    for _ in range(10):
        things.looks = 0
        found.update(things.due(10, limit=1_000, steps_max=100))
        assert things.looks <= 100 + len(found)
    assert len(found) == 1_000


def test_what_ended_long_before_its_deadline_is_dropped_within_the_horizon(things: Things) -> None:
    for number in range(1_000):
        things.add(f"t{number}", 86_400_000)
        things.end(f"t{number}")
    things.calendar.advance(HORIZON_MS + BUCKET_MS, MANY)
    assert things.calendar.next_ms() is None


def test_things_with_far_deadlines_do_not_all_come_up_at_once(things: Things) -> None:
    for number in range(1_000):
        things.add(f"t{number}", 86_400_000)
    things.calendar.advance(HORIZON_MS * 3 // 4, MANY)
    assert 250 < things.looks < 750


def test_what_stays_is_looked_at_ever_more_seldom(things: Things) -> None:
    for number in range(1_000):
        things.add(f"t{number}", 86_400_000)
    looks = []
    for minute in range(1, 31):
        things.looks = 0
        things.calendar.advance(minute * 60_000, MANY)
        looks.append(things.looks)
    assert looks[0] >= 1_000  # each has come up within the horizon once
    assert sum(looks[5:]) / 25 < 2 * 1_000 * 60_000 / (LATER * HORIZON_MS)
    assert max(looks[5:]) < 700  # and they come up one after the other


def test_a_thing_that_has_come_up_before_is_still_due_at_its_deadline(things: Things) -> None:
    things.add("a", 2_000_000)
    for now_ms in range(0, 2_000_000, 5_000):
        assert things.due(now_ms) == []
    assert things.due(1_999_999) == []
    assert things.due(2_000_000) == ["a"]


def test_on_a_node_where_nobody_asks_nothing_piles_up(things: Things) -> None:
    for now_ms in range(0, 200_000, 10):
        things.add(f"t{now_ms}", now_ms + 5_000, now_ms)
        things.end(f"t{now_ms}")
        things.calendar.advance(now_ms, 10)
    kept = sum(len(bucket) for bucket in things.calendar._buckets.values())
    assert kept <= 5_000 // 10 + 2 * BUCKET_MS
    assert len(things.calendar._order) == len(things.calendar._buckets)
