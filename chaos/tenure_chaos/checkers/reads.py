"""Reads: as new as everything completed before, or true pasts."""

from collections.abc import Callable, Iterator
from typing import Final

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import Findings, Key, Wrong, called_key, told_value
from tenure_chaos.history import CallRecord

NAMES: Final = ("get", "queue", "list", "record", "validate")


def linearizable_reads_are_new(facts: Facts) -> Findings:
    """14: a linearizable read tells what was so after some effect between its call and its answer: it misses
    nothing that had been done before it was asked, and foresees nothing.
    """
    looked = 0
    if not facts.effects:
        return 0
    for call in _reads(facts):
        if call.asked.get("consistency") == "stale":
            continue
        looked += 1
        if (what := _untrue(facts, call, *facts.window(call))) is not None:
            yield Wrong(f"call {call.number} {call.name} was told {what}, at no time of the call", what.key)
    return looked


def stale_reads_are_true_pasts(facts: Facts) -> Findings:
    """14: a stale read tells what was so at the index that it names, or at some time before its answer."""
    looked = 0
    if not facts.effects:
        return 0
    for call in _reads(facts):
        if call.asked.get("consistency") != "stale":
            continue
        looked += 1
        last = facts.window(call)[1]
        index = call.answer.get("applied_index")
        at = facts.last_of_index(index) if index else None
        if at is not None and at > last:
            yield Wrong(f"call {call.number} {call.name} was told of index {index}, not applied by then")
        elif (what := _untrue(facts, call, *((-1, last) if at is None else (at, at)))) is not None:
            yield Wrong(
                f"call {call.number} {call.name} was told {what}, at no time up to its answer", what.key
            )
    return looked


def stale_reads_never_go_back(facts: Facts) -> Findings:
    """14: within a session no read tells of an older index than one that was answered before it was asked."""
    newest: dict[str, list[CallRecord]] = {}
    for call in facts.history.calls:
        if call.session and call.answer.get("applied_index"):
            newest.setdefault(call.session, []).append(call)
    looked = 0
    for session, calls in newest.items():
        looked += len(calls)
        returned = sorted(calls, key=lambda call: call.returned_at)
        done, greatest = 0, 0
        for call in sorted(calls, key=lambda call: call.invoked_at):
            while returned[done].returned_at < call.invoked_at:
                greatest = max(greatest, returned[done].answer["applied_index"])
                done += 1
            if call.answer["applied_index"] < greatest:
                index = call.answer["applied_index"]
                yield Wrong(f"call {call.number} of session {session} was told {index} after {greatest}")
    return looked


class _Untrue(str):
    """What was told and never so, of a key."""

    key: Key | None = None


def _reads(facts: Facts) -> Iterator[CallRecord]:
    for name in NAMES:
        for call in facts.calls.get(name, ()):
            if call.outcome == "ok" or (call.outcome == "refused" and call.code in ("not_held", "no_record")):
                yield call


def _untrue(facts: Facts, call: CallRecord, first: int, last: int) -> _Untrue | None:
    for key, what, true in _told(facts, call):
        if not true(first, last):
            untrue = _Untrue(f"of {key[1]}: {what}")
            untrue.key = key
            return untrue
    return None


Claim = tuple[Key, str, Callable[[int, int], bool]]


def _told(facts: Facts, call: CallRecord) -> Iterator[Claim]:
    """What the read's answer claims: of which key, in words, and whether it was so after some effect from one
    to another.
    """
    key = called_key(call)
    match call.name:
        case "get" if call.outcome == "refused":
            yield _free(facts, key)
        case "get":
            yield _held(facts, key, call.answer["token"])
        case "queue":
            for holder in call.answer["holders"]:
                yield _held(facts, key, holder["token"])
            if not call.answer["holders"]:
                yield _free(facts, key)
        case "list":
            for lease in call.answer["leases"]:
                yield _held(facts, (call.tenant, lease["key"]), lease["token"])
        case "record" if call.outcome == "refused":
            yield _recorded(facts, key, None)
        case "record":
            yield _recorded(
                facts, key, (call.answer["revision"], call.answer["token"], told_value(call.answer))
            )
        case "validate":
            yield from _validated(facts, key, call)


def _held(facts: Facts, key: Key, token: int) -> Claim:
    lives = facts.lives_of(key, token)

    def true(first: int, last: int) -> bool:
        # Of a token that nobody was granted on this key other properties speak.
        return not lives or any(
            life.holds_between(first, last) and not facts.over(life, max(first, life.began)) for life in lives
        )

    return key, f"token {token} holds", true


def _free(facts: Facts, key: Key) -> Claim:
    return key, "nobody holds", lambda first, last: facts.free_between(key, first, last)


def _recorded(facts: Facts, key: Key, told: tuple[int, int, str] | None) -> Claim:
    def true(first: int, last: int) -> bool:
        states = facts.versions_between(key, first, last)
        return any(
            told is None if state is None else told == (state.revision, state.token, state.value)
            for state in states
        )

    return key, "no record" if told is None else f"record {told[2]!r} of token {told[1]}", true


def _validated(facts: Facts, key: Key, call: CallRecord) -> Iterator[Claim]:
    token = call.asked.get("token")
    if token is None or key in facts.crowded:
        return
    if call.answer["valid"]:
        yield _held(facts, key, token)
    elif call.answer["reason"] == "not_live":
        life = facts.life(key, token)
        if life is not None:
            held = life

            def over(first: int, last: int) -> bool:
                unclaimed = held.claimed > first or held.rests(last)
                return unclaimed or first < held.began or facts.over(held, last)

            yield key, f"token {token} does not live", over
    elif call.answer["reason"] == "stale_token":
        life = facts.life(key, token)
        if life is not None:
            own = life

            def superseded(first: int, last: int) -> bool:
                if own.began > first:
                    return True  # A token that nobody was granted yet is stale, or not live.
                later = any(other.token > token and other.began <= last for other in facts.by_key[key])
                return later or any(own.began <= n <= last for n in facts.breaks.get(key, ()))

            yield key, f"token {token} is stale", superseded
