"""Every key's calls, as clients saw them, are linearizable against the model of one key.

A call without a known outcome is resolved from the log: if the log has its effect, the call had that effect
at some time after it was made; if not, it had none. Grants that no client was told of (the answer was lost,
a waiter had gone) are operations too.
"""

from collections.abc import Iterator
from typing import Any

from tenure_chaos.checkers.linearizability import NEVER, Operation, Verdict, check
from tenure_chaos.history import CallRecord, Effect, History
from tenure_chaos.model import KEY, Answered, Asked

STEPS_MAX = 200_000


def linearizable_per_key(history: History) -> Iterator[str]:
    """Yields the keys whose calls no order explains, each with where the search got stuck."""
    for key, operations in sorted(operations_by_key(history).items()):
        outcome = check(KEY, operations, steps_max=STEPS_MAX)
        if outcome.verdict == "not_linearizable":
            stuck = [operations[number] for number in range(len(operations)) if number not in outcome.deepest]
            first = min(stuck, key=lambda operation: operation.returned_at)
            yield f"{key}: no order of its {len(operations)} calls explains {first}"


def verdicts(history: History) -> dict[Verdict, int]:
    """How many keys were decided which way; an "unknown" counts as unchecked and must be reported."""
    counts: dict[Verdict, int] = {"linearizable": 0, "not_linearizable": 0, "unknown": 0}
    for operations in operations_by_key(history).values():
        counts[check(KEY, operations, steps_max=STEPS_MAX).verdict] += 1
    return counts


def operations_by_key(history: History) -> dict[str, list[Operation]]:
    told: set[tuple[str, int]] = set()
    first_asked = _first_asked(history)
    by_key: dict[str, list[Operation]] = {}

    def put(key: str, asked: Asked, answer: Answered | None, invoked: float, returned: float) -> None:
        by_key.setdefault(key, []).append(Operation(asked, answer, invoked, returned))

    for call in sorted(history.calls, key=lambda call: call.returned_at):
        key = call.asked.get("key")
        read = _READERS.get(call.name)
        if key is None or read is None:
            continue
        if call.outcome in ("ok", "refused"):
            pair = read(call, told)
            if pair is not None:
                # A request that was queued may have been granted before the poll that was told of it.
                queued = pair[1].how == "granted" and call.asked.get("request_id")
                since = first_asked[queued] if queued else call.invoked_at
                put(key, *pair, since, call.returned_at)
    _add_untold(history, told, first_asked, put)
    return by_key


def _first_asked(history: History) -> dict[str, float]:
    """When each acquire was asked for first."""
    first: dict[str, float] = {}
    for call in history.calls:
        request_id = call.asked.get("request_id")
        if call.name == "acquire" and request_id is not None:
            first[request_id] = min(first.get(request_id, NEVER), call.invoked_at)
    return first


def _add_untold(
    history: History, told: set[tuple[str, int]], first_asked: dict[str, float], put: Any
) -> None:
    """What the log did that no answer told of: it happened when it was applied or before, and after it was
    asked for.
    """
    acknowledged: set[tuple[str, str, int]] = set()
    for call in history.calls:
        if call.outcome == "ok" and call.name in ("release", "commit"):
            acknowledged.add((call.name, call.asked["key"], _mark(call)))
        if call.outcome == "ok" and call.name == "break":
            for broken in call.answer["broken"]:
                acknowledged.add(("break", call.asked["key"], broken["token"]))
    for effect in history.effects:
        at = effect.first_applied_at
        for event in effect.events:
            key, kind, token = event["key"], event["kind"], event["token"]
            if kind == "granted" and (key, token) not in told:
                since = first_asked.get(_request_of(effect, token), 0.0)
                put(key, Asked("acquire"), Answered("granted", token), since, at)
            elif kind == "released" and ("release", key, token) not in acknowledged:
                put(key, Asked("release", token), Answered("released"), 0.0, NEVER)
            elif kind == "broken" and ("break", key, token) not in acknowledged:
                put(key, Asked("break"), Answered("broken", token), 0.0, NEVER)
            elif kind == "committed":
                value = (effect.fields["value"] or b"").decode()
                if ("commit", key, hash(value)) not in acknowledged:
                    live = effect.fields["require_live"]
                    put(key, Asked("commit", token, value, live), Answered("accepted"), 0.0, at)


def _mark(call: CallRecord) -> int:
    return hash(call.asked["value"]) if call.name == "commit" else int(call.asked["token"])


def _request_of(effect: Effect, token: int) -> str:
    for grant in effect.result_fields.get("grants", ()) if effect.result == "Granted" else ():
        if grant["lease"]["token"] == token:
            return str(grant["lease"]["request_id"])
    return ""


def _read_acquire(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    asked = Asked("acquire")
    if call.outcome == "refused":
        if call.code != "held":
            return None
        holder = call.answer.get("holder")
        return asked, Answered("held", holder["token"] if holder else 0)
    lease = call.answer.get("lease")
    if lease is None:
        return None
    place = (lease["key"], lease["token"])
    if place in told or call.answer.get("replayed"):
        return (
            (asked, Answered("again", lease["token"]))
            if place in told
            else _first_telling(asked, lease, told)
        )
    return _first_telling(asked, lease, told)


def _first_telling(asked: Asked, lease: dict[str, Any], told: set[tuple[str, int]]) -> tuple[Asked, Answered]:
    told.add((lease["key"], lease["token"]))
    return asked, Answered("granted", lease["token"])


def _read_renew(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    if call.outcome == "refused" and call.code != "lost":
        return None
    return Asked("renew", call.asked["token"]), Answered("renewed" if call.outcome == "ok" else "lost")


def _read_release(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    if call.outcome == "refused" and call.code != "lost":
        return None
    released = call.outcome == "ok" and call.answer.get("status") == "released"
    return Asked("release", call.asked["token"]), Answered("released" if released else "over")


def _read_commit(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    asked = Asked("commit", call.asked["token"], call.asked["value"], call.asked.get("require_live", True))
    if call.outcome == "ok":
        return asked, Answered("accepted")
    return (
        (asked, Answered(call.code))
        if call.code in ("stale_token", "not_live") and not call.doubtful
        else None
    )


def _read_break(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    if call.outcome != "ok":
        return None
    broken = call.answer["broken"]
    return Asked("break"), Answered("broken", broken[0]["token"] if broken else 0)


def _read_get(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    if call.outcome == "refused":
        return (Asked("get"), Answered("free")) if call.code == "not_held" else None
    return Asked("get"), Answered("held", call.answer["token"])


def _read_record(call: CallRecord, told: set[tuple[str, int]]) -> tuple[Asked, Answered] | None:
    if call.outcome == "refused":
        return (Asked("record"), Answered("none")) if call.code == "no_record" else None
    return Asked("record"), Answered("record", call.answer["token"], call.answer["value"])


_READERS = {
    "acquire": _read_acquire,
    "renew": _read_renew,
    "release": _read_release,
    "commit": _read_commit,
    "break": _read_break,
    "get": _read_get,
    "record": _read_record,
}
