"""Known-good and known-bad histories of properties 16 to 20: replicas, clocks, Raft, tenants, healing."""

import dataclasses

from chaos_known import breaks, broken_by, keeps
from chaos_story import Grant, Story

from tenure_chaos.history import AppliedEntry, Elected, NodeState, RaftState, Watch

# -- 16: digests


@keeps(16)
def test_equal_digests_at_equal_indexes() -> Story:
    story = Story()
    story.history.digests += [("n1", 50, "x"), ("n2", 50, "x"), ("n2", 100, "y"), ("n1", 100, "y")]
    return story


@breaks(16)
def test_two_nodes_differ_at_an_index() -> Story:
    story = Story()
    story.history.digests += [("n1", 50, "x"), ("n2", 50, "x"), ("n3", 50, "z")]
    return story


@breaks(16)
def test_two_nodes_differ_at_the_end() -> Story:
    story = Story()
    story.history.final += [NodeState("n1", 70, "x"), NodeState("n2", 70, "y")]
    return story


# -- 17: cluster time


def stamped(story: Story, at_ms: int, applied_at: float, stamped_at: float = -1.0) -> None:
    story.effect("Tick", {}, "Done", {"ended": 0})
    story.edit(-1, at_ms=at_ms, first_applied_at=applied_at, stamped_at=stamped_at)


@keeps(17)
def test_cluster_time_may_stand_still_and_run_at_the_bound() -> Story:
    story = Story()
    stamped(story, 0, 1.0, 0.9)
    stamped(story, 1_005, 1.95, 1.9)
    stamped(story, 1_005, 60.0, 59.0)
    stamped(story, 2_010, 60.1, 60.0)
    return story


@keeps(17)
def test_an_entry_may_have_been_stamped_as_early_as_its_attempt_was_sent() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=60_000)
    story.edit(0, at_ms=0)
    stamped(story, 9_045, 10.0)
    return story


@keeps(17)
def test_what_an_unanswered_call_had_done_was_not_stamped_when_it_was_asked_for_again() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=60_000)
    began_at = story.now
    story.release(grant)
    unanswered = story.calls[1]
    unanswered.outcome, unanswered.answer, unanswered.doubtful = "unknown", {}, True
    # Stamped at once, and applied late; the client has asked again meanwhile.
    story.edit(1, at_ms=int(began_at * 1000), first_applied_at=began_at + 0.5)
    story.now = began_at + 0.45
    again = {"returned_at": began_at + 0.6, "answer": {"status": "already_released"}}
    story.call("a", "release", dict(unanswered.asked), **again)
    stamped(story, int((began_at + 1.0) * 1000), began_at + 1.0)
    return story


@breaks(17)
def test_a_stamp_falls() -> Story:
    story = Story()
    stamped(story, 500, 1.0)
    stamped(story, 499, 2.0)
    return story


@breaks(17)
def test_a_clock_runs_faster_than_it_may() -> Story:
    story = Story()
    stamped(story, 0, 1.0, 0.9)
    stamped(story, 1_010, 1.95, 1.9)
    return story


@breaks(17)
def test_a_clock_was_ahead_of_true_time_from_the_beginning() -> Story:
    story = Story()
    stamped(story, 2_000, 1.0)
    return story


@breaks(17)
def test_a_clock_is_found_fast_by_the_attempts_that_were_answered() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=60_000)
    story.edit(0, at_ms=0)
    stamped(story, 9_100, 10.0)
    return story


# -- 18: consensus


def state(
    story: Story, node: str, term: int, commit: int, applied: int, voted_for: str = "", life: int = 1
) -> None:
    story.history.raft.append(RaftState(node, life, story.now, term, voted_for, commit, applied))
    story.now += 0.1


@keeps(18)
def test_a_change_of_leader_and_a_restart() -> Story:
    story = Story()
    story.acquire("a", "k")
    history = story.history
    history.elected += [Elected("n1", 1, 0.5, 0), Elected("n2", 2, 1.5, 1)]
    state(story, "n1", 1, 1, 1, "n1")
    state(story, "n1", 2, 1, 1, "n2")
    # After the start its commit index is known only as far as its snapshot goes.
    state(story, "n1", 2, 0, 0, "n2", life=2)
    history.applied += [AppliedEntry(node, 1, 1, "x") for node in ("n1", "n2", "n3")]
    history.applied.append(AppliedEntry("n2", 2, 2, "y"))
    return story


@keeps(18)
def test_a_node_may_hear_late_that_it_was_elected_in_a_term_that_is_past() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.history.applied.append(AppliedEntry("n2", 1, 3, "x"))
    story.history.elected.append(Elected("n1", 2, 5.0, 0))
    return story


@keeps(18)
def test_what_a_later_leader_commits_may_be_lacked_by_one_of_a_term_between() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.history.applied.append(AppliedEntry("n2", 1, 1, "x", in_term=3))
    story.history.elected.append(Elected("n1", 2, 5.0, 0))
    return story


@breaks(18)
def test_two_leaders_in_a_term() -> Story:
    story = Story()
    story.history.elected += [Elected("n1", 4, 1.0), Elected("n2", 4, 2.0)]
    return story


@breaks(18)
def test_a_leader_lacks_what_was_applied() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.history.elected.append(Elected("n2", 2, 1.5, 0))
    return story


@breaks(18)
def test_a_node_goes_back_to_an_older_term() -> Story:
    story = Story()
    state(story, "n1", 5, 0, 0)
    state(story, "n1", 4, 0, 0, life=2)
    return story


@breaks(18)
def test_a_node_votes_twice_in_a_term() -> Story:
    story = Story()
    state(story, "n1", 5, 0, 0, "n2")
    state(story, "n1", 5, 0, 0, "n3", life=2)
    return story


@breaks(18)
def test_a_commit_index_falls() -> Story:
    story = Story()
    state(story, "n1", 5, 9, 7)
    state(story, "n1", 5, 8, 7)
    return story


@breaks(18)
def test_an_entry_is_applied_that_is_not_committed() -> Story:
    story = Story()
    state(story, "n1", 5, 7, 8)
    return story


@breaks(18)
def test_two_nodes_apply_different_entries() -> Story:
    story = Story()
    story.history.applied += [AppliedEntry("n1", 7, 2, "x"), AppliedEntry("n2", 7, 2, "y")]
    return story


@breaks(18)
def test_terms_fall_along_the_log() -> Story:
    story = Story()
    story.history.applied += [AppliedEntry("n1", 7, 2, "x"), AppliedEntry("n1", 8, 1, "y")]
    return story


# -- 19: tenants


def two_tenants() -> tuple[Story, Grant, Story, Grant]:
    """Both have a lease of the same key, and of the same token; one log."""
    one, other = Story(tenant="one"), Story(tenant="other")
    other.history = one.history
    first = one.acquire("a", "k")
    other.now, other.index = one.now, one.index
    second = other.acquire("b", "k")
    one.now, one.index = other.now, other.index
    return one, first, other, second


@keeps(19)
def test_tenants_hold_the_same_key_with_the_same_token() -> Story:
    one, first, other, second = two_tenants()
    one.get("k")
    other.now = one.now
    other.get("k")
    other.renew(second)
    one.now, one.index = other.now, other.index
    one.release(first)
    one.history.quotas = {"one": {"leases": 1}, "other": {"leases": 1, "waiters": 1}}
    return one


@breaks(19)
def test_a_request_of_one_tenant_ends_the_lease_of_the_other() -> Story:
    one, _, other, _ = two_tenants()
    event = {**other.event("released", "k", "b", 1, "abandoned")}
    fields = {"request_id": "a-9", "session_id": None, "poll_deadline_ms": None}
    one.effect("Abandon", fields, "Abandoned", {"had": True}, (event,))
    one.call("a", "abandon", {"request_id": "a-9"})
    return one


@breaks(19)
def test_a_renewal_of_one_tenant_renews_the_lease_of_the_other() -> Story:
    one, _, other, second = two_tenants()
    other.now, other.index = one.now, one.index
    other.renew(second)
    other.edit(2, fields={**other.effects[2].fields, "tenant": "one"})
    other.calls[-1].tenant = "one"
    other.calls[-1].asked.pop("token")
    return other


@breaks(19)
def test_a_look_shows_a_lease_of_another_tenant() -> Story:
    one, *_ = two_tenants()
    one.acquire("a", "secret")
    one.get("secret")
    one.calls[-1].tenant = "other"
    return one


@breaks(19)
def test_a_tenant_has_more_leases_than_its_quota() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.acquire("a", "other")
    story.history.quotas = {"default": {"leases": 1}}
    return story


@breaks(19)
def test_a_tenant_has_more_waiters_than_its_quota() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.wait("b", "k")
    story.wait("c", "k")
    story.history.quotas = {"default": {"waiters": 1}}
    return story


# -- 20: healing, and waiters


def healed(story: Story, at: float, leader_at: float) -> None:
    story.history.healed_at, story.history.leader_after_healing_at = at, leader_at


@keeps(20)
def test_a_healed_cluster_finds_a_leader_and_lets_go_of_what_was_abandoned() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=5_000)
    healed(story, 2.0, 9.0)
    story.expire(grant, at=9.0 + 5.0 + 1.0)
    story.history.final.append(NodeState("n1", story.index, "x"))
    return story


@keeps(20)
def test_waiters_are_served_one_after_another_and_may_leave() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    for client in ("b", "c", "d"):
        story.wait(client, "k")
    leaver = story.queues["k"].pop(0)
    left = story.event("queue_left", "k", "b", 0, "abandoned")
    fields = {"request_id": leaver.request_id, "session_id": None, "poll_deadline_ms": None}
    story.effect("Abandon", fields, "Abandoned", {"had": True}, (left,))
    story.call("b", "abandon", {"request_id": leaver.request_id, "key": "k"})
    served = story.release(grant, serve=0)
    assert served is not None
    story.claim(served)
    served = story.release(served, serve=0)
    assert served is not None
    story.claim(served)
    return story


@keeps(20)
def test_nobody_is_served_while_a_grace_period_runs() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000, grace_ms=2_000)
    story.wait("b", "k")
    story.expire(grant)
    story.now += 2
    served, event = story.serve("k")
    fields = {"items": [{"kind": "grace", "tenant": "default", "id": "k", "deadline_ms": 0}]}
    story.effect("Expire", fields, "Done", {"ended": 1}, (event,))
    story.now += 0.1
    story.claim(served)
    return story


@breaks(20)
def test_no_leader_comes_after_healing() -> Story:
    story = Story()
    healed(story, 2.0, 18.0)
    story.history.duration_s = 18.0
    return story


@breaks(20)
def test_an_abandoned_lease_never_ends() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=5_000)
    healed(story, 2.0, 3.0)
    story.history.duration_s = 60.0
    return story


@breaks(20)
def test_an_abandoned_lease_ends_late() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=5_000)
    healed(story, 2.0, 3.0)
    story.expire(grant, at=40.0)
    return story


@breaks(20)
def test_a_waiter_is_served_before_its_turn() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.wait("c", "k")
    served = story.release(grant, serve=1)
    assert served is not None
    story.claim(served)
    return story


@keeps(20)
def test_a_waiter_of_a_session_that_lives_is_served() -> Story:
    story = Story()
    session_id = story.open_session("b", ttl_ms=10_000)
    grant = story.acquire("a", "k")
    story.wait("b", "k", session_id=session_id)
    story.now += 3
    story.release(grant, serve=0)
    return story


@breaks(20)
def test_a_waiter_is_served_whose_session_has_expired() -> Story:
    story = Story()
    session_id = story.open_session("b", ttl_ms=1_000)
    grant = story.acquire("a", "k")
    story.wait("b", "k", session_id=session_id)
    story.now += 3
    story.release(grant, serve=0)
    return story


@breaks(20)
def test_a_waiter_is_served_that_has_been_silent_for_long() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=90_000)
    story.wait("b", "k")
    story.now += 51
    story.release(grant, serve=0)
    return story


@breaks(20)
def test_a_newcomer_is_granted_past_those_who_wait() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.queues.clear()
    story.held.clear()
    story.release(grant)
    story.acquire("c", "k")
    # In one entry, so that the key is at no time free.
    first, second = story.effects[2:]
    story.edit(3, events=(*first.events, *second.events))
    story.edit(2, events=())
    story.edit(2, result_fields={"already": True})
    story.calls[2].answer = {"status": "already_released"}
    return story


@breaks(20)
def test_a_key_comes_free_and_nobody_serves_who_waits() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.release(grant)
    return story


@breaks(20)
def test_a_node_serves_a_watch_that_nobody_has_open() -> Story:
    story = Story()
    story.history.watches.append(Watch("w", 1.0, ended_at=2.0))
    story.history.final.append(NodeState("n1", 0, "x", watches=1))
    return story


def test_a_run_that_was_cut_short_is_not_held_to_its_end() -> None:
    story = Story()
    story.acquire("a", "k", ttl_ms=5_000)
    healed(story, 2.0, 3.0)
    story.history.duration_s = 60.0
    assert broken_by(dataclasses.replace(story.history, complete=False)) == set()
