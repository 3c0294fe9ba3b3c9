"""Known-good and known-bad histories of properties 1 to 6, 8 and 9: keys, tokens, holders and beliefs."""

import dataclasses

from chaos_known import breaks, broken_by, keeps
from chaos_story import Story

from tenure_chaos.history import Belief


def believe(story: Story, client: str, key: str, token: int, began_at: float, ended_at: float) -> None:
    story.history.beliefs.append(Belief(client, key, token, began_at, ended_at, "released"))


# -- 1: linearizable


@keeps(1)
def test_one_holder_after_another_with_looks_in_between() -> Story:
    story = Story()
    first = story.acquire("a", "k")
    story.is_held("b", "k")
    story.renew(first)
    story.commit(first, "a/1")
    story.release(first)
    story.get("k")
    second = story.acquire("b", "k")
    story.record("k")
    story.commit(second, "b/1")
    return story


@keeps(1)
def test_a_grant_that_nobody_was_told_of_explains_a_refusal() -> Story:
    story = Story()
    story.acquire("a", "k", answer=None)
    story.is_held("b", "k")
    return story


@keeps(1)
def test_a_grant_that_another_request_of_its_session_is_told_of_first() -> Story:
    story = Story()
    grant = story.acquire("a", "k", session_id="s", answer=None)
    story.get("k")
    told = {"status": "granted", "lease": story.lease(grant), "replayed": False}
    asked = {"key": "k", "owner": "a", "session_id": "s", "request_id": "a-2", "if_held": "return"}
    story.call("a", "acquire", asked, answer=told)
    return story


@breaks(1)
def test_a_replay_of_a_grant_that_had_been_released() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    granted = story.calls[-1]
    story.release(grant)
    story.call("a", "acquire", granted.asked, answer={**granted.answer, "replayed": True})
    return story


@breaks(1)
def test_a_renewal_of_the_old_holder_after_the_next_was_granted_where_no_log_is_known() -> Story:
    story = Story()
    first = story.acquire("a", "k")
    story.acquire("b", "k")
    story.renew(first)
    story.effects.clear()
    return story


@breaks(1)
def test_a_look_that_sees_the_old_holder_again_where_no_log_is_known() -> Story:
    story = Story()
    first = story.acquire("a", "k")
    story.release(first)
    story.acquire("b", "k")
    story.held["k"] = first
    story.get("k")
    story.effects.clear()
    return story


# -- 2: a token is of one grant


@keeps(2)
def test_a_replay_tells_the_same_grant() -> Story:
    story = Story()
    story.acquire("a", "k")
    granted = story.calls[-1]
    story.call("a", "acquire", granted.asked, answer={**granted.answer, "replayed": True})
    return story


@breaks(2)
def test_two_keys_are_granted_with_one_token() -> Story:
    story = Story()
    story.acquire("a", "k", token=7)
    story.acquire("b", "other", token=7)
    return story


@breaks(2)
def test_a_replay_tells_the_grant_of_somebody_else() -> Story:
    story = Story()
    story.release(story.acquire("a", "k"))
    asked = story.calls[0].asked
    story.acquire("b", "k")
    story.call("a", "acquire", asked, answer={**story.calls[-1].answer, "replayed": True})
    return story


@breaks(2)
def test_two_requests_are_told_one_grant() -> Story:
    story = Story()
    story.acquire("a", "k")
    granted = story.calls[-1]
    story.call("b", "acquire", {**granted.asked, "request_id": "b-1"}, answer=granted.answer)
    return story


# -- 3: tokens rise


@keeps(3)
def test_tokens_may_have_gaps() -> Story:
    story = Story()
    story.release(story.acquire("a", "k", token=3))
    story.acquire("b", "k", token=2**32)
    return story


@breaks(3)
def test_a_token_below_that_of_another_key_before() -> Story:
    story = Story()
    story.acquire("a", "k", token=9)
    story.acquire("b", "other", token=5)
    return story


@breaks(3)
def test_tokens_begin_again_when_a_key_is_granted_anew() -> Story:
    story = Story()
    story.release(story.acquire("a", "k", token=9))
    story.acquire("b", "k", token=1)
    return story


@breaks(3)
def test_a_later_caller_is_told_a_lower_token_where_no_log_is_known() -> Story:
    story = Story()
    story.release(story.acquire("a", "k", token=9))
    story.acquire("b", "k", token=5)
    story.effects.clear()
    return story


# -- 4: one holder at a time, in the log


@keeps(4)
def test_a_key_is_granted_again_in_the_entry_that_ends_the_grant_before() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.wait("b", "k")
    served = story.release(grant, serve=0)
    assert served is not None
    story.claim(served)
    return story


@breaks(4)
def test_a_grant_while_another_has_not_been_ended() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=1_000)
    story.now += 2
    story.acquire("b", "k")
    return story


@breaks(4)
def test_a_lease_expires_twice() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.expire(grant)
    story.expire(grant)
    return story


# -- 5: no early takeover


@keeps(5)
def test_a_takeover_at_the_very_deadline() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant, at=grant.deadline_ms / 1000 - 0.01)
    story.acquire("b", "k")
    return story


@keeps(5)
def test_a_break_may_come_at_any_time() -> Story:
    story = Story()
    story.acquire("a", "k", ttl_ms=60_000)
    story.break_("admin", "k")
    story.acquire("b", "k")
    return story


@breaks(5)
def test_a_lease_expires_before_its_deadline() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=5_000)
    story.expire(grant, at=story.now + 3)
    story.acquire("b", "k")
    return story


@breaks(5)
def test_a_lease_that_was_acknowledged_as_renewed_expires_at_its_first_deadline() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=5_000)
    story.now += 3
    first_deadline_ms, told = grant.deadline_ms, story.effects[0].result_fields["grants"][0]
    story.renew(grant)
    story.edit(1, result_fields={"grant": told})
    grant.deadline_ms = first_deadline_ms
    story.expire(grant)
    return story


@breaks(5)
def test_a_clock_beyond_its_rate_lets_a_lease_expire_early() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=5_000)
    # The attempt that was answered was sent later than the entry could be stamped by a clock that keeps time.
    story.calls[0].answered_attempt_at = story.calls[0].invoked_at + 0.5
    story.expire(grant)
    return story


# -- 6: one believer at a time


@keeps(6)
def test_beliefs_that_follow_one_another() -> Story:
    story = Story()
    story.release(story.acquire("a", "k"))
    story.acquire("b", "k")
    believe(story, "a", "k", 1, 1.02, 1.1)
    believe(story, "b", "k", 2, 1.22, 5.0)
    return story


@keeps(6)
def test_a_holder_cannot_know_at_once_that_its_lease_was_broken() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.break_("admin", "k")
    story.acquire("b", "k")
    believe(story, "a", "k", 1, 1.02, 4.0)
    believe(story, "b", "k", 3, 1.22, 5.0)
    return story


@keeps(6)
def test_a_holder_may_hear_of_its_grant_when_that_was_broken_and_another_made() -> Story:
    story = Story()
    story.acquire("a", "k")
    story.break_("admin", "k")
    story.acquire("b", "k")
    believe(story, "b", "k", 3, 1.22, 5.0)
    believe(story, "a", "k", 1, 1.3, 4.0)
    return story


@breaks(6)
def test_two_handles_believe_at_once() -> Story:
    story = Story()
    story.release(story.acquire("a", "k"))
    story.acquire("b", "k")
    believe(story, "a", "k", 1, 1.02, 1.5)
    believe(story, "b", "k", 2, 1.22, 5.0)
    return story


@breaks(6)
def test_a_handle_believes_beyond_the_next_grant_though_nobody_knows_of_that() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant)
    story.acquire("b", "k", answer=None)
    believe(story, "a", "k", 1, 1.02, story.now + 1)
    return story


# -- 8: renewals


@keeps(8)
def test_a_lease_is_renewed_again_and_again() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    for _ in range(5):
        story.now += 0.5
        story.renew(grant)
    story.release(grant)
    story.is_lost(grant, reason="released")
    return story


@breaks(8)
def test_a_renewal_revives_a_lease_that_has_expired() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant)
    story.renew(grant)
    return story


@breaks(8)
def test_a_renewal_after_the_deadline_though_the_key_is_still_free() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.now += 2
    story.renew(grant)
    return story


@breaks(8)
def test_a_renewal_shortens_the_lease() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=10_000)
    grant.ttl_ms, grant.deadline_ms = 2_000, 0
    story.renew(grant)
    return story


@breaks(8)
def test_a_renewal_is_answered_with_another_token() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.renew(grant)
    story.calls[-1].answer["lease"]["token"] = 99
    return story


# -- 9: releases


@keeps(9)
def test_a_stale_release_changes_nothing_and_the_released_key_is_free() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant)
    other = story.acquire("b", "k")
    story.is_lost(grant, "release")
    story.is_held("c", "k")
    story.release(other)
    story.acquire("c", "k")
    return story


@breaks(9)
def test_a_stale_release_ends_the_lease_of_the_next_holder() -> Story:
    story = Story()
    grant = story.acquire("a", "k", ttl_ms=1_000)
    story.expire(grant)
    story.acquire("b", "k")
    story.is_lost(grant, "release")
    story.edit(3, events=(story.event("released", "k", "b", 2),))
    return story


@breaks(9)
def test_a_release_that_is_done_and_ends_nothing() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.release(grant)
    story.edit(1, events=())
    return story


@breaks(9)
def test_an_acquire_is_refused_because_of_a_lease_that_was_released() -> Story:
    story = Story()
    grant = story.acquire("a", "k")
    story.release(grant)
    story.held["k"] = grant
    story.is_held("b", "k")
    return story


def test_what_rests_on_clocks_is_not_checked_when_clocks_broke_their_bound() -> None:
    story = Story()
    story.release(story.acquire("a", "k"))
    story.acquire("b", "k")
    believe(story, "a", "k", 1, 1.02, 1.5)
    believe(story, "b", "k", 2, 1.22, 5.0)
    assert broken_by(dataclasses.replace(story.history, rates_kept=False)) == set()
