"""What requests do: once at most, not at all if they were refused, and nothing without one."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

from tenure_chaos.checkers.attribution import Unexplained, request_of_call, request_of_effect
from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.holding import belief_follows_a_grant
from tenure_chaos.checkers.reading import (
    MEMORY_MS,
    Findings,
    Wrong,
    called_key,
    key_of,
    leases_told,
    refused_key,
)
from tenure_chaos.history import CallRecord, Effect


def a_request_is_granted_once(facts: Facts) -> Findings:
    """10: each request_id is granted at most one lease, or one of each key, whatever the retries, leaders and
    snapshots.
    """
    granted: dict[Hashable, tuple[str, int]] = {}
    looked = 0
    for effect in facts.effects:
        if effect.result != "Granted" or effect.result_fields["replayed"]:
            continue
        for request, lease in _requests_granted(effect):
            looked += 1
            first = granted.setdefault((request, lease["key"]), (lease["lease_id"], lease["token"]))
            if first[0] != lease["lease_id"]:
                yield Wrong(
                    f"{lease['request_id']} was granted token {first[1]} and token {lease['token']}",
                    key_of(lease),
                )
    return looked


def _requests_granted(effect: Effect) -> Iterator[tuple[Hashable, dict[str, Any]]]:
    """Requests that an effect grants, each with its lease."""
    for grant in effect.result_fields["grants"]:
        lease, session = grant["lease"], grant["session"]
        scope = "" if session["private"] else session["session_id"]
        yield (lease["tenant"], scope, lease["request_id"]), lease


def what_was_given_up_is_granted_no_more(facts: Facts) -> Findings:
    """10: an acquire that arrives after it was given up is not granted, while that is remembered."""
    given_up_ms: dict[Hashable, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        fields = effect.fields
        if effect.command == "Abandon" and fields["poll_deadline_ms"] is None:
            given_up_ms[fields["tenant"], fields["session_id"] or "", fields["request_id"]] = facts.now_ms[n]
        elif effect.result == "Granted" and not effect.result_fields["replayed"]:
            for request, lease in _requests_granted(effect):
                looked += request in given_up_ms
                if facts.now_ms[n] - given_up_ms.get(request, -MEMORY_MS) < MEMORY_MS:
                    yield Wrong(
                        f"effect {n} grants {lease['request_id']}, which had been given up", key_of(lease)
                    )
    return looked + len(given_up_ms)


def a_commit_is_accepted_once(facts: Facts) -> Findings:
    """10: each op_id is accepted at most once while it is remembered, and each commit without one as often as
    it was asked for.
    """
    asked: Counter[Hashable] = Counter(
        request for call in facts.calls.get("commit", ()) if (request := request_of_call(call)) is not None
    )
    accepted: Counter[Hashable] = Counter()
    accepted_ms: dict[Hashable, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            if event["kind"] != "committed":
                continue
            looked += 1
            request = request_of_effect(effect)
            now_ms = facts.now_ms[n]
            if effect.fields["op_id"] and now_ms - accepted_ms.get(request, now_ms) >= MEMORY_MS:
                accepted[request] = 0
            accepted_ms[request] = now_ms
            accepted[request] += 1
            most = 1 if effect.fields["op_id"] else max(1, asked[request])
            if accepted[request] > most:
                yield Wrong(f"effect {n} accepts {effect.fields['value']!r} once more", key_of(event))
    return looked


def nothing_happens_after_the_answer(facts: Facts) -> Findings:
    """10: a request whose every attempt is accounted for has no effect after its answer."""
    for found in _unexplained(facts, "answered"):
        assert found.call is not None
        yield Wrong(
            f"effect {found.n}, {found.effect.command} {found.effect.result}, came after call "
            f"{found.call.number} had been answered",
            _key(found.effect),
        )
    return facts.attribution.looked_at


def what_failed_has_no_effect(facts: Facts) -> Findings:
    """11: what was refused, or was said not to have been executed, has no effect in the log, ever."""
    for found in _unexplained(facts, "refused"):
        assert found.call is not None
        yield Wrong(
            f"effect {found.n}, {found.effect.command} {found.effect.result}, is of call "
            f"{found.call.number}, which was answered {found.call.outcome} {found.call.code}",
            _key(found.effect),
        )
    return sum(call.outcome in ("refused", "unavailable") for call in facts.history.calls)


def nobody_is_granted_what_was_refused(facts: Facts) -> Findings:
    """11: a waiter whose request was refused in the end, for certain, is not granted later; and no acquire is
    refused as held that was granted meanwhile.
    """
    looked = 0
    for life in facts.lives:
        if not life.request_id:
            continue
        scope = "" if life.session_id == life.lease_id else life.session_id
        calls = facts.attribution.calls_of_request(("acquire", life.key[0], scope, life.request_id))
        looked += bool(calls)
        refused = _refused_meanwhile(life, calls) or _refused_before(life, calls)
        if refused is not None:
            yield Wrong(
                f"effect {life.began} grants {life.name} to {life.request_id}, which call {refused.number} "
                f"was refused ({refused.code})",
                life.key,
            )
    return looked


def _refused_meanwhile(life: Life, calls: list[CallRecord]) -> CallRecord | None:
    for call in calls:
        held = call.outcome == "refused" and call.code == "held" and not call.doubtful
        if held and call.invoked_at <= life.began_at <= call.returned_at:
            return call
    return None


def _refused_before(life: Life, calls: list[CallRecord]) -> CallRecord | None:
    """The call that ended the request before the grant, if nothing of it was under way any more."""
    before = [call for call in calls if call.returned_at < life.began_at]
    under_way = len(before) < sum(call.invoked_at <= life.began_at for call in calls)
    if not before or under_way or any(call.doubtful or call.outcome == "unknown" for call in before):
        return None
    last = max(before, key=lambda call: call.returned_at)
    return last if last.outcome == "refused" else None


def every_effect_was_asked_for(facts: Facts) -> Findings:
    """12: every grant, and every other effect, comes from a request of that tenant that was made before."""
    for found in _unexplained(facts, "never asked"):
        yield Wrong(
            f"effect {found.n}, {found.effect.command} {found.effect.result}, was never asked for: "
            f"{request_of_effect(found.effect)}",
            _key(found.effect),
        )
    return facts.attribution.looked_at


def every_token_seen_was_granted(facts: Facts) -> Findings:
    """12: every token that an answer names, or a handle believes in, was granted by the log, of that key.
    When it held is for the properties of reads and reasons.
    """
    looked = 0
    if not facts.effects:
        return 0
    for call, key_name, token in _seen(facts):
        looked += 1
        key = (call.tenant, key_name)
        if facts.life(key, token) is None and not facts.granted_elsewhere(key, token):
            yield Wrong(
                f"call {call.number} {call.name} was told token {token} of {key[1]}, not granted", key
            )
    yield from belief_follows_a_grant(facts)
    return looked + len(facts.history.beliefs)


def _seen(facts: Facts) -> Iterator[tuple[CallRecord, str, int]]:
    """(call, key, token) of every lease that an answer tells of somebody else's; those that it tells of the
    caller's own are promises that checkers.durability looks at.
    """
    for call in facts.history.calls:
        key = called_key(call)[1]
        if call.name == "get" and call.outcome == "ok":
            yield call, call.answer["key"], call.answer["token"]
        elif call.name == "break" and call.outcome == "ok":
            for broken in call.answer["broken"]:
                yield call, key, broken["token"]
        elif call.name == "queue" and call.outcome == "ok":
            for holder in call.answer["holders"]:
                yield call, key, holder["token"]
        elif call.name == "list" and call.outcome == "ok":
            for lease in call.answer["leases"]:
                yield call, lease["key"], lease["token"]
        elif call.name == "acquire" and (holder := call.answer.get("holder")):
            yield call, refused_key(call)[1], holder["token"]
        elif call.name in ("handover", "park", "unpark") and call.outcome == "ok":
            for lease in leases_told(call):
                yield call, lease["key"], lease["token"]


def _unexplained(facts: Facts, whence: str) -> Iterator[Unexplained]:
    if facts.history.calls:
        yield from (found for found in facts.unexplained if found.whence == whence)


def _key(effect: Effect) -> tuple[str, str] | None:
    if effect.events:
        return key_of(effect.events[0])
    for name in ("key", "keys"):
        if name in effect.fields:
            key = effect.fields[name]
            return (effect.fields["tenant"], key if isinstance(key, str) else key[0])
    return None
