"""The reasons that refusals give are true.

A refusal may be decided anywhere between its call and its answer, so its reason must hold after some effect
in between. A lease counts as over from its deadline on, whether an effect has ended it by then or not.
"""

from typing import Final

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.pools import guard_was_forgotten
from tenure_chaos.checkers.reading import (
    Findings,
    Key,
    Wrong,
    called_key,
    called_keys,
    guard_of,
    refused_key,
)
from tenure_chaos.history import CallRecord

_ENDING_OF_REASON: Final = {
    "expired": ("expired", None),
    "released": ("released", ""),
    "broken": ("broken", None),
    "handed_over": ("handed_over", None),
    "abandoned": ("released", "abandoned"),
    "session_closed": ("released", "session_closed"),
}
"""reason -> (kind of the event that ended it, its detail if that says more)"""


_OF_A_LEASE: Final = frozenset(("Renew", "Release", "Handover", "Park", "Unpark"))


def held_names_a_holder(facts: Facts) -> Findings:
    """11: an acquire is refused as held only while who it names, or somebody, keeps others out."""
    looked = 0
    for call in facts.refused("acquire", "held"):
        looked += 1
        key, (first, last) = refused_key(call), facts.window(call)
        holder = call.answer.get("holder")
        if holder is None:
            if not _kept_out(facts, call):
                yield Wrong(
                    f"call {call.number} was refused as held, but {key[1]} was free all the time", key
                )
            continue
        lives = facts.lives_of(key, holder["token"])
        if not lives or facts.released_before(call, holder["token"]) is not None:
            continue  # That is said by another property.
        if not any(life.holds_between(first, last) and not facts.over(life, first) for life in lives):
            life = lives[0]
            yield Wrong(
                f"call {call.number} was refused because of {life.name}, which did not hold then", key
            )
    return looked


def _kept_out(facts: Facts, call: CallRecord) -> bool:
    """Whether the key was held, waited for, or in a grace period at some time of the call."""
    first, last = facts.window(call)
    for key in called_keys(call):
        if any(True for _ in facts.lives_between(key, first, last)):
            return True
        if any(life.grace_ms and life.ended <= last for life in facts.by_raw.get(key, ())):
            return True
    keys = called_keys(call)
    joined = [
        event
        for effect in facts.effects[: last + 1]
        for event in effect.events
        if event["kind"] == "queue_joined" and (event["tenant"], event["key"]) in keys
    ]
    return bool(joined)


def lost_leases_are_over(facts: Facts) -> Findings:
    """11: a renewal, release, handover, or what parks a lease or takes it up, is refused as lost only if that
    lease was over, for the reason told.
    """
    looked = 0
    for name in ("renew", "release", "handover", "park", "unpark"):
        for call in facts.refused(name, "lost"):
            looked += 1
            last = facts.window(call)[1]
            life = facts.life_of_lease(call.tenant, call.asked.get("lease_id", ""), last)
            if life is None:
                continue
            if not facts.over(life, last):
                yield Wrong(f"call {call.number} was told that {life.name} is over, which held", life.key)
            elif not call.asked.get("whole_set") and not _ended_so(life, call.answer.get("reason"), last):
                yield Wrong(
                    f"call {call.number} was told that {life.name} is over, {call.answer['reason']}, but it "
                    f"had {life.ending} {life.detail}".rstrip(),
                    life.key,
                )
    return looked


def _ended_so(life: Life, reason: str | None, last: int) -> bool:
    if reason is None or reason not in _ENDING_OF_REASON:
        return True
    kind, detail = _ENDING_OF_REASON[reason]
    if life.ended > last:
        return kind == "expired"
    return life.ending == kind and detail in (None, life.detail)


def lost_in_the_log_is_over(facts: Facts) -> Findings:
    """11: where the log itself answers that a lease is lost, it is, and for that reason."""
    looked = 0
    for n, effect in enumerate(facts.effects):
        if effect.result != "Lost" or effect.command not in _OF_A_LEASE:
            continue
        looked += 1
        life = facts.life_of_lease(effect.fields["tenant"], effect.fields["lease_id"] or "", n)
        if life is None:
            continue
        # Of a whole set it is said what became of its first key.
        of_set = effect.fields.get("whole_set")
        rightly = of_set or _ended_so(life, effect.result_fields["reason"], n)
        if not facts.over(life, n) or not rightly:
            yield Wrong(
                f"effect {n} answers that {life.name} is over, {effect.result_fields['reason']}: it is not",
                life.key,
            )
    return looked


def stale_tokens_are_stale(facts: Facts) -> Findings:
    """11: a commit is refused as stale only if a later token had been granted, or a break had taken the
    token's right; and the floor that is told was above it.
    """
    looked = 0
    for call in facts.refused("commit", "stale_token"):
        looked += 1
        key, last, token = facts.place(call), facts.window(call)[1], call.asked["token"]
        floor = call.answer.get("floor")
        if floor is not None and 0 < floor <= token:
            yield Wrong(
                f"call {call.number}: token {token} is not below the floor that was told, {floor}", key
            )
        elif (own := facts.life(key, token)) is not None and not (
            _superseded(facts, own, last) or guard_was_forgotten(facts, call)
        ):
            yield Wrong(f"call {call.number}: token {token} was called stale, but was the newest", key)
        elif floor and not _minted(facts, guard_of(key), floor, last):
            yield Wrong(f"call {call.number} was told the floor {floor}, which nobody had been granted", key)
    return looked


def _minted(facts: Facts, key: Key, floor: int, last: int) -> bool:
    """Whether the floor is a token of the key; one that a break minted is told nowhere else."""
    life = facts.life(key, floor)
    granted = life is not None and life.began <= last
    raw = (key[0], key[1].partition("#")[0])
    return granted or any(n <= last for n in facts.breaks.get(raw, ()))


def _superseded(facts: Facts, own: Life, last: int) -> bool:
    if own.began > last:
        return True  # It was not granted yet, and a token that nobody was granted is stale.
    if any(life.token > own.token and life.began <= last for life in facts.by_guard[guard_of(own.key)]):
        return True
    return any(own.began <= n <= last for n in facts.breaks.get(own.raw, ()))


def leases_that_do_not_live_are_over(facts: Facts) -> Findings:
    """11: a commit is refused as not live only if its lease was over or parked, or is not the one of that
    token.
    """
    looked = 0
    for call in facts.refused("commit", "not_live"):
        looked += 1
        key, last = facts.place(call), facts.window(call)[1]
        life = facts.life(key, call.asked["token"])
        if life is None or life.lease_id != call.asked.get("lease_id", life.lease_id):
            continue
        first = facts.window(call)[0]
        if life.rests(last):
            continue
        if not facts.over(life, last) and life.claimed <= first:
            yield Wrong(f"call {call.number} was told that {life.name} does not live, which held", key)
    return looked


def used_tokens_were_used(facts: Facts) -> Findings:
    """11: a commit is refused as used or replayed only after a commit with that token, or a later one."""
    looked = 0
    for code in ("token_used", "seq_replayed"):
        for call in facts.refused("commit", code):
            looked += 1
            key, last = guard_of(facts.place(call)), facts.window(call)[1]
            write = (call.asked["token"], call.asked.get("seq") or 0)
            if not any(n <= last and accepted >= write for n, accepted in facts.accepted.get(key, ())):
                yield Wrong(f"call {call.number} was told {code}, but {write} had not been written", key)
    return looked


def revisions_that_conflict_differ(facts: Facts) -> Findings:
    """11: a commit is refused for the record's revision only if the record had another."""
    looked = 0
    for name in ("commit", "delete_record"):
        for call in facts.refused(name, "revision_conflict"):
            looked += 1
            key, window = called_key(call), facts.window(call)
            states = facts.versions_between(key, *window)
            revisions = [state.revision if state is not None else 0 for state in states]
            if all(revision == call.asked.get("if_revision") for revision in revisions):
                yield Wrong(
                    f"call {call.number} was told that the revision is not {call.asked.get('if_revision')}, "
                    "which it was",
                    key,
                )
    return looked
