"""Who holds a key: in the log, by true time, and in the belief of the handles."""

import itertools
from collections.abc import Iterator

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.reading import (
    ENDINGS,
    NEVER,
    NOT_YET,
    Findings,
    Key,
    Wrong,
    guard_of,
    leases_told,
    place_of,
)
from tenure_chaos.history import Belief, CallRecord

ROUNDING_S = 0.002
"""Cluster time counts whole milliseconds."""

TAKEN_AWAY = frozenset(("broken", "handed_over", "unparked"))
"""Endings that a holder hears of only afterwards, whatever its clock says."""


def one_holder_at_a_time(facts: Facts) -> Findings:
    """4: in log order a key, or a slot of a pool, is granted only when the grant before has ended, and only
    what holds ends. Only who holds takes a parked lease up again.
    """
    held: dict[Key, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            key, kind, token = place_of(event), event["kind"], event["token"]
            if kind == "granted":
                looked += 1
                if key in held:
                    yield Wrong(f"effect {n} grants {key[1]} as {token} while {held[key]} holds", key)
                held[key] = token
            elif kind == "unparked":
                if key not in held:
                    yield Wrong(f"effect {n} takes up {key[1]}, which nobody held", key)
                held[key] = token
            elif kind in ENDINGS:
                if held.get(key) == token:
                    del held[key]
                elif effect.command != "Release":
                    yield Wrong(f"effect {n} ends token {token} of {key[1]}, which did not hold", key)
    return looked


def nothing_expires_before_its_deadline(facts: Facts) -> Findings:
    """5: by the log's own time, no lease expires before the deadline that its last grant or renewal set."""
    looked = 0
    for life in facts.lives:
        if life.ending != "expired" or not life.session_id:
            continue  # Of a waiter that isn't known, nor are the session and its deadline.
        looked += 1
        deadline_ms = facts.deadline_ms(life, life.ended)
        if deadline_ms != NEVER and life.ended_ms < deadline_ms:
            yield Wrong(
                f"effect {life.ended} at {life.ended_ms} ends {life.name}, whose deadline is {deadline_ms}",
                life.key,
            )
    return looked


def no_early_takeover(facts: Facts) -> Findings:
    """5: nobody else is granted a key before its holder's last acknowledged grant or renewal has run out by
    true time, counted from when the very attempt was sent, unless it was released, broken or handed over. A
    parked lease is promised until its limit.
    """
    if not facts.history.rates_kept:
        return 0
    promised = _promises(facts)
    looked = 0
    for lives in facts.by_key.values():
        for number, life in enumerate(lives):
            until, call = promised.get((life.key, life.token), (0.0, None))
            if call is None:
                continue
            looked += 1
            after = lives[number + 1] if number + 1 < len(lives) else None
            ended_rightly = life.ended != NOT_YET and life.ending != "expired"
            if life.ending == "expired" and life.ended_at < until - ROUNDING_S:
                yield _early(life, life.ended_at, "expired", until, call)
            elif after is not None and not ended_rightly and after.began_at < until - ROUNDING_S:
                yield _early(life, after.began_at, f"was followed by token {after.token}", until, call)
    return looked


def _early(life: Life, at: float, how: str, until: float, call: CallRecord) -> Wrong:
    return Wrong(
        f"{life.name} {how} at {at:.3f} s, but call {call.number} was promised it until {until:.3f} s",
        life.key,
    )


def _promises(facts: Facts) -> dict[tuple[Key, int], tuple[float, CallRecord]]:
    """Until when each grant was promised, and by which answer."""
    slack = 1 + facts.history.clock_rate_bound
    until: dict[tuple[Key, int], tuple[float, CallRecord]] = {}
    for call in facts.answered("acquire", "renew", "handover", "park", "unpark"):
        for lease in leases_told(call):
            if not call.answered_attempt_at:
                continue
            place = (place_of(lease, call.tenant), lease["token"])
            life = facts.life(*place)
            if life is not None and (life.ended_at < call.invoked_at or _parked_since(facts, life, call)):
                continue  # Nothing can be promised any more; that it was is for other properties.
            # A session that asks for what it holds is answered the lease as it is, not a fresh one; so is the
            # renewal of a parked lease. Where progress is demanded, it may end before its TTL.
            fresh = call.name in ("acquire", "renew") and not call.answer.get("replayed")
            fresh = fresh and not call.asked.get("session_id")
            fresh = fresh and not (life is not None and (life.progress_ms or life.parked))
            length_ms = max(lease["ttl_ms"] if fresh else 0, lease["expires_in_ms"])
            ends = call.answered_attempt_at + length_ms / 1000 / slack
            if place not in until or ends > until[place][0]:
                until[place] = (ends, call)
    return until


def _parked_since(facts: Facts, life: Life, call: CallRecord) -> bool:
    """Whether the lease was parked after that answer was made, or perhaps after: the limit counts then."""
    if not life.parked:
        return False
    parked_at = facts.applied_at[life.parked[-1]]
    return parked_at > call.returned_at if call.name == "park" else parked_at >= call.invoked_at


def one_believer_at_a_time(facts: Facts) -> Findings:
    """6: at any true instant at most one handle on a key, or on a slot of a pool, says that it holds, or
    readers of one phase alone do.

    A break or a handover takes a lease from its holder without asking: from there on its belief does not
    count, nor does one that begins only then.
    """
    if not facts.history.rates_kept:
        return 0
    looked = 0
    for key, beliefs in _beliefs(facts).items():
        looked += len(beliefs)
        last: tuple[float, Belief] | None = None
        for belief in sorted(beliefs, key=lambda belief: belief.began_at):
            ended_at = min(belief.ended_at, _taken_away_at(facts, belief))
            if ended_at <= belief.began_at:
                continue
            if last is not None and belief.began_at < last[0] and belief.token != last[1].token:
                other = last[1]
                yield Wrong(
                    f"{belief.client} believes in token {belief.token} of {key[1]} from "
                    f"{belief.began_at:.3f} s while {other.client} believes in {other.token} until "
                    f"{last[0]:.3f} s",
                    key,
                )
            if last is None or ended_at > last[0]:
                last = (ended_at, belief)
    return looked


def no_belief_outlives_the_next_grant(facts: Facts) -> Findings:
    """6: a holder stops believing before the key is granted to anybody else, whoever knows of it."""
    if not facts.history.rates_kept:
        return 0
    looked = 0
    for key, beliefs in _beliefs(facts).items():
        lives = [life for life in facts.by_guard.get(key, []) if not life.joined]
        after = {life.token: later for life, later in itertools.pairwise(lives)}
        for belief in beliefs:
            later = after.get(belief.token)
            if later is None or _taken_away_at(facts, belief) != NEVER:
                continue
            looked += 1
            if belief.ended_at > later.began_at:
                yield Wrong(
                    f"{belief.client} believes in token {belief.token} of {key[1]} until "
                    f"{belief.ended_at:.3f} s, but token {later.token} was granted at {later.began_at:.3f} s",
                    key,
                )
    return looked


def _beliefs(facts: Facts) -> dict[Key, list[Belief]]:
    """By whose tokens are compared: readers and writers of a key are together, slots of a pool are apart."""
    by_key: dict[Key, list[Belief]] = {}
    for belief in facts.history.beliefs:
        by_key.setdefault(guard_of(_place(belief)), []).append(belief)
    return by_key


def _place(belief: Belief) -> Key:
    return (belief.tenant, belief.place or belief.key)


def _taken_away_at(facts: Facts, belief: Belief) -> float:
    life = facts.life(_place(belief), belief.token)
    return life.ended_at if life is not None and life.ending in TAKEN_AWAY else NEVER


def belief_follows_a_grant(facts: Facts) -> Iterator[Wrong]:
    """Beliefs in what the log never granted, or not yet."""
    for key, beliefs in _beliefs(facts).items():
        for belief in beliefs:
            life = facts.life(_place(belief), belief.token)
            if life is None or life.began_at > belief.began_at:
                yield Wrong(f"{belief.client} believes in token {belief.token} of {key[1]}, not granted", key)
