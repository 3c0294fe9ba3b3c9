"""The properties of a history, one function each. Every function yields what it found wrong."""

from collections.abc import Callable, Iterator
from typing import Any

from tenure_chaos.checkers.keys import linearizable_per_key
from tenure_chaos.history import CallRecord, Effect, History

ENDINGS = ("released", "expired", "broken")


def grants(history: History) -> Iterator[tuple[Effect, dict[str, Any]]]:
    for effect in history.effects:
        for event in effect.events:
            if event["kind"] == "granted":
                yield effect, event


def tokens_rise(history: History) -> Iterator[str]:
    """No two grants carry the same token, and along the log tokens rise."""
    last = 0
    for effect, event in grants(history):
        if event["token"] <= last:
            yield f"entry {effect.index} grants {event['key']} with token {event['token']} after {last}"
        last = event["token"]


def stamps_never_fall(history: History) -> Iterator[str]:
    """Along the log stamps never fall, and between two of them no more time passes than really did."""
    bound = 1 + history.clock_rate_bound
    first: Effect | None = None
    last = 0
    for effect in history.effects:
        if effect.at_ms < last:
            yield f"entry {effect.index} is stamped {effect.at_ms} after {last}"
        last = effect.at_ms
        if first is None:
            first = effect
        elapsed_ms = (effect.first_applied_at - 0.0) * 1000 * bound
        if effect.at_ms > elapsed_ms + 1:
            yield f"entry {effect.index} is stamped {effect.at_ms}, but only {elapsed_ms:.0f} ms have passed"


def one_holder_at_a_time(history: History) -> Iterator[str]:
    """In log order a key is granted only when the grant before has ended."""
    held: dict[str, int] = {}
    for effect in history.effects:
        for event in effect.events:
            key, kind, token = event["key"], event["kind"], event["token"]
            if kind == "granted":
                if key in held:
                    yield f"entry {effect.index} grants {key} as {token} while {held[key]} holds"
                held[key] = token
            elif kind in ENDINGS and held.get(key) == token:
                del held[key]


def acknowledged_grants_are_in_the_log(history: History) -> Iterator[str]:
    """Every grant that a client was told of was applied, with that token, before it was told."""
    granted = {(event["key"], event["token"]): effect for effect, event in grants(history)}
    for call in answered(history, "acquire"):
        lease = call.answer.get("lease")
        if lease is None:
            continue
        effect = granted.get((lease["key"], lease["token"]))
        if effect is None:
            yield f"call {call.number}: no entry granted {lease['key']} with token {lease['token']}"
        elif effect.first_applied_at > call.returned_at:
            yield f"call {call.number} was told of token {lease['token']} before it was applied"


def tokens_follow_real_time(history: History) -> Iterator[str]:
    """A grant that was answered before another was asked for has the lower token, key by key."""
    told: dict[str, list[tuple[float, float, int, int]]] = {}
    for call in answered(history, "acquire"):
        lease = call.answer.get("lease")
        if lease is not None and not call.answer.get("replayed"):
            told.setdefault(lease["key"], []).append(
                (call.invoked_at, call.returned_at, lease["token"], call.number)
            )
    for key, items in told.items():
        for _, returned, token, number in items:
            for invoked, _, later_token, later_number in items:
                if returned < invoked and later_token <= token:
                    yield f"{key}: call {later_number} got {later_token} after call {number} got {token}"


def no_early_takeover(history: History) -> Iterator[str]:
    """Nobody else is granted a key before the last acknowledged grant or renewal of its holder has run out
    by true time.
    """
    slack = 1 + history.clock_rate_bound
    until: dict[tuple[str, int], tuple[float, int]] = {}
    for call in history.calls:
        if call.outcome != "ok" or call.name not in ("acquire", "renew"):
            continue
        lease = call.answer.get("lease")
        if lease is None:
            continue
        ends = call.answered_attempt_at + lease["expires_in_ms"] / 1000 / slack
        place = (lease["key"], lease["token"])
        if ends > until.get(place, (0.0, 0))[0]:
            until[place] = (ends, call.number)
    held: dict[str, int] = {}
    for effect in history.effects:
        for event in effect.events:
            key, kind, token = event["key"], event["kind"], event["token"]
            if kind == "expired":
                ends, number = until.get((key, token), (0.0, 0))
                if effect.first_applied_at < ends - 0.002 and call_before(history, number, effect):
                    yield (
                        f"entry {effect.index} ends {token} of {key} at {effect.first_applied_at:.3f}, but "
                        f"call {number} was promised it until {ends:.3f}"
                    )
            if kind == "granted":
                held[key] = token


def call_before(history: History, number: int, effect: Effect) -> bool:
    return history.calls[number].returned_at <= effect.first_applied_at


def refusals_have_no_effect(history: History) -> Iterator[str]:
    """An acquire that was refused for certain has not been granted, ever."""
    by_request: dict[str, list[Effect]] = {}
    for effect in history.effects:
        if (
            effect.command == "Acquire"
            and effect.result == "Granted"
            and not effect.result_fields["replayed"]
        ):
            by_request.setdefault(effect.fields["request_id"], []).append(effect)
    last: dict[str, CallRecord] = {}
    doubt: set[str] = set()
    for call in history.calls:
        if call.name == "acquire":
            request_id = call.asked["request_id"]
            last[request_id] = call
            if call.doubtful or call.outcome in ("unknown", "pending", "ok"):
                doubt.add(request_id)
    for request_id, call in last.items():
        if (
            call.outcome in ("refused", "unavailable")
            and request_id not in doubt
            and request_id in by_request
        ):
            yield f"call {call.number} was refused ({call.code}), but {request_id} was granted"


def one_effect_a_request(history: History) -> Iterator[str]:
    """A request_id is granted at most once."""
    seen: dict[str, int] = {}
    for effect in history.effects:
        if (
            effect.command == "Acquire"
            and effect.result == "Granted"
            and not effect.result_fields["replayed"]
        ):
            for grant in effect.result_fields["grants"]:
                request_id, token = grant["lease"]["request_id"], grant["lease"]["token"]
                if seen.setdefault(request_id, token) != token:
                    yield f"{request_id} was granted as token {seen[request_id]} and as token {token}"


def acknowledged_renewals_and_commits_are_in_the_log(history: History) -> Iterator[str]:
    """Every renewal and commit that a client was told of was applied before it was told."""
    renewed: dict[int, list[float]] = {}
    committed: dict[str, float] = {}
    for effect in history.effects:
        if effect.result == "Renewed":
            renewed.setdefault(effect.result_fields["grant"]["lease"]["token"], []).append(
                effect.first_applied_at
            )
        elif effect.result == "Committed":
            committed.setdefault(bytes(effect.fields["value"] or b"").decode(), effect.first_applied_at)
    for call in answered(history, "renew"):
        times = renewed.get(call.answer["lease"]["token"], [])
        if not any(call.invoked_at <= at <= call.returned_at for at in times):
            yield f"call {call.number} was told of a renewal that no entry made in its time"
    for call in answered(history, "commit"):
        at = committed.get(call.asked["value"])
        if at is None or at > call.returned_at:
            yield f"call {call.number} was told of a commit that no entry made"


def commits_obey_the_floor(history: History) -> Iterator[str]:
    """Along the log, no commit is accepted with a token below that of a grant before it."""
    floor: dict[str, int] = {}
    for effect in history.effects:
        for event in effect.events:
            if event["kind"] == "granted":
                floor[event["key"]] = event["token"]
            if event["kind"] == "committed" and event["token"] < floor.get(event["key"], 0):
                yield f"entry {effect.index} accepts token {event['token']} below {floor[event['key']]}"


def answered(history: History, name: str) -> Iterator[CallRecord]:
    return (call for call in history.calls if call.name == name and call.outcome == "ok")


RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    tokens_rise,
    stamps_never_fall,
    one_holder_at_a_time,
    acknowledged_grants_are_in_the_log,
    tokens_follow_real_time,
    no_early_takeover,
    refusals_have_no_effect,
    one_effect_a_request,
    acknowledged_renewals_and_commits_are_in_the_log,
    commits_obey_the_floor,
    linearizable_per_key,
)


def check(history: History) -> Iterator[tuple[str, str]]:
    """(rule, what is wrong) of every rule."""
    for rule in RULES:
        for what in rule(history):
            yield rule.__name__.replace("_", " "), what
