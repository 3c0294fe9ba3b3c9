"""The rules of elections as pure decisions."""

import pytest

from tenure_cluster.raft.election import FOLLOWER_RANK_DELAY_S, HINT_RETRY_S, Election, Move

MIN_S = 0.5


def make(peers: tuple[str, ...] = ("n2", "n3"), now_s: float = 0.0, **rules: bool) -> Election:
    return Election(peers=peers, timeout_min_s=MIN_S, now_s=now_s, random=lambda: 0.5, **rules)


def after_silence(**rules: bool) -> Election:
    return make(now_s=-MIN_S, **rules)


# -- stickiness


def test_who_has_heard_a_leader_stands_by_it_for_the_minimum_timeout() -> None:
    election = after_silence()
    assert not election.is_sticky(0.0, None)
    election.heard(0.0)
    assert election.is_sticky(MIN_S - 0.001, None)
    assert not election.is_sticky(MIN_S, None)


def test_who_has_just_started_stands_by_whomever_its_last_life_had_heard() -> None:
    election = make(now_s=0.0)
    assert election.is_sticky(MIN_S - 0.001, None)
    assert not election.is_sticky(MIN_S, None)
    assert not make(now_s=0.0, silent_start=False).is_sticky(0.0, None)


def test_a_node_without_peers_is_not_silent() -> None:
    assert not make(peers=(), now_s=0.0).is_sticky(0.0, None)


def test_a_leader_is_sticky_to_itself_only_with_fresh_evidence_of_a_majority() -> None:
    election = after_silence()
    election.heard(10.0)
    assert election.is_sticky(10.0, leading_since_s=9.8)
    assert not election.is_sticky(10.0, leading_since_s=9.4)
    assert not election.is_sticky(10.0, leading_since_s=float("-inf"))


def test_the_hint_of_a_closed_connection_ends_stickiness_but_not_the_silence_after_a_start() -> None:
    election = make(now_s=0.0)
    election.heard(0.1)
    election.hint(0.2)
    assert election.is_sticky(0.3, None)
    assert not election.is_sticky(0.55, None)


def test_without_stickiness_nobody_is_stood_by() -> None:
    election = after_silence(sticky=False)
    election.heard(0.0)
    assert not election.is_sticky(0.0, None)
    assert not election.is_sticky(0.0, leading_since_s=0.0)


# -- the voter's side of a pre-vote


@pytest.mark.parametrize(
    ("candidate", "granted"),
    [((3, 10), True), ((3, 11), True), ((4, 1), True), ((3, 9), False), ((2, 99), False)],
)
def test_a_pre_vote_goes_to_a_log_that_is_at_least_as_new(candidate: tuple[int, int], granted: bool) -> None:
    assert after_silence().grants_pre_vote(candidate, (3, 10), 1.0, None) == granted


def test_no_pre_vote_against_a_leader_that_is_heard() -> None:
    election = after_silence()
    election.heard(1.0)
    assert not election.grants_pre_vote((9, 99), (1, 1), 1.1, None)


# -- the candidate's side


def test_a_node_asks_first_waits_and_campaigns_when_a_majority_would_vote_for_it() -> None:
    election = after_silence()
    assert election.next_move(0.0, term=7) is Move.ASK
    assert election.next_move(0.01, term=7) is Move.WAIT
    assert election.pre_vote_granted("n2", asked_term=7)
    assert election.next_move(0.02, term=7) is Move.CAMPAIGN
    assert election.next_move(0.03, term=8) is Move.ASK


def test_in_five_nodes_two_pre_votes_of_different_peers_are_needed() -> None:
    election = make(peers=("n2", "n3", "n4", "n5"), now_s=-MIN_S)
    election.next_move(0.0, term=1)
    assert not election.pre_vote_granted("n2", asked_term=1)
    assert not election.pre_vote_granted("n2", asked_term=1)
    assert not election.pre_vote_granted("stranger", asked_term=1)
    assert election.pre_vote_granted("n3", asked_term=1)


def test_pre_votes_for_another_term_do_not_count() -> None:
    election = after_silence()
    election.next_move(0.0, term=7)
    assert not election.pre_vote_granted("n2", asked_term=6)
    assert election.next_move(0.01, term=7) is Move.WAIT


def test_who_hears_a_leader_forgets_the_pre_votes_it_was_given() -> None:
    election = after_silence()
    election.next_move(0.0, term=7)
    election.pre_vote_granted("n2", asked_term=7)
    election.heard(0.1)
    assert election.next_move(2.0, term=7) is Move.ASK


def test_a_question_without_a_majority_is_repeated_after_a_while() -> None:
    election = after_silence()
    election.next_move(0.0, term=1)
    retry_s = MIN_S / 2 * 1.5
    assert election.next_move(retry_s - 0.001, term=1) is Move.WAIT
    assert election.next_move(retry_s, term=1) is Move.ASK


def test_a_question_is_repeated_sooner_while_a_hint_is_fresh() -> None:
    election = after_silence()
    election.hint(0.0)
    assert election.next_move(0.0, term=1) is Move.ASK
    assert election.next_move(HINT_RETRY_S * 1.5, term=1) is Move.ASK
    assert election.next_move(MIN_S, term=1) is Move.ASK
    assert election.next_move(MIN_S + HINT_RETRY_S * 1.5, term=1) is Move.WAIT


def test_a_hint_makes_a_node_ask_at_once_though_it_has_just_asked() -> None:
    election = after_silence()
    election.next_move(0.0, term=1)
    election.hint(0.01)
    assert election.next_move(0.01, term=1) is Move.ASK


def test_without_peers_or_without_pre_votes_a_node_campaigns_at_once() -> None:
    assert make(peers=()).next_move(0.0, term=1) is Move.CAMPAIGN
    assert make(pre_vote=False).next_move(0.0, term=1) is Move.CAMPAIGN


def test_after_a_hint_followers_ask_in_the_order_of_their_names() -> None:
    def delay_s(node_id: str) -> float:
        peers = tuple(name for name in ("n1", "n2", "n3", "n4", "n5") if name != node_id)
        return make(peers=peers).hint_delay_s(node_id, "n2")

    steps = [delay_s(name) / FOLLOWER_RANK_DELAY_S for name in ("n1", "n3", "n4", "n5")]
    assert steps == pytest.approx([0, 1, 2, 3])


# -- votes


def test_a_voter_counts_once_in_a_term() -> None:
    election = make()
    assert election.counts_vote("n2", 5)
    assert not election.counts_vote("n2", 5)
    assert election.counts_vote("n3", 5)
    assert election.counts_vote("n2", 6)
    assert not election.counts_vote("stranger", 6)


def test_without_vote_once_every_vote_counts() -> None:
    election = make(vote_once=False)
    assert election.counts_vote("n2", 5)
    assert election.counts_vote("n2", 5)
