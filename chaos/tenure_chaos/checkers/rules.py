"""The properties of a history, by their numbers, and the one way to check them all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tenure_chaos.checkers import (
    blocking,
    clock,
    durability,
    guards,
    holding,
    keys,
    liveness,
    pools,
    promises,
    raft,
    reads,
    reasons,
    requests,
    resting,
    sharing,
    tenants,
    tokens,
    waiting,
    watch,
)
from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import Findings, Wrong
from tenure_chaos.history import History

PROPERTIES: Final[dict[int, tuple[Callable[[Facts], Findings], ...]]] = {
    1: (keys.linearizable_per_key,),
    2: (tokens.tokens_are_unique, tokens.a_replay_is_the_same_grant),
    3: (
        tokens.tokens_rise_along_the_log,
        tokens.tokens_follow_real_time,
        resting.taking_up_brings_a_new_token,
    ),
    4: (
        holding.one_holder_at_a_time,
        sharing.readers_and_writers_take_turns,
        pools.pools_keep_to_their_slots,
        pools.a_pool_is_resized_as_it_is_told,
        resting.a_handover_leaves_no_gap,
    ),
    5: (
        holding.nothing_expires_before_its_deadline,
        holding.no_early_takeover,
        resting.parked_leases_end_at_their_limit,
    ),
    6: (holding.one_believer_at_a_time, holding.no_belief_outlives_the_next_grant),
    7: (
        guards.accepted_tokens_never_fall,
        guards.no_update_is_lost,
        guards.commits_obey_the_floor,
        guards.commits_obey_their_mode,
        guards.live_commits_are_of_live_leases,
    ),
    8: (
        promises.a_renewal_is_of_the_current_grant,
        promises.a_renewal_never_shortens,
        promises.a_renewal_answers_the_same_grant,
        resting.leases_end_without_progress,
    ),
    9: (promises.a_release_ends_its_own_lease_alone, promises.what_was_released_keeps_nobody_out),
    10: (
        requests.a_request_is_granted_once,
        requests.what_was_given_up_is_granted_no_more,
        requests.a_commit_is_accepted_once,
        requests.nothing_happens_after_the_answer,
        sharing.sets_are_granted_whole,
    ),
    11: (
        requests.what_failed_has_no_effect,
        requests.nobody_is_granted_what_was_refused,
        reasons.held_names_a_holder,
        reasons.lost_leases_are_over,
        reasons.lost_in_the_log_is_over,
        reasons.stale_tokens_are_stale,
        reasons.leases_that_do_not_live_are_over,
        reasons.used_tokens_were_used,
        reasons.revisions_that_conflict_differ,
        pools.conflicts_name_the_number_in_force,
    ),
    12: (requests.every_effect_was_asked_for, requests.every_token_seen_was_granted),
    13: (
        durability.acknowledged_grants_are_in_the_log,
        durability.acknowledged_changes_are_in_the_log,
        durability.healed_nodes_have_everything,
    ),
    14: (
        reads.linearizable_reads_are_new,
        reads.stale_reads_are_true_pasts,
        reads.stale_reads_never_go_back,
        blocking.who_blocks_whom_is_true,
    ),
    15: (
        watch.revisions_are_consecutive,
        watch.watchers_are_told_in_order,
        watch.watchers_are_told_what_happened,
        watch.watchers_miss_nothing,
        watch.leases_live_in_order_for_a_watcher,
    ),
    16: (durability.digests_are_equal,),
    17: (clock.stamps_never_fall, clock.cluster_time_is_not_fast),
    18: (
        raft.one_leader_a_term,
        raft.leaders_are_complete,
        raft.terms_and_votes_never_go_back,
        raft.indexes_never_go_back,
        raft.committed_entries_are_final,
    ),
    19: (
        tenants.commands_touch_their_own_tenant,
        tenants.answers_tell_of_their_own_tenant,
        tenants.quotas_hold,
    ),
    20: (
        liveness.a_leader_comes_after_healing,
        liveness.abandoned_leases_come_free,
        liveness.nothing_is_left_behind,
        waiting.waiters_are_served_in_order,
        waiting.only_waiters_that_live_are_served,
        waiting.nobody_waits_for_a_free_key,
    ),
}
"""The numbers are those of the design's list of properties; each function's docstring states its part."""

TITLES: Final[dict[int, str]] = {
    1: "linearizable per key",
    2: "a token is of one grant",
    3: "tokens rise",
    4: "one holder at a time",
    5: "no early takeover",
    6: "one believer at a time",
    7: "guards let nothing old pass and lose no update",
    8: "renewals",
    9: "releases",
    10: "a request has at most one effect",
    11: "what failed has no effect, for true reasons",
    12: "nothing without a request",
    13: "what was acknowledged stays",
    14: "reads",
    15: "watches",
    16: "equal digests",
    17: "cluster time",
    18: "Raft",
    19: "tenants",
    20: "the healed cluster goes on",
}


@dataclass(frozen=True)
class Verdict:
    """What one function found. ``looked_at`` 0: the history has nothing of the kind."""

    number: int
    name: str
    looked_at: int
    wrongs: tuple[Wrong, ...]
    undecided: tuple[str, ...] = ()
    """What it could not decide within its bounds: unchecked."""

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


class Unjudgeable(Exception):
    """What the history holds is not of the shape that a check expects."""


def judge(history: History) -> list[Verdict]:
    """The verdict of every function, in the order of the properties. Raises Unjudgeable.

    The search for an order comes last, and leaves out keys that a cheaper check has accused: it would search
    all there is and say the same again.
    """
    at = "reading the log"
    verdicts = []
    try:
        facts = Facts(history)
        for number in (*range(2, len(PROPERTIES) + 1), 1):
            for check_one in PROPERTIES[number]:
                at = check_one.__name__
                verdict = _judge_one(number, check_one, facts)
                facts.accused |= {wrong.key for wrong in verdict.wrongs if wrong.key is not None}
                verdicts.append(verdict)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Unjudgeable(f"{at.replace('_', ' ')}: {type(error).__name__}: {error}") from error
    return sorted(verdicts, key=lambda verdict: verdict.number)


def _judge_one(number: int, check_one: Callable[[Facts], Findings], facts: Facts) -> Verdict:
    wrongs: list[Wrong] = []
    facts.undecided = []
    findings = check_one(facts)
    while True:
        try:
            wrongs.append(next(findings))
        except StopIteration as end:
            return Verdict(number, check_one.__name__, end.value, tuple(wrongs), tuple(facts.undecided))


def check(history: History) -> Iterator[tuple[str, str]]:
    """(rule, what is wrong) of everything that breaks a property."""
    for verdict in judge(history):
        for wrong in verdict.wrongs:
            yield f"property {verdict.number}, {verdict.title}", wrong.what
