"""What a caller may ask: the right that each operation needs, and the keys that it names.

A lease or a session is named by an id that only its holder was told, so that id is all that is asked for
beside the right: it was granted for a key that its credential may touch. Another tenant's ids are looked for
among the caller's own, and so answered like any id that is not known.
"""

from collections.abc import Callable
from typing import Any, Final

from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.routes import ROUTES, Access
from tenure_cluster.auth.gate import Caller
from tenure_cluster.service import requests
from tenure_cluster.service.errors import Problem

RIGHT_OF: Final[dict[str, Access]] = {
    **{route.operation: route.access for route in ROUTES},
    "watch": "observe",
    "unwatch": "observe",
}
"""What each operation needs, those of streams included."""

UNAUTHENTICATED: Final = Problem(
    "unauthenticated", "Show a valid credential: Authorization: Bearer CREDENTIAL"
)


def _key(request: Any) -> list[tuple[str, str]]:
    return [("$.key", request.key)]


def _prefix(request: Any) -> list[tuple[str, str]]:
    return [("$.prefix", request.prefix)]


def _acquired(request: requests.AcquireRequest) -> list[tuple[str, str]]:
    named = [(f"$.keys[{place}]", key) for place, key in enumerate(request.keys or [])]
    return named if request.key is None else [("$.key", request.key), *named]


_KEYS: Final[dict[type, Callable[[Any], list[tuple[str, str]]]]] = {
    requests.AcquireRequest: _acquired,
    requests.BreakRequest: _key,
    requests.ResizeRequest: _key,
    requests.ValidateRequest: _key,
    requests.CommitRequest: _key,
    requests.GetLeaseRequest: _key,
    requests.QueueRequest: _key,
    requests.GetRecordRequest: _key,
    requests.DeleteRecordRequest: _key,
    requests.ListLeasesRequest: _prefix,
    requests.EventsRequest: _prefix,
}
"""Where a request names keys, or all keys that begin with something."""


def right_refusal(caller: Caller, operation: str) -> Problem | None:
    """None if the caller has the right that the operation needs."""
    needed = RIGHT_OF[operation]
    if needed in ("open", "any") or needed in caller.rights:
        return None
    detail = f"The credential lacks the right {needed}, which {operation} needs"
    return Problem("forbidden", detail, {"right": needed})


def key_refusal(caller: Caller, request: Any) -> Problem | None:
    """None if all that the request names is the caller's to touch."""
    named = _KEYS.get(type(request))
    if not caller.prefixes or named is None:
        return None
    for path, key in named(request):
        if not caller.may_touch(key):
            what = "keys with other beginnings" if path == "$.prefix" else "this key"
            return Problem("forbidden", f"The credential is not for {what}", {"path": path})
    return None


def refusal(service: LeasePort, caller: Caller, operation: str, request: Any) -> Problem | None:
    """None if the caller may ask this. That it may not is told to the audit."""
    if not caller.credential_id:
        return None
    refused = right_refusal(caller, operation) or key_refusal(caller, request)
    if refused is not None:
        tell(service, refused, operation, caller, request)
    return refused


def tell(service: LeasePort, refused: Problem, operation: str, caller: Caller, request: Any = None) -> None:
    """Have a refusal recorded. Of a call whose body was not looked at, or is none, the keys are not known."""
    named = _KEYS.get(type(request))
    keys = [key for _, key in named(request)] if named is not None else []
    service.refused(
        refused,
        operation,
        tenant=caller.tenant if caller.credential_id else "",
        actor=caller.credential_id,
        origin=caller.origin,
        key=next((key for key in keys if not caller.may_touch(key)), keys[0] if keys else ""),
    )
