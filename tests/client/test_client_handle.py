"""The life of a handle without I/O: what it may be believed to be, at any time and in any order of events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenure._handle import HandleLife, State
from tenure._validity import ATTEMPT_OF_TTL, MARGIN_MIN_S, RHO, Validity, default_margin_s

TTLS_MS = [1_000, 1_500, 3_000, 10_000, 30_000, 300_000, 86_400_000]


def held(ttl_ms: int = 30_000, remaining_ms: int | None = None, at: float = 0.0) -> HandleLife:
    remaining_ms = ttl_ms if remaining_ms is None else remaining_ms
    return HandleLife.from_grant(ttl_ms=ttl_ms, remaining_ms=remaining_ms, sent_at=at, now=at, draw=0.5)


def test_validity_counts_from_the_send_and_keeps_the_rate_bound_and_a_margin_back() -> None:
    life = HandleLife.from_grant(ttl_ms=30_000, remaining_ms=29_000, sent_at=100.0, now=103.0, draw=0.5)
    assert life.valid_until == pytest.approx(100.0 + 29.0 * (1 - RHO) / (1 + RHO) - 0.3)
    assert life.expires_in_s(110.0) == pytest.approx(life.valid_until - 110.0)


@pytest.mark.parametrize(("ttl_ms", "margin_s"), [(1_000, 0.25), (25_000, 0.25), (60_000, 0.6)])
def test_the_margin_is_a_part_of_the_ttl_but_never_less_than_its_least(ttl_ms: int, margin_s: float) -> None:
    assert default_margin_s(ttl_ms) == pytest.approx(margin_s)
    assert default_margin_s(ttl_ms) >= MARGIN_MIN_S


def test_before_the_grant_it_waits_and_is_nothing_that_could_be_lost_by_time() -> None:
    life = HandleLife(ttl_ms=3_000)
    assert life.state(1e9) is State.WAITING
    assert not life.is_held(1e9)
    assert not life.renew_due(1e9)
    assert life.expires_in_s(0.0) == 0.0
    assert life.granted(sent_at=1e9, remaining_ms=3_000, now=1e9, draw=0.5) is State.HELD


def test_a_grant_whose_answer_took_longer_than_it_is_valid_is_lost_at_once() -> None:
    life = HandleLife.from_grant(ttl_ms=3_000, remaining_ms=3_000, sent_at=0.0, now=2.8, draw=0.5)
    assert (life.state(2.8), life.reason) == (State.LOST, "expired")


@pytest.mark.parametrize("ttl_ms", TTLS_MS)
def test_t24_every_read_evaluates_the_time_so_it_is_never_held_past_its_validity(ttl_ms: int) -> None:
    """T24: the state reflects local validity at every read, though nothing has told the handle anything."""
    life = held(ttl_ms)
    assert life.is_held(math.nextafter(life.valid_until, -math.inf))
    assert life.state(life.valid_until) is State.LOST
    assert life.reason == "expired"
    assert life.state(0.0) is State.LOST, "what was read as LOST stays LOST"


def test_t13_a_missed_renewal_surfaces_as_at_risk_and_then_as_lost() -> None:
    """T13: renewals that are missed are never silent, also if the attempt just hangs."""
    life = held()
    assert life.state(9.0) is State.HELD
    life.renewal_begun(10.0)
    assert life.state(15.9) is State.HELD
    assert life.state(16.1) is State.AT_RISK, "the attempt hangs"
    assert life.is_held(16.1)
    assert life.state(life.valid_until) is State.LOST


def test_a_renewal_that_is_answered_ends_the_risk() -> None:
    life = held()
    life.renewal_begun(10.0)
    assert life.renew_failed(10.1, 0.5) is State.AT_RISK
    life.renewal_begun(11.0)
    assert life.renewed(sent_at=11.0, remaining_ms=30_000, now=11.2, draw=0.5) is State.HELD
    assert life.valid_until > 40.0


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("ttl_ms", TTLS_MS)
def test_a_renewal_is_due_after_a_third_of_the_ttl_give_or_take_a_tenth(ttl_ms: int, draw: float) -> None:
    life = HandleLife.from_grant(ttl_ms=ttl_ms, remaining_ms=ttl_ms, sent_at=0.0, now=0.0, draw=draw)
    third_s = ttl_ms / 3000
    assert third_s * 0.9 <= life.next_renewal <= third_s * 1.1
    assert not life.renew_due(life.next_renewal - 0.001)
    assert life.renew_due(life.next_renewal)


def test_a_grant_with_little_time_left_is_renewed_at_once() -> None:
    life = held(30_000, remaining_ms=15_000)
    assert life.renew_due(0.0)


def test_an_attempt_may_take_a_sixth_of_the_ttl_or_half_of_what_is_left() -> None:
    life = held()
    assert life.renewal_begun(10.0) == pytest.approx(30 * ATTEMPT_OF_TTL)
    life.renew_failed(15.0, 0.5)
    late = life.valid_until - 4.0
    assert life.renewal_begun(late) == pytest.approx(2.0)


def test_no_second_attempt_begins_while_one_is_under_way() -> None:
    life = held()
    life.renewal_begun(10.0)
    assert not life.renew_due(20.0)
    life.renew_failed(20.0, 0.5)
    assert life.renew_due(life.next_renewal)


@pytest.mark.parametrize("draw", [0.0, 0.999])
@pytest.mark.parametrize("ttl_ms", TTLS_MS)
def test_t29_after_a_missed_renewal_at_least_two_further_attempts_fit(ttl_ms: int, draw: float) -> None:
    """T29: a single missed renewal, or a second one, takes nobody down; even if each attempt hangs."""
    life = HandleLife.from_grant(ttl_ms=ttl_ms, remaining_ms=ttl_ms, sent_at=0.0, now=0.0, draw=draw)
    attempts = 0
    now = life.next_renewal
    while life.renew_due(now):
        attempts += 1
        now += life.renewal_begun(now)
        life.renew_failed(now, draw)
        now = life.next_renewal
        if attempts == 3:
            assert life.state(now) is State.AT_RISK
            break
    assert attempts == 3


@pytest.mark.parametrize("draw", [0.0, 0.999])
@pytest.mark.parametrize("ttl_ms", TTLS_MS)
def test_t22_t30_transient_failures_are_retried_until_the_validity_ends(ttl_ms: int, draw: float) -> None:
    """T22, T30: no number of transient errors (no leader, refused connections) ends a lease before V, and
    they are not repeated without a pause."""
    life = HandleLife.from_grant(ttl_ms=ttl_ms, remaining_ms=ttl_ms, sent_at=0.0, now=0.0, draw=draw)
    attempts, tail_s = 0, ttl_ms / 1_000_000
    while (now := life.next_renewal) < life.valid_until - tail_s:
        assert life.renew_due(now)
        life.renewal_begun(now)
        assert life.renew_failed(now, draw) is State.AT_RISK
        assert life.next_renewal > now
        attempts += 1
    assert attempts >= 3
    assert attempts <= 120 or ttl_ms > 300_000
    assert life.is_held(life.valid_until - tail_s)


def test_t22_a_change_of_leader_that_ends_before_the_validity_does_is_no_loss() -> None:
    """T22: the renewals fail for 15 of 30 seconds, then one is answered."""
    life = held()
    while (now := life.next_renewal) < 25.0:
        life.renewal_begun(now)
        life.renew_failed(now, 0.5)
    life.renewal_begun(now)
    assert life.renewed(sent_at=now, remaining_ms=30_000, now=now, draw=0.5) is State.HELD


@pytest.mark.parametrize("reason", ["expired", "broken", "handed_over", "session_closed", "restored"])
def test_what_the_cluster_says_is_lost_is_lost_at_once_with_its_reason(reason: str) -> None:
    life = held()
    assert life.lost(reason, 1.0) is State.LOST
    assert life.reason == reason
    assert not life.renew_due(20.0)
    assert life.next_renewal == math.inf
    assert life.lost("another", 2.0) is State.LOST
    assert life.reason == reason


def test_t21_a_handle_that_nobody_renews_any_more_is_lost_and_not_held_on() -> None:
    """T21: whoever ends the renewal gives its handles up, with a reason."""
    life = held()
    assert life.given_up("closed", 1.0) is State.LOST
    assert life.reason == "closed"


def test_t24_t26_an_answer_that_comes_after_the_loss_revives_nothing() -> None:
    """T24, T26: neither a late renewal nor anything else leads back from LOST."""
    life = held(3_000)
    life.renewal_begun(1.0)
    assert life.renewed(sent_at=1.0, remaining_ms=3_000, now=2.9, draw=0.5) is State.LOST
    assert life.state(2.9) is State.LOST
    assert life.granted(sent_at=3.0, remaining_ms=3_000, now=3.0, draw=0.5) is State.LOST
    assert not life.renew_due(3.0)


def test_answers_out_of_order_never_shorten_what_is_known() -> None:
    life = held()
    life.renewed(sent_at=12.0, remaining_ms=30_000, now=12.5, draw=0.5)
    known = life.valid_until
    life.renewed(sent_at=10.0, remaining_ms=30_000, now=13.0, draw=0.5)
    assert life.valid_until == known


def test_t46_once_the_release_has_begun_no_answer_starts_the_renewal_again() -> None:
    """T46: schedule and cancel are decided in one place, whatever comes in late."""
    life = held()
    life.renewal_begun(10.0)
    assert life.release_begun(10.1) is State.RELEASED
    assert life.renewed(sent_at=10.0, remaining_ms=30_000, now=10.2, draw=0.5) is State.RELEASED
    assert life.renew_failed(10.3, 0.5) is State.RELEASED
    assert not life.renew_due(25.0)
    assert life.next_renewal == math.inf


def test_the_end_of_a_renewal_that_raced_with_ones_own_release_is_no_loss() -> None:
    life = held()
    life.renewal_begun(10.0)
    life.release_begun(10.1)
    assert life.lost("released", 10.2) is State.RELEASED


def test_t39_it_is_forgotten_only_after_a_definite_answer_or_at_the_end_of_its_validity() -> None:
    """T39: a release that failed or was cancelled leaves something that can be released again."""
    life = held()
    assert not life.forgettable(1.0)
    life.release_begun(1.0)
    assert not life.forgettable(2.0), "no answer yet"
    life.release_begun(3.0)
    assert not life.forgettable(4.0), "asked again"
    life.release_answered()
    assert life.forgettable(4.0)
    unanswered = held()
    unanswered.release_begun(1.0)
    assert unanswered.forgettable(unanswered.valid_until)


def test_a_release_that_finds_the_lease_ended_before_says_so() -> None:
    life = held()
    life.release_begun(1.0)
    life.release_answered("broken")
    assert (life.state(1.1), life.reason) == (State.LOST, "broken")


def test_a_lost_handle_cannot_be_released() -> None:
    life = held()
    life.lost("expired", 1.0)
    assert life.release_begun(1.1) is State.LOST
    life.release_answered()
    assert life.state(1.2) is State.LOST


def test_t49_a_forked_copy_is_lost() -> None:
    """T49: the child's copy; the parent's is another object in another process."""
    life = held()
    life.forked()
    assert (life.state(0.0), life.reason) == (State.LOST, "forked")
    waiting = HandleLife(ttl_ms=3_000)
    waiting.forked()
    assert waiting.state(0.0) is State.LOST


def test_the_handles_of_one_session_share_its_validity_and_nothing_else() -> None:
    session = Validity(ttl_ms=30_000)
    one, other = HandleLife(validity=session), HandleLife(validity=session)
    one.granted(sent_at=0.0, remaining_ms=30_000, now=0.0, draw=0.5)
    other.granted(sent_at=1.0, remaining_ms=29_000, now=1.0, draw=0.5)
    session.extended(sent_at=10.0, remaining_ms=30_000, now=10.0, draw=0.5)
    assert one.valid_until == other.valid_until > 39.0
    one.lost("broken", 11.0)
    assert other.state(11.0) is State.HELD
    assert other.state(session.valid_until) is State.LOST


@given(
    ttl_ms=st.sampled_from(TTLS_MS),
    clock=st.floats(1 - RHO, 1 + RHO),
    server=st.floats(1 - RHO, 1 + RHO),
    there_s=st.floats(0, 5),
    back_s=st.floats(0, 5),
)
def test_t1_within_the_rate_bound_the_holder_stops_before_the_cluster_can_grant_again(
    ttl_ms: int, clock: float, server: float, there_s: float, back_s: float
) -> None:
    """T1, T10: true time; the two clocks run at any rates within rho, and the network takes its time."""
    life = HandleLife.from_grant(
        ttl_ms=ttl_ms, remaining_ms=ttl_ms, sent_at=0.0, now=(there_s + back_s) * clock, draw=0.5
    )
    granted_again_at = there_s + ttl_ms / 1000 / server
    assert life.state(granted_again_at * clock) is State.LOST


class Life(RuleBasedStateMachine):
    """T17: events in any order, at times that never run back. What must hold after each is told from the
    record of what happened, not from the machine."""

    @initialize(ttl_ms=st.sampled_from(TTLS_MS), wait_s=st.floats(0, 2))
    def grant(self, ttl_ms: int, wait_s: float) -> None:
        self.now = 50.0
        self.ttl_ms = ttl_ms
        self.life = HandleLife(ttl_ms=ttl_ms)
        self.ended: tuple[State, str] | None = None
        self.released = False
        self.bound = self._bound(self.now)
        sent_at, self.now = self.now, self.now + wait_s
        self.life.granted(sent_at=sent_at, remaining_ms=ttl_ms, now=self.now, draw=0.5)
        self._note()

    def _bound(self, sent_at: float) -> float:
        return sent_at + self.ttl_ms / 1000 - MARGIN_MIN_S

    def _note(self) -> None:
        if self.ended is None and self.life.state(self.now) is State.LOST:
            self.ended = (State.LOST, self.life.reason)

    @rule(part=st.floats(0, 0.5))
    def time_passes(self, part: float) -> None:
        self.now += part * self.ttl_ms / 1000
        self._note()

    @rule()
    def a_renewal_is_sent(self) -> None:
        if self.life.renew_due(self.now):
            timeout_s = self.life.renewal_begun(self.now)
            assert 0 < timeout_s <= (self.bound - self.now) / 2

    @rule(age_s=st.floats(0, 10), draw=st.floats(0, 0.999))
    def a_renewal_is_answered(self, age_s: float, draw: float) -> None:
        sent_at = max(50.0, self.now - age_s)
        lives = self.life.is_held(self.now)
        self.life.renewed(sent_at=sent_at, remaining_ms=self.ttl_ms, now=self.now, draw=draw)
        if lives:
            self.bound = max(self.bound, self._bound(sent_at))
        self._note()

    @rule(draw=st.floats(0, 0.999))
    def a_renewal_fails(self, draw: float) -> None:
        self.life.renew_failed(self.now, draw)

    @rule(reason=st.sampled_from(["expired", "released", "broken"]))
    def the_cluster_says_lost(self, reason: str) -> None:
        self.life.lost(reason, self.now)
        self._note()

    @rule()
    def the_release_begins(self) -> None:
        if self.life.is_held(self.now):
            self.released = True
        self.life.release_begun(self.now)

    @rule(reason=st.sampled_from([None, "expired"]))
    def the_release_is_answered(self, reason: str | None) -> None:
        self.life.release_answered(reason)
        self._note()

    @rule()
    def it_is_granted_again(self) -> None:
        self.life.granted(sent_at=self.now, remaining_ms=self.ttl_ms, now=self.now, draw=0.5)
        self._note()

    @invariant()
    def it_is_never_held_past_what_any_answer_allows(self) -> None:
        if hasattr(self, "life") and self.life.is_held(self.now):
            assert self.now < self.bound
            assert self.ended is None
            assert not self.released

    @invariant()
    def an_end_is_an_end(self) -> None:
        if hasattr(self, "life") and self.ended is not None:
            assert (self.life.state(self.now), self.life.reason) == self.ended
            assert not self.life.renew_due(self.now)
            assert self.life.next_renewal == math.inf

    @invariant()
    def what_must_not_be_renewed_is_never_due(self) -> None:
        if hasattr(self, "life") and not self.life.is_held(self.now):
            assert not self.life.renew_due(self.now + 1e6)
            assert self.life.expires_in_s(self.now) == 0.0


TestT17EventsInAnyOrder = Life.TestCase
