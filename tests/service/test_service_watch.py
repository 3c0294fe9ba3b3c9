"""Subscriptions: what they are told, in which order, and what becomes of those who are slow."""

import asyncio

import pytest
from service_cluster import until
from service_events import PLAIN, PlainEncoder, Watcher, happened, turns

from tenure_cluster.lease.events import Event
from tenure_cluster.service import watch
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.watch import SLICE, Watches
from tenure_cluster.service.watch_log import EventLog

HISTORY = 1_600


@pytest.fixture
def watches() -> Watches:
    return Watches(EventLog(HISTORY), watchers_max=50, nodes=lambda: ["http://n2.test"])


@pytest.fixture
def quick_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BEAT_S", 0.02)


def all_of(*numbers: int, key: str = "k") -> list[Event]:
    return [happened(number, key) for number in numbers]


def watching(watches: Watches, prefix: str = "", after: int | None = None, room: int = 1_000_000) -> Watcher:
    return Watcher(room).watch(watches.subscribe, "default", prefix, after)


async def told(watcher: Watcher, last: int) -> None:
    await until(lambda: watcher.revisions[-1:] == [last], f"revision {last}")


async def test_a_watch_from_now_is_told_where_it_begins_and_what_comes(watches: Watches) -> None:
    watches.on_events(all_of(1, 2))
    watcher = watching(watches)
    await turns()
    watches.on_events(all_of(3))
    await told(watcher, 3)
    assert watcher.revisions == [3]
    assert [(notice.kind, notice.revision) for notice in watcher.notices] == [("bookmark", 2)]


async def test_a_watch_after_a_revision_is_told_what_followed_and_then_what_comes(watches: Watches) -> None:
    watches.on_events(all_of(1, 2, 3))
    watcher = watching(watches, after=1)
    watches.on_events(all_of(4))
    await turns()
    watches.on_events(all_of(5))
    await told(watcher, 5)
    assert watcher.revisions == [2, 3, 4, 5]


async def test_only_keys_that_begin_with_the_prefix_are_told(watches: Watches) -> None:
    prefixes = ["", "a", "ab", "ab/", "abc", "b", "abcdefghij"]
    watchers = {prefix: watching(watches, prefix, 0) for prefix in prefixes}
    await turns()
    keys = ["a", "ab", "abc", "ab/c", "b", "c", "abcdefghijk"]
    watches.on_events([happened(number, key) for number, key in enumerate(keys, 1)])
    await told(watchers[""], len(keys))
    for prefix, watcher in watchers.items():
        assert [event.key for event in watcher.told] == [key for key in keys if key.startswith(prefix)]


async def test_one_tenant_hears_nothing_of_another(watches: Watches) -> None:
    watcher = watching(watches)
    other = Watcher().watch(watches.subscribe, "other", "", None)
    await turns()
    watches.on_events([happened(1), happened(1, tenant="other"), happened(2)])
    await told(watcher, 2)
    assert [event.tenant for event in watcher.told] == ["default", "default"]
    assert [event.tenant for event in other.told] == ["other"]


async def test_what_many_are_told_is_encoded_once(watches: Watches) -> None:
    encoder = PlainEncoder()
    watchers = [Watcher() for _ in range(20)]
    for watcher in watchers:
        watches.subscribe("default", "", None, encoder, watcher.write, watcher.end)
    await turns()
    watches.on_events(all_of(*range(1, 11)))
    await told(watchers[-1], 10)
    assert all(watcher.revisions == list(range(1, 11)) for watcher in watchers)
    assert encoder.asked == 1


async def test_many_events_are_told_in_slices_with_turns_of_the_loop_between(watches: Watches) -> None:
    watcher = watching(watches, after=0)
    await turns()
    watches.on_events(all_of(*range(1, 3 * SLICE + 1)))
    lengths = []
    while len(watcher.told) < 3 * SLICE:
        before = len(watcher.told)
        await asyncio.sleep(0)
        lengths.append(len(watcher.told) - before)
    assert max(lengths) == SLICE
    assert watcher.revisions == list(range(1, 3 * SLICE + 1))


async def test_a_watcher_that_takes_nothing_is_written_nothing_and_goes_on_where_it_stood(
    watches: Watches,
) -> None:
    slow, quick = watching(watches, after=0, room=1), watching(watches, after=0)
    await turns()
    watches.on_events(all_of(1))
    await told(slow, 1)
    for number in range(2, 700):
        watches.on_events(all_of(number))
        await asyncio.sleep(0)
    await told(quick, 699)
    assert (slow.revisions, slow.written_when_full) == ([1], 0)
    slow.has_room()
    await told(slow, 699)
    assert slow.revisions == quick.revisions == list(range(1, 700))
    watches.on_events(all_of(700))
    await told(slow, 700)
    assert not slow.ended


async def test_a_watcher_that_pauses_at_every_write_misses_nothing(watches: Watches) -> None:
    watcher = watching(watches, after=0, room=1)
    for number in range(1, 1_001):
        watches.on_events(all_of(number))
        if number % 7 == 0:
            await asyncio.sleep(0.001)
            watcher.has_room(1)
    while watcher.revisions[-1:] != [1_000]:
        watcher.has_room(1)
        await asyncio.sleep(0.001)
    assert watcher.revisions == list(range(1, 1_001))
    assert watcher.written_when_full == 0


async def test_a_watcher_that_the_horizon_overtakes_is_told_of_the_gap_and_ends(watches: Watches) -> None:
    slow = watching(watches, after=0, room=1)
    await turns()
    watches.on_events(all_of(1, 2))
    await told(slow, 2)
    for start in range(3, 3 * HISTORY, 100):
        watches.on_events(all_of(*range(start, start + 100)))
    slow.has_room()
    await until(lambda: slow.ended, "the end")
    [gap] = [notice for notice in slow.notices if notice.kind == "gap"]
    assert slow.revisions == [1, 2]
    assert gap.members == {"last": 2}
    assert gap.revision == watches.log.horizon("default")
    assert (len(watches), watches.gaps) == (0, 1)
    again = watching(watches, after=gap.revision)
    await told(again, watches.log.head("default"))
    assert gap.revision is not None
    assert again.revisions[0] == gap.revision + 1


async def test_a_snapshot_that_skips_events_ends_whoever_would_miss_them(watches: Watches) -> None:
    missing, current = watching(watches, after=0), Watcher().watch(watches.subscribe, "other", "", None)
    await turns()
    watches.on_events(all_of(1))
    await told(missing, 1)
    watches.on_restored({"default": 9, "other": 0})
    await until(lambda: missing.ended, "the end")
    assert (missing.kinds()[-1], missing.notices[-1].revision) == ("gap", 9)
    assert not current.ended


async def test_a_snapshot_of_what_was_told_already_ends_nobody(watches: Watches) -> None:
    watcher = watching(watches, after=0)
    watches.on_events(all_of(1, 2))
    await told(watcher, 2)
    watches.on_restored({"default": 2})
    watches.on_events(all_of(3))
    await told(watcher, 3)
    assert watcher.revisions == [1, 2, 3]


async def test_a_watch_after_what_is_forgotten_is_refused_with_the_revision_to_list_from(
    watches: Watches,
) -> None:
    watches.on_restored({"default": 40})
    refusal = watches.subscribe("default", "", 39, PLAIN, lambda data: True, lambda: None)
    assert isinstance(refusal, Problem)
    assert (refusal.code, refusal.status, refusal.extra["revision"]) == ("compacted", 410, 40)
    assert len(watches) == 0
    assert watching(watches, after=40).subscription is not None


async def test_a_watch_after_what_this_node_has_not_applied_waits_for_it(watches: Watches) -> None:
    watches.on_events(all_of(1, 2))
    watcher = watching(watches, after=4)
    await turns()
    watches.on_events(all_of(3))
    await asyncio.sleep(0.03)
    watches.on_events(all_of(4, 5))
    await told(watcher, 5)
    watches.on_events(all_of(6))
    await told(watcher, 6)
    assert watcher.revisions == [5, 6]


async def test_a_revision_that_never_comes_ends_in_a_gap(
    watches: Watches, quick_beat: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "AHEAD_S", 0.05)
    watches.on_events(all_of(1))
    watcher = watching(watches, after=77)
    await until(lambda: watcher.ended, "the end")
    assert (watcher.notices[-1].kind, watcher.notices[-1].revision) == ("gap", 1)
    assert watcher.notices[-1].members == {"last": 77}


async def test_bookmarks_say_how_far_everything_was_told(watches: Watches, quick_beat: None) -> None:
    watcher = watching(watches, "mine/", 0)
    await turns()
    watches.on_events([happened(1, "mine/1"), happened(2, "theirs"), happened(3, "theirs")])
    await until(lambda: watcher.kinds().count("bookmark") == 1, "a bookmark")
    assert watcher.revisions == [1]
    assert watcher.notices[0].revision == 3
    await until(lambda: watcher.kinds().count("alive") >= 2, "signs of life")
    assert watcher.kinds().count("bookmark") == 1


async def test_a_change_of_leader_is_told_once_and_has_no_revision(watches: Watches) -> None:
    watcher = watching(watches, after=0)
    await turns()
    for leader, term in [("n1", 3), ("n1", 3), (None, 4), ("n1", 5)]:
        watches.leader_changed(leader, term, leader and f"http://{leader}.test")
    assert [notice.members["term"] for notice in watcher.notices] == [3, 5]
    assert watcher.notices[0].body == {
        "kind": "leader_changed",
        "leader": "n1",
        "leader_url": "http://n1.test",
        "term": 3,
    }


async def test_closing_tells_everybody_where_to_go_on(watches: Watches) -> None:
    live, slow = watching(watches, after=0), watching(watches, after=0, room=1)
    await turns()
    watches.on_events(all_of(1))
    await told(live, 1)
    watches.on_events(all_of(2))
    await told(live, 2)
    watches.close()
    assert (live.ended, slow.ended) == (True, True)
    assert live.notices[-1].body == {"kind": "shutting_down", "revision": 2, "nodes": ["http://n2.test"]}
    assert slow.notices[-1].revision == slow.revisions[-1] == 1
    refusal = watches.subscribe("default", "", None, PLAIN, lambda data: True, lambda: None)
    assert isinstance(refusal, Problem)
    assert refusal.code == "shutting_down"


async def test_more_watchers_than_the_node_takes_are_refused(watches: Watches) -> None:
    watchers = [watching(watches) for _ in range(50)]
    refusal = watches.subscribe("default", "", None, PLAIN, lambda data: True, lambda: None)
    assert isinstance(refusal, Problem)
    assert (refusal.code, refusal.retry_after_s) == ("overloaded", 5.0)
    assert watchers[0].subscription is not None
    watchers[0].subscription.close()
    watching(watches)


async def test_a_watcher_that_closes_hears_nothing_more_and_leaves_nothing_behind(watches: Watches) -> None:
    watcher, other = watching(watches, "a"), watching(watches, "a")
    await turns()
    assert watcher.subscription is not None
    watcher.subscription.close()
    watcher.subscription.close()
    watches.on_events(all_of(1, key="a"))
    await told(other, 1)
    assert watcher.told == []
    assert len(watches) == 1
    assert other.subscription is not None
    other.subscription.close()
    assert watches._audiences == {}


async def test_events_that_come_in_a_rush_are_told_together(watches: Watches) -> None:
    """However many entries are applied in a second, a watcher is written to a bounded number of times."""
    watcher = watching(watches, after=0)
    await turns()
    writes = 0
    write = watcher.write

    def counted(encoded: object) -> bool:
        nonlocal writes
        writes += 1
        return write(encoded)

    assert watcher.subscription is not None
    watcher.subscription.write = counted
    for number in range(1, 1_001):
        watches.on_events(all_of(number))
        if number % 10 == 0:
            await asyncio.sleep(0)
    await told(watcher, 1_000)
    assert watcher.revisions == list(range(1, 1_001))
    assert writes < 50


@pytest.mark.parametrize("meanwhile", ["nothing", "a notice", "the end", "some leave"])
async def test_many_watchers_are_written_to_in_turns_and_each_in_order(meanwhile: str) -> None:
    """Whatever comes between the turns, nobody is told that something follows before it was told."""
    watches = Watches(EventLog(HISTORY), watchers_max=5_000, nodes=list)
    watchers = [watching(watches, after=0) for _ in range(3 * watch.WATCHERS_PER_TURN + 7)]
    await turns()
    watches.on_events(all_of(1, 2))

    def told_so_far() -> int:
        return sum(bool(watcher.told) for watcher in watchers)

    while not told_so_far():  # noqa: ASYNC110 -- turn by turn is the point
        await asyncio.sleep(0)
    assert told_so_far() == watch.WATCHERS_PER_TURN
    if meanwhile == "a notice":
        watches.leader_changed("n1", 1, None)
    elif meanwhile == "the end":
        watches.close()
        assert {notice.revision for watcher in watchers for notice in watcher.notices[-1:]} == {2}
    elif meanwhile == "some leave":
        for watcher in watchers[::2]:
            assert watcher.subscription is not None
            watcher.subscription.close()
    watches.on_events(all_of(3))
    stay = watchers[1::2] if meanwhile == "some leave" else watchers
    last = 2 if meanwhile == "the end" else 3
    for watcher in stay:
        await told(watcher, last)
        assert watcher.revisions == list(range(1, last + 1))
