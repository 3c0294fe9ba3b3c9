"""Histories of readers, slots, sets of keys, handovers, parking and progress, of which it is known what they
break.
"""

import dataclasses

from chaos_known import breaks, keeps
from chaos_story import Story

from tenure_chaos.history import Belief, Watch, Watched

# -- 2: a token is of one grant; 3: tokens rise


@keeps(2)
def test_readers_of_one_phase_have_one_token() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="shared")
    second = story.acquire("b", "k", mode="shared", token=first.token)
    story.release(first)
    story.release(second)
    story.acquire("c", "k")
    return story


@breaks(2)
def test_the_token_of_readers_who_have_all_gone_comes_again() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="shared", token=4)
    story.release(first)
    story.acquire("b", "k", mode="shared", token=4)
    return story


@keeps(3)
def test_who_takes_up_a_parked_lease_has_a_new_token() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.park(grant, 10_000)
    story.renew(story.take_up(grant))
    return story


@breaks(3)
def test_a_parked_lease_is_taken_up_with_an_old_token() -> Story:
    story = Story()
    grant = story.acquire("a", "k", token=5)
    story.park(grant, 10_000)
    story.take_up(grant, token=4)
    return story


@breaks(3)
def test_a_lease_that_was_not_parked_is_taken_up() -> Story:
    story = Story()
    story.take_up(story.acquire("a", "k"))
    return story


# -- 4: one holder at a time


@keeps(4)
def test_readers_and_writers_take_turns() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="shared")
    second = story.acquire("b", "k", mode="shared", token=first.token)
    story.wait("c", "k")
    story.release(first)
    writer = story.release(second, serve=0)
    assert writer is not None
    story.claim(writer)
    return story


@breaks(4)
def test_a_writer_is_granted_beside_a_reader() -> Story:
    story = Story()
    story.acquire("a", "k", mode="shared")
    story.acquire("b", "k")
    return story


@breaks(4)
def test_a_reader_is_granted_beside_a_writer() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.acquire("b", "k", mode="shared")
    return story


@breaks(4)
def test_readers_beside_one_another_have_two_tokens() -> Story:
    story = Story()
    story.acquire("a", "k", mode="shared")
    story.acquire("b", "k", mode="shared")
    return story


@keeps(4)
def test_a_pool_has_so_many_permits_out_as_it_has_slots() -> Story:
    story = Story()
    story.acquire("a", "k", mode="permit", slots=2, slot=0)
    second = story.acquire("b", "k", mode="permit", slots=2, slot=1)
    story.release(second)
    story.acquire("c", "k", mode="permit", slots=2, slot=1)
    return story


@breaks(4)
def test_a_slot_of_a_pool_is_issued_twice() -> Story:
    story = Story()
    story.acquire("a", "k", mode="permit", slots=3, slot=1, answer=None)
    story.acquire("b", "k", mode="permit", slots=3, slot=1)
    return story


@breaks(4)
def test_a_pool_has_a_slot_more_than_it_has() -> Story:
    story = Story()
    story.acquire("a", "k", mode="permit", slots=1, slot=0)
    story.acquire("b", "k", mode="permit", slots=1, slot=1)
    return story


@breaks(4)
def test_the_number_of_slots_changes_while_one_is_held() -> Story:
    story = Story()
    story.acquire("a", "k", mode="permit", slots=2, slot=0)
    story.acquire("b", "k", mode="permit", slots=3, slot=1)
    return story


@keeps(4)
def test_a_handover_leaves_no_gap() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    given = story.hand_over(grant, story.open_session("b"), "b")
    story.is_lost(grant, reason="handed_over")
    story.renew(given)
    return story


@breaks(4)
def test_a_handover_goes_to_another_session_than_was_asked_for() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.hand_over(grant, story.open_session("b"), "b")
    story.effects[-1].fields["to_session_id"] = "another"
    story.calls[-1].asked["to_session_id"] = "another"
    return story


# -- 5: no early takeover


@keeps(5)
def test_a_parked_lease_keeps_its_key_until_its_limit() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.park(grant, 20_000)
    story.expire(grant)
    story.acquire("b", "k")
    return story


@breaks(5)
def test_a_parked_lease_ends_before_its_limit() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.park(grant, 20_000)
    story.expire(grant, at=story.now + 3.0)
    return story


@breaks(5)
def test_a_parked_lease_has_another_limit_than_was_asked_for() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.park(grant, 20_000, deadline_ms=10**9)
    return story


@breaks(5)
def test_a_parked_lease_is_taken_up_after_its_limit() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.park(grant, 1_000)
    story.now += 2.0
    story.take_up(grant)
    return story


@breaks(5)
def test_a_lease_is_parked_for_a_token_that_it_has_no_more() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.park(grant, 20_000)
    taken = story.take_up(grant)
    story.park(taken, 20_000)
    story.effects[-1].fields["token"] = grant.token
    return story


# -- 6: one believer at a time


def _believe(story: Story, client: str, token: int, *, mode: str, place: str) -> None:
    story.history.beliefs.append(
        Belief(client, "k", token, story.now, story.now + 1.0, mode=mode, place=place)
    )


@keeps(6)
def test_readers_believe_beside_one_another_and_so_do_slots() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="shared")
    story.acquire("b", "k", mode="shared", token=first.token)
    _believe(story, "a", first.token, mode="shared", place="k@a")
    _believe(story, "b", first.token, mode="shared", place="k@b")
    return story


@breaks(6)
def test_a_reader_believes_beside_the_next_writer() -> Story:
    story = Story()
    reader = story.acquire("a", "k", mode="shared")
    _believe(story, "a", reader.token, mode="shared", place="k@a")
    story.release(reader)
    writer = story.acquire("b", "k")
    _believe(story, "b", writer.token, mode="exclusive", place="")
    return story


# -- 7: guards


@keeps(7)
def test_each_slot_of_a_pool_is_guarded_for_itself() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="permit", slots=2, slot=0)
    second = story.acquire("b", "k", mode="permit", slots=2, slot=1)
    story.commit(second, "x", slot=1)
    story.commit(first, "y", slot=0)
    return story


@keeps(7)
def test_a_free_key_that_was_broken_again_and_again_is_written_to() -> Story:
    story = Story()
    story.release(story.acquire("a", "k"))
    for _ in range(4):
        story.effect("Break", {"key": "k", "reason": "because", "actor": "default"}, "Broken", {"leases": []})
        story.call("b", "break", {"key": "k"}, answer={"broken": []})
    story.commit(story.acquire("c", "k"), "x")
    return story


@breaks(7)
def test_a_parked_lease_commits() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.park(grant, 10_000)
    story.commit(grant, "x")
    return story


# -- 8: progress


@keeps(8)
def test_a_lease_ends_without_progress() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=10_000, progress_ms=2_000)
    story.tell_progress(grant)
    story.expire(grant, detail="no_progress")
    return story


@breaks(8)
def test_a_lease_is_renewed_without_progress() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=10_000, progress_ms=2_000)
    story.now += 3.0
    story.renew(grant)
    return story


@breaks(8)
def test_a_lease_that_told_of_progress_ends_for_want_of_it() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=2_000)
    story.expire(grant, detail="no_progress")
    return story


# -- 10: a request has at most one effect


@keeps(10)
def test_a_set_of_keys_is_granted_whole() -> Story:
    story = Story()
    for grant in story.acquire_set("a", ("k", "l")):
        story.release(grant)
    return story


@breaks(10)
def test_half_a_set_is_granted() -> Story:
    story = Story()
    story.acquire_set("a", ("k", "l"), granted=("k",))
    return story


# -- 14: reads


@keeps(14)
def test_who_blocks_whom() -> Story:
    story = Story()
    session = story.open_session("a")
    story.acquire("a", "k", session_id=session)
    story.acquire("b", "l")
    story.wait("a", "l", session_id=session)
    story.wait("c", "k")
    story.queue("k", [story.link("k"), story.link("l")])
    story.queue("l", [story.link("l")])
    return story


@breaks(14)
def test_a_chain_that_ends_too_soon() -> Story:
    story = Story()
    session = story.open_session("a")
    story.acquire("a", "k", session_id=session)
    story.acquire("b", "l")
    story.wait("a", "l", session_id=session)
    story.queue("k", [story.link("k")])
    return story


@breaks(14)
def test_a_chain_to_somebody_who_is_not_waited_for() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.acquire("b", "l")
    story.queue("k", [story.link("k"), story.link("l")])
    return story


@breaks(14)
def test_a_parked_lease_is_said_to_be_in_somebodys_hands() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.park(grant, 10_000)
    story.queue("k", [story.link("k")])
    return story


@breaks(14)
def test_a_waiter_is_left_out_of_a_queue() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.wait("b", "k")
    story.queue("k", [story.link("k")], waiters=[])
    return story


# -- 15: watches


def _watch(story: Story, **lies: dict[str, object]) -> Story:
    story.history.watches.append(Watch("w", 0.0, from_revision=1))
    for effect in story.effects:
        for event in effect.events:
            event.update(lies.get(event["kind"], {}))
            story.history.watched.append(
                Watched("w", story.now, event["revision"], event["kind"], event["key"], event["token"])
            )
    return story


def _passed_on() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    given = story.hand_over(grant, story.open_session("b"), "b")
    story.park(given, 10_000)
    story.release(story.take_up(given))
    return story


@keeps(15)
def test_a_watcher_follows_a_handover_and_a_rest() -> Story:
    return _watch(_passed_on())


@breaks(15)
def test_a_watcher_is_not_told_of_the_parking() -> Story:
    story = _watch(_passed_on())
    story.history.watched = [item for item in story.history.watched if item.kind != "parked"]
    return story


@breaks(15)
def test_a_watcher_is_told_another_reason_than_the_log_has() -> Story:
    story = _watch(_passed_on())
    last = story.history.watched.pop()
    story.history.watched.append(dataclasses.replace(last, said="b/exclusive/0/why/0"))
    return story


# -- 20: the healed cluster goes on


@keeps(20)
def test_a_set_lets_others_pass_for_a_while() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait_for_set("s", ("k", "l"))
    other = story.acquire("b", "l")
    story.release(other)
    story.release(grant)
    return _served(story)


def _served(story: Story) -> Story:
    """The set is granted in the last release."""
    first, k = story.serve("k")
    story.queues["l"].pop(0)
    second = story._grant("s", "l", 5_000, {"request_id": first.request_id})
    second.lease_id = f"lease-of-{first.request_id}-l"
    first.lease_id = second.session_id = first.session_id = f"lease-of-{first.request_id}-k"
    events = (*story.effects[-1].events, k, story.of("granted", second))
    story.edit(-1, events=events)
    return story


@breaks(20)
def test_a_set_is_passed_after_ten_seconds() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=30_000)
    story.wait_for_set("s", ("k", "l"))
    story.now += 11.0
    story.release(story.acquire("b", "l"))
    story.release(grant)
    return _served(story)


@breaks(20)
def test_a_reader_passes_a_writer_who_waits() -> Story:
    story = Story()
    first = story.acquire("a", "k", mode="shared")
    story.wait("w", "k")
    story.acquire("b", "k", mode="shared", token=first.token)
    return story


@breaks(20)
def test_a_set_waits_for_keys_that_are_free() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait_for_set("s", ("k", "l"))
    story.release(grant)
    return story


@breaks(20)
def test_a_permit_is_waited_for_while_a_slot_is_free() -> Story:
    story = Story()
    grant = story.acquire("a", "k", mode="permit", slots=2, slot=0)
    story.acquire("b", "k", mode="permit", slots=2, slot=1)
    waiter = story.wait("c", "k")
    waiter.mode, waiter.slots = "permit", 2
    story.effects[-1].fields.update(mode="permit", slots=2)
    story.release(grant)
    return story
