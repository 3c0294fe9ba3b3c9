"""Known-good and known-bad histories of properties 14 and 15: what readers and watchers are told."""

from typing import Any

from chaos_known import breaks, keeps
from chaos_story import Story

from tenure_chaos.history import Watch, Watched

# -- 14: reads


def changing() -> Story:
    """Effects 0 to 3 at indexes 1 to 4: granted, written, released, granted to the next."""
    story = Story()
    first = story.acquire("a", "k")
    story.commit(first, "a/1")
    story.release(first)
    story.acquire("b", "k")
    return story


def stale(story: Story, token: int | None, index: int, session: str = "c at n1") -> None:
    """A stale read of the holder."""
    said: dict[str, Any] = {"answer": {"key": "k", "token": token, "applied_index": index}}
    if token is None:
        said = {"outcome": "refused", "code": "not_held", "answer": {"applied_index": index}}
    story.call("c", "get", {"key": "k", "consistency": "stale"}, session=session, **said)


@keeps(14)
def test_reads_of_the_present() -> Story:
    story = Story()
    story.get("k")
    story.record("k")
    grant = story.acquire("a", "k")
    story.get("k")
    story.commit(grant, "a/1")
    story.record("k")
    lease = story.calls[-3].answer
    story.call("c", "queue", {"key": "k"}, answer={"holders": [lease], "waiters": []})
    story.call("c", "list", {}, answer={"leases": [lease]})
    story.call("c", "validate", {"key": "k", "token": 1}, answer={"valid": True, "reason": ""})
    story.release(grant)
    story.call("c", "validate", {"key": "k", "token": 1}, answer={"valid": False, "reason": "not_live"})
    story.get("k")
    return story


@keeps(14)
def test_a_lease_that_has_expired_is_not_seen_though_no_effect_says_so() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=1_000)
    story.now += 2
    story.effect("Tick", {}, "Done", {"ended": 0})
    story.now += 0.1
    del story.held["k"]
    story.get("k")
    return story


@keeps(14)
def test_stale_reads_of_true_pasts() -> Story:
    story = changing()
    stale(story, 1, 2)
    stale(story, None, 3)
    stale(story, 1, 1, session="c at n2")
    stale(story, 2, 4)
    return story


@breaks(14)
def test_a_read_misses_a_grant_that_had_been_answered() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.held.clear()
    story.get("k")
    return story


@breaks(14)
def test_a_read_misses_a_record_that_had_been_written() -> Story:
    story = changing()
    story.records.clear()
    story.record("k")
    return story


@breaks(14)
def test_a_read_shows_the_holder_of_before() -> Story:
    story = changing()
    story.held["k"].token = 1
    story.get("k")
    return story


@breaks(14)
def test_a_read_foresees_a_grant() -> Story:
    story = changing()
    story.call("c", "get", {"key": "k"}, answer={"key": "k", "token": 2})
    story.calls[-1].invoked_at, story.calls[-1].returned_at = 1.2, 1.25
    # The one that was answered before it happened: only its answer is early.
    story.calls[-2].invoked_at = 1.0
    return story


@breaks(14)
def test_a_token_is_called_valid_after_its_end() -> Story:
    story = changing()
    story.call("c", "validate", {"key": "k", "token": 1}, answer={"valid": True, "reason": ""})
    return story


@breaks(14)
def test_the_newest_token_is_called_stale_by_a_look() -> Story:
    story = changing()
    story.call("c", "validate", {"key": "k", "token": 2}, answer={"valid": False, "reason": "stale_token"})
    return story


@breaks(14)
def test_a_list_shows_a_lease_that_has_ended() -> Story:
    story = changing()
    story.call("c", "list", {}, answer={"leases": [{"key": "k", "token": 1}]})
    return story


@breaks(14)
def test_a_stale_read_shows_what_was_not_so_at_its_index() -> Story:
    story = changing()
    stale(story, 1, 3)
    return story


@breaks(14)
def test_a_stale_read_names_an_index_that_is_not_there_yet() -> Story:
    story = changing()
    stale(story, 2, 4)
    story.calls[-1].invoked_at, story.calls[-1].returned_at = 1.1, 1.15
    return story


@breaks(14)
def test_a_session_goes_back_in_time() -> Story:
    story = changing()
    stale(story, 2, 4)
    stale(story, 1, 2)
    return story


# -- 15: watches


def watched(
    story: Story,
    *,
    skip: tuple[int, ...] = (),
    watcher: str = "w",
    first: int = 1,
    last: int = 99,
    **asked: Any,
) -> None:
    """A watcher is told what happened, from one revision to another."""
    watch = Watch(watcher, **{"began_at": 0.5, "from_revision": first, **asked})
    story.history.watches.append(watch)
    for effect in story.effects:
        for event in effect.events:
            revision = event["revision"]
            if first <= revision <= last and revision not in skip and event["key"].startswith(watch.prefix):
                at = max(effect.first_applied_at, watch.began_at) + 0.01
                told = Watched(watcher, at, revision, event["kind"], event["key"], event["token"])
                story.history.watched.append(told)


def two_keys() -> Story:
    """Revisions 1 to 6: granted k and other; released k; granted, committed, released k."""
    story = Story()
    first = story.acquire("a", "k")
    story.acquire("b", "other")
    story.release(first)
    second = story.acquire("b", "k")
    story.commit(second, "b/1")
    story.release(second)
    return story


@keeps(15)
def test_a_watcher_of_all_and_one_of_a_prefix() -> Story:
    story = two_keys()
    watched(story)
    watched(story, watcher="of other", prefix="oth")
    return story


@keeps(15)
def test_a_watcher_that_comes_back_goes_on_where_it_was() -> Story:
    story = two_keys()
    watched(story, last=3, ended_at=1.25)
    watched(story, first=4, began_at=1.9)
    return story


@keeps(15)
def test_a_gap_that_is_said() -> Story:
    story = two_keys()
    watched(story, last=1, ended_at=5.0)
    story.history.watched.append(Watched("w", 1.9, 4, "gap"))
    story.history.watched.append(Watched("w", 1.95, 5, "committed", "k", 3))
    return story


@keeps(15)
def test_a_watcher_that_begins_in_the_middle() -> Story:
    story = two_keys()
    watched(story, first=3, from_revision=0)
    return story


@breaks(15)
def test_a_watcher_misses_an_event_without_a_word() -> Story:
    story = two_keys()
    watched(story, skip=(5,))
    return story


@breaks(15)
def test_a_watcher_is_told_an_event_twice() -> Story:
    story = two_keys()
    watched(story)
    story.history.watched.insert(5, story.history.watched[4])
    return story


@breaks(15)
def test_a_watcher_is_told_events_out_of_order() -> Story:
    story = two_keys()
    watched(story)
    told = story.history.watched
    told[1], told[2] = told[2], told[1]
    return story


@breaks(15)
def test_a_watcher_is_told_of_a_key_that_it_did_not_ask_for() -> Story:
    story = two_keys()
    watched(story)
    story.history.watches[0] = Watch("w", 0.5, prefix="k", from_revision=1)
    return story


@breaks(15)
def test_a_watcher_is_told_what_did_not_happen() -> Story:
    story = two_keys()
    watched(story)
    story.history.watched[4] = Watched("w", 1.5, 5, "committed", "k", 99)
    return story


@breaks(15)
def test_a_watcher_is_told_before_it_happened() -> Story:
    story = two_keys()
    watched(story)
    story.history.watched[5] = Watched("w", 1.49, 6, "released", "k", 3)
    return story


@breaks(15)
def test_a_watcher_that_comes_back_is_told_old_events() -> Story:
    story = two_keys()
    watched(story, last=3, ended_at=1.25)
    watched(story, first=4, began_at=1.9)
    story.history.watches[1] = Watch("w", 1.9, from_revision=6)
    return story


@breaks(15)
def test_a_watcher_is_not_told_for_long() -> Story:
    story = two_keys()
    watched(story, last=4)
    story.history.duration_s += 60
    return story


@breaks(15)
def test_a_watcher_sees_a_grant_while_another_holds_where_no_log_is_known() -> Story:
    story = two_keys()
    watched(story)
    del story.history.watched[2]
    story.effects.clear()
    return story


@breaks(15)
def test_a_revision_is_left_out() -> Story:
    story = two_keys()
    for event in story.effects[-1].events:
        event["revision"] += 1
    return story
