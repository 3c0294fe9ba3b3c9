"""Known-good and known-bad histories of properties 7 and 10 to 13: guards, and what requests have done."""

from typing import Any

from chaos_known import breaks, keeps
from chaos_story import Grant, Story

from tenure_chaos.history import Belief, NodeState, RegisterWrite

# -- 7: guards


def write(
    story: Story, client: str, token: int, read: int, found: int, value: int, accepted: bool = True
) -> None:
    story.history.writes.append(
        RegisterWrite("r", client, token, story.now, True, accepted, read, found, value)
    )
    story.now += 0.1


@keeps(7)
def test_a_paused_writer_is_refused_and_its_successor_loses_nothing() -> Story:
    story = Story()
    write(story, "a", token=1, read=0, found=0, value=10)
    write(story, "b", token=2, read=10, found=10, value=20)
    write(story, "a", token=1, read=10, found=20, value=11, accepted=False)
    write(story, "b", token=2, read=20, found=20, value=21)
    # Its answer was lost, so it writes the same again.
    write(story, "b", token=2, read=20, found=21, value=21)
    return story


@keeps(7)
def test_commits_in_every_mode() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1")
    story.commit(grant, "a/2")
    once = story.acquire("a", "once")
    story.commit(once, "a/3", mode="once")
    in_order = story.acquire("a", "in order")
    story.commit(in_order, "a/4", mode="sequence", seq=1)
    story.commit(in_order, "a/5", mode="sequence", seq=3)
    story.release(in_order)
    story.commit(in_order, "a/6", mode="sequence", seq=4, require_live=False)
    return story


@breaks(7)
def test_a_register_accepts_the_old_holder_after_the_new_one() -> Story:
    story = Story()
    write(story, "b", token=2, read=0, found=0, value=20)
    write(story, "a", token=1, read=20, found=20, value=10)
    return story


@breaks(7)
def test_a_register_loses_an_update_that_came_between() -> Story:
    story = Story()
    write(story, "a", token=1, read=0, found=0, value=10)
    write(story, "b", token=2, read=0, found=10, value=20)
    return story


@breaks(7)
def test_a_register_forgets_what_it_had_accepted() -> Story:
    story = Story()
    write(story, "a", token=1, read=0, found=0, value=10)
    write(story, "b", token=2, read=0, found=0, value=20)
    return story


@breaks(7)
def test_a_commit_below_the_floor_is_accepted() -> Story:
    story = Story()
    first = story.acquire("a", "k")
    story.release(first)
    story.acquire("b", "k")
    story.commit(first, "a/1", require_live=False)
    return story


@keeps(7)
def test_breaks_of_a_free_key_take_nothing_from_its_next_holder() -> Story:
    story = Story()
    for client in ("a", "b"):
        story.effect("Break", {"key": "k", "reason": "", "actor": "default"}, "Broken", {"leases": []})
        story.call(client, "break", {"key": "k"}, answer={"broken": []})
    story.commit(story.acquire("c", "k"), "c/1")
    return story


@breaks(7)
def test_a_commit_after_a_break_is_accepted() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.break_("admin", "k")
    story.commit(grant, "a/1", require_live=False)
    return story


@breaks(7)
def test_a_commit_that_requires_a_live_lease_is_accepted_after_its_deadline() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.now += 2
    story.commit(grant, "a/1")
    return story


@breaks(7)
def test_a_token_is_used_twice_in_mode_once() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1", mode="once")
    story.commit(grant, "a/2", mode="once")
    return story


@breaks(7)
def test_a_sequence_goes_back() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1", mode="sequence", seq=2)
    story.commit(grant, "a/2", mode="sequence", seq=1)
    return story


# -- 10: once at most


def again(story: Story, n: int) -> None:
    """The effect once more, at the end of the log."""
    effect = story.effects[n]
    events = tuple(
        story.event(event["kind"], event["key"], event["owner"], event["token"]) for event in effect.events
    )
    story.effect(effect.command, effect.fields, effect.result, effect.result_fields, events)
    story.now += 0.1


@keeps(10)
def test_a_request_in_doubt_has_its_effect_late() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.renew(grant, outcome="unknown", answer={})
    again(story, 1)
    story.commit(grant, "a/1", op_id="a-op-1")
    return story


@keeps(10)
def test_an_op_id_is_used_again_after_it_has_been_forgotten() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=300_000)
    story.commit(grant, "a/1", op_id="a-op-1")
    story.now += 61
    story.commit(grant, "a/1", op_id="a-op-1")
    return story


@breaks(10)
def test_a_request_is_granted_two_leases() -> Story:
    story = Story()
    story.release(story.acquire("a", "k", request_id="a-1", answer=None))
    story.acquire("a", "k", request_id="a-1", answer=None)
    return story


def given_up(story: Story, client: str, request_id: str) -> None:
    asked = {"session_id": None, "request_id": request_id}
    story.effect("Abandon", {**asked, "poll_deadline_ms": None}, "Abandoned", {"had": False})
    story.call(client, "abandon", asked)


@keeps(10)
def test_a_request_that_was_given_up_is_granted_when_that_is_forgotten() -> Story:
    story = Story()
    given_up(story, "a", "a-1")
    story.now += 61
    story.acquire("a", "k", request_id="a-1", answer=None)
    return story


@breaks(10)
def test_a_request_is_granted_after_it_was_given_up() -> Story:
    story = Story()
    given_up(story, "a", "a-1")
    story.acquire("a", "k", request_id="a-1", answer=None)
    return story


@breaks(10)
def test_an_op_id_is_accepted_twice() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1", op_id="a-op-1")
    story.calls[-1].outcome = "unknown"
    again(story, 1)
    return story


@breaks(10)
def test_a_renewal_has_its_effect_again_after_its_answer() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.renew(grant)
    again(story, 1)
    return story


# -- 11: what failed has no effect, and reasons are true


def closed(story: Story, session_id: str) -> None:
    fields = {"session_id": session_id}
    story.effect("CloseSession", fields, "SessionClosed", {"leases": 0})


@keeps(11)
def test_a_node_that_asked_twice_closed_the_session_that_is_not_there() -> Story:
    story = Story()
    closed(story, "s-1")
    story.call("a", "close_session", {"session_id": "s-1"}, outcome="refused", code="no_session")
    return story


@breaks(11)
def test_a_session_is_closed_after_the_answer_that_there_is_none() -> Story:
    story = Story()
    story.call("a", "close_session", {"session_id": "s-1"}, outcome="refused", code="no_session")
    closed(story, "s-1")
    return story


def renewed(story: Story, grant: Grant) -> None:
    fields = {"lease_id": grant.lease_id, "session_id": None, "ttl_ms": None}
    story.effect("Renew", fields, "Renewed", {"grant": story.told(grant)})


@keeps(11)
def test_a_node_that_asked_twice_renewed_the_lease_that_was_broken_meanwhile() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    asked_at = story.now
    renewed(story, grant)
    story.break_("b", "k")
    story.is_lost(grant, reason="broken").invoked_at = asked_at
    return story


@breaks(11)
def test_a_lease_is_renewed_after_the_answer_that_it_is_over() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.is_lost(grant, reason="broken")
    renewed(story, grant)
    story.now += 1
    story.history.duration_s = story.now
    return story


@keeps(11)
def test_true_reasons() -> Story:
    story = Story()
    first = story.acquire("a", "k", ttl_ms=1_000)
    story.is_held("b", "k")
    story.commit(first, "a/1", mode="once")
    story.is_refused(first, "a/2", "token_used", floor=1, mode="once")
    story.is_refused(first, "a/3", "revision_conflict", floor=1, if_revision=0)
    story.expire(first)
    story.is_lost(first)
    story.is_refused(first, "a/4", "not_live", floor=1)
    second = story.acquire("b", "k")
    story.is_refused(first, "a/5", "stale_token", floor=2)
    story.release(second)
    story.is_lost(second, reason="released")
    return story


@keeps(11)
def test_what_was_not_executed_may_be_asked_again() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.call("a", "renew", story.named(grant), outcome="unavailable", code="no_leader")
    story.renew(grant)
    return story


@breaks(11)
def test_an_acquire_that_was_refused_is_granted_after_all() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.calls[-1].outcome, story.calls[-1].code = "unavailable", "no_quorum"
    story.calls[-1].answer = {}
    return story


@breaks(11)
def test_a_waiter_that_was_refused_in_the_end_is_granted_later() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    waiter = story.wait("b", "k")
    story.calls[-1].outcome, story.calls[-1].code = "refused", "lost"
    served = story.release(grant, serve=0)
    assert served is not None
    assert served.request_id == waiter.request_id
    story.effect("Tick", {}, "Done", {"ended": 0})
    return story


@breaks(11)
def test_a_waiter_is_granted_and_told_that_the_key_is_held() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.release(grant, serve=0)
    told = story.calls[1]
    told.outcome, told.code, told.returned_at = "refused", "held", story.now
    told.answer = {"holder": {"token": grant.token}}
    return story


@keeps(11)
def test_a_waiter_that_was_queued_may_be_refused_in_the_end() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.calls[-1].outcome, story.calls[-1].code = "refused", "session_expired"
    story.queues.clear()
    left = story.event("queue_left", "k", "b", 0, "session_expired")
    story.effect("Tick", {}, "Done", {"ended": 0}, (left,))
    story.release(grant)
    return story


@keeps(11)
def test_an_acquire_that_was_granted_may_be_told_that_its_lease_is_over() -> Story:
    story = Story()
    grant = story.acquire("a", "k", answer={"outcome": "refused", "code": "lost"})
    story.expire(grant)
    story.calls[-1].answer = {"reason": "expired"}
    story.calls[-1].returned_at = story.now
    return story


@breaks(11)
def test_an_acquire_that_was_told_so_is_granted_later() -> Story:
    story = Story()
    story.acquire("a", "k", answer={"outcome": "refused", "code": "lost"})
    story.calls[-1].answer = {"reason": "expired"}
    story.calls[-1].returned_at = story.calls[-1].invoked_at
    return story


@breaks(11)
def test_a_renewal_that_was_not_executed_is_in_the_log() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.renew(grant, outcome="unavailable", code="no_leader", answer={})
    return story


@breaks(11)
def test_a_release_that_was_refused_is_in_the_log() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.release(grant, outcome="refused", code="lost", answer={"reason": "released"})
    return story


@breaks(11)
def test_a_commit_that_was_refused_is_in_the_log() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1")
    story.calls[-1].outcome, story.calls[-1].code = "refused", "overloaded"
    return story


@breaks(11)
def test_a_holder_is_named_that_does_not_hold_any_more() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant)
    story.held["k"] = grant
    story.is_held("b", "k")
    return story


@breaks(11)
def test_a_key_that_nobody_holds_is_refused_as_held() -> Story:
    story = Story()
    story.acquire("a", "other")
    story.is_held("b", "k")
    return story


@breaks(11)
def test_a_lease_that_lives_is_called_lost() -> Story:
    story = Story()
    story.is_lost(story.acquire("a", "k"))
    return story


@breaks(11)
def test_a_lease_is_lost_for_a_reason_that_is_not_its_own() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.release(grant)
    story.is_lost(grant, reason="broken")
    return story


@breaks(11)
def test_the_newest_token_is_called_stale() -> Story:
    story = Story()
    story.is_refused(story.acquire("a", "k"), "a/1", "stale_token", floor=0)
    return story


@breaks(11)
def test_a_floor_is_told_that_is_not_above_the_token() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.release(grant)
    story.acquire("b", "k")
    story.is_refused(grant, "a/1", "stale_token", floor=1)
    return story


@breaks(11)
def test_a_lease_that_lives_is_called_not_live() -> Story:
    story = Story()
    story.is_refused(story.acquire("a", "k"), "a/1", "not_live", floor=1)
    return story


@breaks(11)
def test_a_token_is_called_used_that_has_not_been() -> Story:
    story = Story()
    story.is_refused(story.acquire("a", "k"), "a/1", "token_used", floor=1, mode="once")
    return story


@breaks(11)
def test_a_revision_is_called_another_which_is_the_one() -> Story:
    story = Story()
    story.is_refused(story.acquire("a", "k"), "a/1", "revision_conflict", floor=1, if_revision=0)
    return story


# -- 12: nothing without a request


@keeps(12)
def test_every_effect_has_its_call() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    waiter = story.wait("b", "k")
    served = story.release(grant, serve=0)
    assert served is not None
    assert served.request_id == waiter.request_id
    story.claim(served)
    story.get("k")
    story.history.beliefs.append(Belief("b", "k", served.token, story.now, story.now + 1))
    return story


@breaks(12)
def test_a_grant_that_nobody_asked_for() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.acquire("ghost", "other")
    del story.calls[-1]
    return story


@breaks(12)
def test_a_grant_to_a_request_of_another_tenant() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.acquire("b", "other", answer=None)
    story.calls[-1].tenant = "another"
    return story


@breaks(12)
def test_a_look_shows_a_token_that_was_never_granted() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.held["k"].token = 99
    story.get("k")
    return story


@breaks(12)
def test_a_handle_believes_in_a_token_that_was_never_granted() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.history.beliefs.append(Belief("b", "k", 99, 1.5, 2.0))
    return story


# -- 13: what was acknowledged stays


def final(story: Story, **lies: Any) -> None:
    """Every node has what the log comes to."""
    fields: dict[str, Any] = {
        "applied_index": story.index,
        "digest": "d",
        "held": tuple((key, grant.token) for key, grant in story.held.items()),
        "records": tuple((key, token, value) for key, (_, token, value) in story.records.items()),
        "waiting": tuple((key, w.request_id) for key, queue in story.queues.items() for w in queue),
        **lies,
    }
    story.history.final += [NodeState(f"n{number}", **fields) for number in (1, 2, 3)]


def busy() -> tuple[Story, Grant]:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    story.renew(grant)
    story.commit(grant, "a/1")
    return story, grant


@keeps(13)
def test_healed_nodes_have_all_that_was_acknowledged() -> Story:
    story, _ = busy()
    final(story, floors=(("k", 1),))
    return story


@breaks(13)
def test_an_acknowledged_grant_is_not_in_the_log() -> Story:
    story = Story()
    story.acquire("a", "other")
    story.acquire("b", "k")
    story.forget(1)
    return story


@breaks(13)
def test_an_acknowledged_renewal_is_not_in_the_log() -> Story:
    story, _ = busy()
    story.forget(2)
    return story


@breaks(13)
def test_an_acknowledged_commit_is_not_in_the_log() -> Story:
    story, _ = busy()
    story.forget(3)
    return story


@breaks(13)
def test_an_acknowledged_release_is_not_in_the_log() -> Story:
    story, grant = busy()
    story.release(grant)
    story.forget(4)
    return story


@breaks(13)
def test_an_acknowledged_break_is_not_in_the_log() -> Story:
    story, _ = busy()
    story.queues.clear()
    story.break_("admin", "k")
    story.forget(4)
    return story


@breaks(13)
def test_a_healed_node_lags_behind_what_was_acknowledged() -> Story:
    story, _ = busy()
    final(story, applied_index=story.index - 1)
    return story


@breaks(13)
def test_a_healed_node_has_lost_a_lease() -> Story:
    story, _ = busy()
    final(story, held=(), waiting=())
    return story


@breaks(13)
def test_a_healed_node_has_another_record() -> Story:
    story, _ = busy()
    final(story, records=(("k", 1, "a/0"),))
    return story


@breaks(13)
def test_a_healed_node_has_a_floor_below_a_grant() -> Story:
    story, _ = busy()
    final(story, floors=(("k", 0),))
    return story
