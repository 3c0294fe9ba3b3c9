"""Every key's calls, as clients saw them, are linearizable against the model of one key.

A call without a known outcome is resolved from the log: if the log has its effect, the call had that effect
when the first node applied it; if not, it had none. Grants that no client was told of (the answer was lost, a
waiter had gone) are operations too. That they have a moment and not a span is sound, because the order of the
log, each entry at its first application, is one that a right history must allow; and it keeps the search
short where many such operations would fit nearly anywhere.

A slot of a pool is a key of its own; of pools as such, and of keys with readers, nothing is said here: what
they promise is told along the log (sharing.py). A handover, and taking up a parked lease, is the end of a
grant and the next grant.
"""

from collections.abc import Callable
from typing import Final

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.linearizability import Operation, check
from tenure_chaos.checkers.pools import guard_was_forgotten
from tenure_chaos.checkers.reading import (
    ENDINGS,
    Findings,
    Key,
    Wrong,
    guard_of,
    key_of,
    leases_told,
    place_of,
    refused_key,
    text,
    told_value,
)
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
        self._facts = facts
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
            if call.outcome in ("ok", "refused") and call.asked.get("consistency") != "stale":
                self._add_call(call)
        for n, effect in enumerate(facts.effects):
            self._add_untold(n, effect)

    def _put(self, key: Key, pair: Pair, invoked_at: float, returned_at: float) -> None:
        if key in self._facts.crowded or guard_of(key) in self._facts.crowded:
            return
        self.by_key.setdefault(key, []).append(Operation(*pair, invoked_at, returned_at))

    def _add_call(self, call: CallRecord) -> None:
        if call.name == "acquire" and call.outcome == "ok":
            for lease in leases_told(call):
                self._add_grant(call, place_of(lease, call.tenant), lease["token"], self._since(call))
        elif call.name in ("handover", "unpark"):
            if call.outcome == "ok" and not call.answer.get("replayed"):
                self._add_succession(call)
        elif call.asked.get("whole_set"):
            return  # What it released is seen in the log.
        elif call.name in _READERS and (call.name == "acquire" or "key" in call.asked):
            pair = _READERS[call.name](call)
            if pair is not None:
                key = refused_key(call) if call.name == "acquire" else self._facts.place(call)
                rested = pair[1].how == "not_live" and self._rested(key, pair[0].token)
                if not rested and not guard_was_forgotten(self._facts, call):
                    self._put(key, pair, call.invoked_at, call.returned_at)

    def _since(self, call: CallRecord) -> float:
        # A request that was queued may have been granted before the poll that was told of it, and another
        # request of the same session may be the first that was told.
        return self._first_asked.get((call.tenant, call.asked.get("request_id") or ""), call.invoked_at)

    def _add_grant(self, call: CallRecord, place: Key, token: int, since: float) -> None:
        asked, how = Asked("acquire"), "again"
        if (place, token) not in self._told:
            self._told.add((place, token))
            how = "granted"
            since = min(since, self._began_at.get((place, token), since))
        else:
            since = call.invoked_at
        self._put(place, (asked, Answered(how, token)), since, call.returned_at)

    def _add_succession(self, call: CallRecord) -> None:
        """The end of one token and the beginning of the next."""
        [lease] = leases_told(call)
        place, token = place_of(lease, call.tenant), lease["token"]
        self._put(
            place,
            (Asked("release", call.asked["token"]), Answered("released")),
            call.invoked_at,
            call.returned_at,
        )
        if (place, token) not in self._told:
            self._add_grant(call, place, token, call.invoked_at)

    def _rested(self, key: Key, token: int) -> bool:
        """Whether the grant was ever parked: then it may hold and not live for commits."""
        life = self._facts.life(key, token)
        return life is not None and bool(life.parked)

    def _add_untold(self, n: int, effect: Effect) -> None:
        """What the log did that no answer told of."""
        at = effect.first_applied_at
        for event in effect.events:
            key, kind, token = place_of(event), event["kind"], event["token"]
            if kind in ("granted", "unparked"):
                if (key, token) not in self._told:
                    if kind == "unparked":
                        self._put(
                            key, (Asked("release", self._before(key, token)), Answered("released")), at, at
                        )
                    self._put(key, (Asked("acquire"), Answered("granted", token)), at, at)
            elif n in self._acknowledged and not effect.fields.get("whole_set"):
                continue
            elif kind in ("released", "handed_over"):
                self._put(key, (Asked("release", token), Answered("released")), at, at)
            elif kind == "committed":
                key = self._facts.guard_written(effect)
                self._put(key, (_asked_by(effect), Answered("accepted")), at, at)
            elif kind == "record_deleted":
                self._put(key_of(event), (Asked("delete"), Answered("deleted")), at, at)
        if effect.result == "Broken":
            key = (effect.fields["tenant"], effect.fields["key"])
            if key in self._facts.pools:
                self._add_break_of_pool(key, effect)
            elif n not in self._acknowledged:
                tokens = [lease["token"] for lease in effect.result_fields["leases"]]
                self._put(key, (Asked("break"), Answered("broken", tokens[0] if tokens else 0)), at, at)

    def _add_break_of_pool(self, key: Key, effect: Effect) -> None:
        """It ends whatever was issued for any slot."""
        ended = {place_of(event): event["token"] for event in effect.events if event["kind"] in ENDINGS}
        at = effect.first_applied_at
        for place in dict.fromkeys(life.key for life in self._facts.by_raw[key]):
            self._put(place, (Asked("break"), Answered("broken", ended.get(place, 0))), at, at)

    def _before(self, place: Key, token: int) -> int:
        """The token of the grant before that one."""
        before = [life.token for life in self._facts.by_key[place] if life.token < token]
        return before[-1] if before else 0


def _asked_by(effect: Effect) -> Asked:
    fields = effect.fields
    value = None if fields["value"] is None else text(fields["value"])
    return Asked("commit", fields["token"], value, fields["require_live"], fields["mode"], fields["seq"] or 0)


def _read_acquire(call: CallRecord) -> Pair | None:
    holder = call.answer.get("holder")
    asked = Asked("acquire")
    return (asked, Answered("held", holder["token"] if holder else 0)) if call.code == "held" else None


def _read_renew(call: CallRecord) -> Pair | None:
    if "token" not in call.asked or (call.outcome == "refused" and call.code != "lost"):
        return None
    if call.outcome != "ok":
        return Asked("renew", call.asked["token"]), Answered("lost")
    # A renewal names the lease, whose token may have changed while it was parked.
    lease = call.answer.get("lease", call.asked)
    return Asked("renew", lease["token"]), Answered("renewed")


def _read_release(call: CallRecord) -> Pair | None:
    if "token" not in call.asked or (call.outcome == "refused" and call.code != "lost"):
        return None
    released = call.outcome == "ok" and call.answer.get("status") == "released"
    return Asked("release", call.asked["token"]), Answered("released" if released else "over")


def _read_commit(call: CallRecord) -> Pair | None:
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


def _read_break(call: CallRecord) -> Pair | None:
    if call.outcome != "ok":
        return None
    broken = call.answer["broken"]
    return Asked("break"), Answered("broken", broken[0]["token"] if broken else 0)


def _read_get(call: CallRecord) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("get"), Answered("free")) if call.code == "not_held" else None
    return Asked("get"), Answered("held", call.answer["token"])


def _read_queue(call: CallRecord) -> Pair | None:
    if call.outcome != "ok":
        return None
    holders = call.answer["holders"]
    return Asked("get"), Answered("held", holders[0]["token"]) if holders else Answered("free")


def _read_record(call: CallRecord) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("record"), Answered("none")) if call.code == "no_record" else None
    return Asked("record"), Answered("record", call.answer["token"], told_value(call.answer))


def _read_delete(call: CallRecord) -> Pair | None:
    if call.outcome == "refused":
        return (Asked("record"), Answered("none")) if call.code == "no_record" else None
    return Asked("delete"), Answered("deleted")


_READERS: Final[dict[str, Callable[[CallRecord], Pair | None]]] = {
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
