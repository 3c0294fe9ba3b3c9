"""Cluster time: it never falls, and it never runs faster than true time by more than clocks may."""

from tenure_chaos.checkers.attribution import may_act_until
from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import NEVER, Findings, Wrong
from tenure_chaos.history import CallRecord

ROUNDING_MS = 1.001
"""A stamp is cut to whole milliseconds, and true times here are floats."""


def stamps_never_fall(facts: Facts) -> Findings:
    """17: stamps never fall along the log."""
    last = 0
    for n, effect in enumerate(facts.effects):
        if effect.at_ms < last:
            yield Wrong(f"effect {n} is stamped {effect.at_ms} after {last}")
        last = max(last, effect.at_ms)
    return len(facts.effects)


def cluster_time_is_not_fast(facts: Facts) -> Findings:
    """17: between two stamps no more cluster time passes than true time by the fastest clock.

    When a stamp was made is known if it was recorded. Else it was made at the latest when the entry was
    applied, and at the earliest when the attempt was sent that asked for it. It may always be slower: after a
    pause, and when a leader takes office.
    """
    if not facts.history.rates_kept:
        return 0
    bound = (1 + facts.history.clock_rate_bound) * 1000
    sent_at = _sent_at(facts)
    behind, since = 0.0, "the beginning"
    for n, effect in enumerate(facts.effects):
        known = effect.stamped_at >= 0
        latest = effect.stamped_at if known else effect.first_applied_at
        ahead_ms = effect.at_ms - (behind + latest * bound)
        if ahead_ms > ROUNDING_MS:
            yield Wrong(f"effect {n} is stamped {effect.at_ms}, {ahead_ms:.0f} ms more than since {since}")
        earliest = effect.stamped_at if known else sent_at.get(n)
        if earliest is not None and effect.at_ms - earliest * bound < behind:
            behind, since = effect.at_ms - earliest * bound, f"effect {n}"
    return len(facts.effects)


def _sent_at(facts: Facts) -> dict[int, float]:
    """By effect: when the attempt was sent that made it, if a call has made one effect and no
    other attempt can have: of this call, or of another one that asked for the same.
    """
    sent: dict[int, float] = {}
    for call in facts.answered("acquire", "renew", "release", "commit"):
        if call.doubtful or call.answer.get("replayed") or not call.answered_attempt_at:
            continue
        made = [n for n in facts.attribution.made_by(call) if facts.applied_at[n] >= call.answered_attempt_at]
        if len(made) == 1 and _no_other_made(facts, call, made[0]):
            sent[made[0]] = min(call.answered_attempt_at, sent.get(made[0], NEVER))
    return sent


def _no_other_made(facts: Facts, call: CallRecord, n: int) -> bool:
    """A call that was never answered may have been executed, and asked again by another call since: that one
    is told that it was done already."""
    effect, sent_at = facts.effects[n], call.answered_attempt_at
    return all(
        other is call or other.invoked_at >= sent_at or may_act_until(other, effect) < sent_at
        for other in facts.attribution.calls_of(effect)
    )
