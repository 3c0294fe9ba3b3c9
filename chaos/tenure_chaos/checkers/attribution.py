"""Which calls may have made an effect.

A request is known by what it names: an acquire by its request_id, a renewal or release by its lease_id, a
commit by its op_id or else by all that it writes, and so on. An effect may come from a call of the same name
that was made before it was applied. After a certain refusal nothing may come any more; after an answer only
what an attempt in doubt still brings.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tenure_chaos.checkers.reading import NEVER, text
from tenure_chaos.history import CallRecord, Effect, History

MACHINE_REFUSALS: Final = frozenset(
    ("stale_token", "token_used", "seq_replayed", "not_live", "revision_conflict", "mode_conflict")
)
"""Refusals of a commit that are remembered by its op_id: no attempt of it is accepted later."""

ASKED_TWICE: Final = frozenset(
    (
        ("Renewed", "lost"),
        ("Parked", "lost"),
        ("Unparked", "lost"),
        ("SessionIs", "no_session"),
        ("SessionClosed", "no_session"),
        ("Resized", "not_held"),
        ("Resized", "mode_conflict"),
        ("Resized", "unsupported"),
    )
)
"""Effects of a first asking, and what a second one of the same call may be refused with."""

Request: TypeAlias = tuple[Any, ...]
"""What a request is known by; first its kind."""

Whence = Literal["never asked", "refused", "answered"]


class Unexplained(NamedTuple):
    """An effect that no call accounts for, and why the calls of its request don't."""

    n: int
    effect: Effect
    whence: Whence
    call: CallRecord | None


def request_of_call(call: CallRecord) -> Request | None:
    """What the call's request is known by; None if it has no effect that is looked for."""
    asked, tenant = call.asked, call.tenant
    match call.name:
        case "acquire":
            return _acquire(tenant, asked.get("session_id"), asked.get("request_id"), asked)
        case "renew" | "renew_session":
            return ("renew", tenant, asked.get("lease_id") or asked.get("session_id"))
        case "release":
            return ("release", tenant, asked.get("lease_id"))
        case "handover":
            return ("handover", tenant, asked.get("lease_id"), asked.get("to_session_id"))
        case "park" | "unpark":
            return (call.name, tenant, asked.get("lease_id"))
        case "commit" | "commit_again":
            return _commit(tenant, asked)
        case "break":
            return ("break", tenant, asked.get("key"))
        case "delete_record" | "resize":
            return (call.name, tenant, asked.get("key"))
        case "open_session":
            return ("open_session", tenant, asked.get("owner"))
        case "close_session":
            return ("close_session", tenant, asked.get("session_id"))
        case "abandon":
            return ("abandon", tenant, asked.get("session_id"), asked.get("request_id"))
    return None


def request_of_effect(effect: Effect) -> Request | None:
    """What the request is known by that asked for the effect; None if the service itself did."""
    fields = effect.fields
    tenant = fields.get("tenant")
    match effect.command:
        case "Acquire":
            named = fields["request_id"] if fields["remember"] else None
            return _acquire(tenant, fields["session_id"], named, {**fields, "key": fields["keys"][0]})
        case "Renew":
            return ("renew", tenant, fields["lease_id"] or fields["session_id"])
        case "Release":
            return ("release", tenant, fields["lease_id"])
        case "Handover":
            return ("handover", tenant, fields["lease_id"], fields["to_session_id"])
        case "Park" | "Unpark":
            return (effect.command.lower(), tenant, fields["lease_id"])
        case "Commit":
            return _commit(tenant, fields)
        case "Break":
            return ("break", tenant, fields["key"])
        case "DeleteRecord":
            return ("delete_record", tenant, fields["key"])
        case "Resize":
            return ("resize", tenant, fields["key"])
        case "OpenSession":
            return ("open_session", tenant, fields["owner"])
        case "CloseSession":
            return ("close_session", tenant, fields["session_id"])
        case "Abandon" if fields["poll_deadline_ms"] is None:
            return ("abandon", tenant, fields["session_id"], fields["request_id"])
    return None


def _acquire(tenant: Any, session: Any, request_id: Any, asked: dict[str, Any]) -> Request:
    if request_id:
        return ("acquire", tenant, session or "", request_id)
    key = asked.get("key") or next(iter(asked.get("keys") or ()), None)
    return ("acquire of", tenant, session or "", key, asked.get("owner"))


def _commit(tenant: Any, asked: dict[str, Any]) -> Request:
    if asked.get("op_id"):
        return ("commit", tenant, asked["key"], asked["op_id"])
    return ("commit of", tenant, asked["key"], asked["token"], text(asked.get("value")), asked.get("seq"))


def changes(effect: Effect) -> bool:
    """Whether a request had an effect here that its caller cares for."""
    match effect.result:
        case "Granted":
            return effect.command == "Acquire" and not effect.result_fields["replayed"]
        case "Waiting":
            return any(event["kind"] == "queue_joined" for event in effect.events)
        case "Released":
            return not effect.result_fields["already"]
        case "Committed":
            return any(event["kind"] == "committed" for event in effect.events)
        case "Abandoned":
            return bool(effect.result_fields["had"])
        case "HandedOver" | "Unparked":
            return not effect.result_fields["replayed"]
        case "Parked" | "Renewed" | "SessionIs" | "Broken" | "RecordDeleted" | "SessionClosed":
            return True
        case "Resized":
            return True
    return False


def may_act_until(call: CallRecord, effect: Effect) -> float:
    """Until when the effect may come from the call."""
    if call.outcome in ("unknown", "pending"):
        return NEVER
    if call.doubtful:
        remembered = call.outcome == "refused" and call.name.startswith("commit") and call.asked.get("op_id")
        return -NEVER if remembered and call.code in MACHINE_REFUSALS else NEVER
    if call.outcome == "ok":
        return call.returned_at
    if call.outcome != "refused":
        return -NEVER
    # Who was queued may be refused in the end; then it waits no more. Who is told that the lease is over had
    # it, and may have renewed it before it ended; who is told that there is no such session may have renewed
    # or closed it: a node may have asked its leader twice, and heard the second answer only.
    queued = effect.result == "Waiting"
    had_it = effect.result == "Granted" and call.name == "acquire" and call.code == "lost"
    asked_twice = (effect.result, call.code) in ASKED_TWICE
    return call.returned_at if queued or had_it or asked_twice else -NEVER


def _broken(effect: Effect, call: CallRecord) -> bool:
    tokens = [lease["token"] for lease in effect.result_fields.get("leases", ())]
    return effect.result == "Broken" and tokens == [lease["token"] for lease in call.answer["broken"]]


def _resized(effect: Effect, call: CallRecord) -> bool:
    told = {name: call.answer.get(name) for name in ("slots", "before", "holders")}
    return effect.result == "Resized" and told == dict(effect.result_fields)


DONE: Final[dict[str, Callable[[Effect, CallRecord], bool]]] = {
    "renew": lambda effect, call: effect.result in ("Renewed", "SessionIs"),
    "renew_session": lambda effect, call: effect.result == "SessionIs",
    "release": lambda effect, call: effect.result == "Released",
    "handover": lambda effect, call: effect.result == "HandedOver",
    "park": lambda effect, call: effect.result == "Parked",
    "unpark": lambda effect, call: effect.result == "Unparked",
    "commit": lambda effect, call: effect.result == "Committed",
    "break": _broken,
    "resize": lambda effect, call: _resized(effect, call),
    "delete_record": lambda effect, call: effect.fields["if_revision"] == call.asked.get("if_revision"),
    "open_session": lambda effect, call: effect.result == "SessionIs",
    "close_session": lambda effect, call: effect.result == "SessionClosed",
}
"""By the name of a call: whether this effect of its request is what it was told of."""

ONE_BY_ONE: Final = frozenset(
    (
        "renew",
        "renew_session",
        "release",
        "handover",
        "park",
        "unpark",
        "break",
        "delete_record",
        "close_session",
        "resize",
    )
)
"""Each call that was told so has an effect of its own."""


UNREPEATABLE: Final = frozenset(("acquire of", "commit of", "break", "delete_record"))
"""Kinds of requests that nobody may ask twice: neither the client nor a node of its leader."""


def says_done(call: CallRecord) -> bool:
    """Whether the call was told of an effect, other than a grant."""
    if call.outcome != "ok" or call.name not in DONE or call.answer.get("replayed"):
        return False
    return call.name != "release" or call.answer.get("status") == "released"


class Attribution:
    """Effects and calls, brought together by request."""

    def __init__(self, history: History) -> None:
        self._all = history.calls
        self._effects = history.effects
        self._calls: dict[Request, list[CallRecord]] = {}
        self.effects: dict[Request, list[int]] = {}
        """Numbers of the effects of each request that changed something."""
        self.looked_at = 0
        for call in history.calls:
            request = request_of_call(call)
            if request is not None:
                self._calls.setdefault(request, []).append(call)
        for n, effect in enumerate(history.effects):
            if changes(effect) and (request := request_of_effect(effect)) is not None:
                self.effects.setdefault(request, []).append(n)

    def calls_of(self, effect: Effect) -> list[CallRecord]:
        """Every call of the effect's request."""
        request = request_of_effect(effect)
        return self.calls_of_request(request) if request is not None else []

    def calls_of_request(self, request: Request) -> list[CallRecord]:
        return self._calls.get(request, [])

    def made_by(self, call: CallRecord) -> Iterator[int]:
        """The effects that the call may have made before it returned."""
        request = request_of_call(call)
        for n in self.effects.get(request, ()) if request is not None else ():
            if self._effects[n].first_applied_at > call.returned_at:
                break
            yield n

    @cached_property
    def told(self) -> dict[int, int]:
        """By the number of a call that was told of an effect: the effect, where there is one. It was applied
        between the call and its answer; what an op_id names is answered as at first, whenever that was.
        """
        told: dict[int, int] = {}
        taken: set[int] = set()
        for call in sorted(filter(says_done, self._all), key=lambda call: call.returned_at):
            since = 0.0 if call.asked.get("op_id") else call.invoked_at
            for n in self.made_by(call):
                effect = self._effects[n]
                if effect.first_applied_at >= since and n not in taken and DONE[call.name](effect, call):
                    told[call.number] = n
                    if call.name in ONE_BY_ONE:
                        taken.add(n)
                    break
        return told

    def unexplained(self) -> Iterator[Unexplained]:
        """Every effect that no call accounts for. A call accounts for effects before its answer: for one of
        a kind if it can't be asked twice, else for any, because the service may ask its leader again. An
        attempt in doubt accounts for whatever comes.
        """
        for request, numbers in self.effects.items():
            calls = sorted(self._calls.get(request, []), key=lambda call: call.returned_at)
            self.looked_at += len(numbers)
            used: set[tuple[int, str]] = set()
            for n in numbers:
                effect = self._effects[n]
                at = effect.first_applied_at
                before = [call for call in calls if call.invoked_at <= at]
                by = _accounts_for(before, effect, used)
                if by is not None:
                    if request[0] in UNREPEATABLE:
                        used.add((by.number, effect.result))
                elif not before:
                    yield Unexplained(n, effect, "never asked", None)
                else:
                    yield _blamed(n, effect, before)


def _accounts_for(before: list[CallRecord], effect: Effect, used: set[tuple[int, str]]) -> CallRecord | None:
    """The call that the effect is of: rather one that is over soon; one in doubt only if there is none."""
    at = effect.first_applied_at
    in_doubt = None
    for call in before:
        until = may_act_until(call, effect)
        if until == NEVER:
            in_doubt = call
        elif at <= until and (call.number, effect.result) not in used:
            return call
    return in_doubt


def _blamed(n: int, effect: Effect, before: list[CallRecord]) -> Unexplained:
    at = effect.first_applied_at
    failed = [call for call in before if call.outcome in ("refused", "unavailable")]
    then = [call for call in failed if at <= call.returned_at]
    if then or len(failed) == len(before):
        return Unexplained(n, effect, "refused", (then or failed)[-1])
    return Unexplained(n, effect, "answered", before[-1])
