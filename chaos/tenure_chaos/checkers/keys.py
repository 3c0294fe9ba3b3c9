"""Every key's calls, as clients saw them, are linearizable against the model of one key.

A call without a known outcome is resolved from the log: if the log has its effect, the call had that effect
when the first node applied it; if not, it had none. Grants that no client was told of (the answer was lost, a
waiter had gone) are operations too. That they have a moment and not a span is sound, because the order of the
log, each entry at its first application, is one that a right history must allow; and it keeps the search
short where many such operations would fit nearly anywhere.
"""

from collections.abc import Callable
from typing import Final

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.linearizability import Operation, check
from tenure_chaos.checkers.reading import Findings, Key, Wrong, called_key, text, told_value
from tenure_chaos.history import CallRecord, Effect
from tenure_chaos.model import KEY, Answered, Asked

STEPS_MAX: Final = 200_000

COMMIT_REFUSALS: Final = frozenset(("stale_token", "token_used", "seq_replayed", "not_live"))

Pair = tuple[Asked, Answered]


def linearizable_per_key(facts: Facts) -> Findings:
    """1: the calls of every key are linearizable against an independently written model of a fenced lease."""
    looked = 0
    for key, operations in sorted(operations_by_key(facts).items()):
        if key in facts.accused:
            continue
        outcome = check(KEY, operations, steps_max=STEPS_MAX)
        if outcome.verdict == "unknown":
            facts.undecided.append(f"{key[1]}: {len(operations)} calls, given up after {outcome.steps} steps")
            continue
        looked += 1
        if outcome.verdict == "not_linearizable":
            taken = set(outcome.deepest)
            stuck = [operation for number, operation in enumerate(operations) if number not in taken]
            first = min(stuck, key=lambda operation: operation.returned_at)
            yield Wrong(f"{key[1]}: no order of its {len(operations)} calls explains {first}", key)
    return looked


def operations_by_key(facts: Facts) -> dict[Key, list[Operation]]:
    """What was done to each key, told or untold, and looked at."""
    return _Operations(facts).by_key


class _Operations:
    def __init__(self, facts: Facts) -> None:
        self._began_at = {(life.key, life.token): life.began_at for life in facts.lives}
        self._told: set[tuple[Key, int]] = set()
        """Grants that a client was told of."""
        self._acknowledged = set(facts.attribution.told.values())
        """Effects that a client was told of."""
        self._first_asked: dict[tuple[str, str], float] = {}
        self.by_key: dict[Key, list[Operation]] = {}
        for call in facts.calls.get("acquire", ()):
            place = (call.tenant, call.asked.get("request_id") or "")
            self._first_asked[place] = min(self._first_asked.get(place, call.invoked_at), call.invoked_at)
        for call in sorted(facts.history.calls, key=lambda call: call.returned_at):
            if call.outcome in ("ok", "refused") and call.name in _READERS and "key" in call.asked:
                self._add_call(call)
        for n, effect in enumerate(facts.effects):
            self._add_untold(n, effect)

    def _put(self, key: Key, pair: Pair, invoked_at: float, returned_at: float) -> None:
        self.by_key.setdefault(key, []).append(Operation(*pair, invoked_at, returned_at))

    def _add_call(self, call: CallRecord) -> None:
        if call.asked.get("consistency") == "stale":
            return
        pair = _READERS[call.name](call, self._told)
        if pair is None:
            return
        since = call.invoked_at
        if pair[1].how == "granted":
            # A request that was queued may have been granted before the poll that was told of it, and another
            # request of the same session may be the first that was told.
            since = self._first_asked.get((call.tenant, call.asked.get("request_id") or ""), since)
            since = min(since, self._began_at.get((called_key(call), pair[1].token), since))
        self._put(called_key(call), pair, since, call.returned_at)

    def _add_untold(self, n: int, effect: Effect) -> None:
        """What the log did that no answer told of."""
        at = effect.first_applied_at
        for event in effect.events:
            key, kind, token = (event["tenant"], event["key"]), event["kind"], event["token"]
            if kind == "granted":
                if (key, token) not in self._told:
                    self._put(key, (Asked("acquire"), Answered("granted", token)), at, at)
            elif n in self._acknowledged:
                continue
            elif kind == "released":
                self._put(key, (Asked("release", token), Answered("released")), at, at)
            elif kind == "committed":
                self._put(key, (_asked_by(effect), Answered("accepted")), at, at)
            elif kind == "record_deleted":
                self._put(key, (Asked("delete"), Answered("deleted")), at, at)
        if effect.result == "Broken" and n not in self._acknowledged:
            tokens = [lease["token"] for lease in effect.result_fields["leases"]]
            key = (effect.fields["tenant"], effect.fields["key"])
            self._put(key, (Asked("break"), Answered("broken", tokens[0] if tokens else 0)), at, at)


def _asked_by(effect: Effect) -> Asked:
    fields = effect.fields
    value = None if fields["value"] is None else text(fields["value"])
    return Asked("commit", fields["token"], value, fields["require_live"], fields["mode"], fields["seq"] or 0)


def _read_acquire(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    asked = Asked("acquire")
    if call.outcome == "refused":
        holder = call.answer.get("holder")
        return (asked, Answered("held", holder["token"] if holder else 0)) if call.code == "held" else None
    lease = call.answer.get("lease")
    if lease is None:
        return None
    place = (called_key(call), lease["token"])
    if place in told:
        return asked, Answered("again", lease["token"])
    told.add(place)
    return asked, Answered("granted", lease["token"])


def _read_renew(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if "token" not in call.asked or (call.outcome == "refused" and call.code != "lost"):
        return None
    return Asked("renew", call.asked["token"]), Answered("renewed" if call.outcome == "ok" else "lost")


def _read_release(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if "token" not in call.asked or (call.outcome == "refused" and call.code != "lost"):
        return None
    released = call.outcome == "ok" and call.answer.get("status") == "released"
    return Asked("release", call.asked["token"]), Answered("released" if released else "over")


def _read_commit(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    sent = call.asked
    asked = Asked(
        "commit",
        sent["token"],
        sent.get("value"),
        sent.get("require_live", True),
        sent.get("mode", "current"),
        sent.get("seq") or 0,
    )
    if call.outcome == "ok":
        return asked, Answered("accepted")
    return (asked, Answered(call.code)) if call.code in COMMIT_REFUSALS and not call.doubtful else None


def _read_break(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if call.outcome != "ok":
        return None
    broken = call.answer["broken"]
    return Asked("break"), Answered("broken", broken[0]["token"] if broken else 0)


def _read_get(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("get"), Answered("free")) if call.code == "not_held" else None
    return Asked("get"), Answered("held", call.answer["token"])


def _read_queue(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if call.outcome != "ok":
        return None
    holders = call.answer["holders"]
    return Asked("get"), Answered("held", holders[0]["token"]) if holders else Answered("free")


def _read_record(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("record"), Answered("none")) if call.code == "no_record" else None
    return Asked("record"), Answered("record", call.answer["token"], told_value(call.answer))


def _read_delete(call: CallRecord, told: set[tuple[Key, int]]) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("record"), Answered("none")) if call.code == "no_record" else None
    return Asked("delete"), Answered("deleted")


_READERS: Final[dict[str, Callable[[CallRecord, set[tuple[Key, int]]], Pair | None]]] = {
    "acquire": _read_acquire,
    "renew": _read_renew,
    "release": _read_release,
    "commit": _read_commit,
    "break": _read_break,
    "get": _read_get,
    "queue": _read_queue,
    "record": _read_record,
    "delete_record": _read_delete,
}
