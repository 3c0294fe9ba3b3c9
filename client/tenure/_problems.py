"""Problem answers (RFC 9457) read, and turned into the errors of errors.py: one table, from code to error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from tenure.answers import Holder
from tenure.errors import (
    CommitRefused,
    InvalidRequest,
    LeaseLost,
    LeaseUnavailable,
    NotAuthorized,
    QuotaExceeded,
    TenureError,
)

CONTENT_TYPE: Final = "Content-Type"
MSGPACK: Final = "application/msgpack"
"""What an answer that came over a stream is."""

Kind = Literal["answered", "not_executed", "unknown"]

NOT_EXECUTED: Final = frozenset({"no_leader", "no_quorum", "shutting_down", "overloaded", "mixed_versions"})
"""The cluster could not serve just now and says for certain that nothing was done."""

UNKNOWN: Final = frozenset({"outcome_unknown", "internal"})
"""``internal`` is a fault inside the server: where it struck isn't known, so neither is what was done
before."""

NOT_FOUND: Final = frozenset({"not_held", "no_record", "no_session", "no_credential"})
"""Refusals that a read answers with None."""

SESSION_LOOKUPS: Final = frozenset({"session", "close_session"})
"""Calls that ask whether there is such a session. To all others its end is a loss."""

TO_ANOTHER_SESSION: Final = frozenset({"handover"})
"""Calls that name somebody else's session. Its end is no loss of one's own."""


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    code: str
    detail: str
    kind: Kind
    request_id: str = ""
    retry_after_s: float | None = None
    members: dict[str, Any] = field(default_factory=dict)


class NotFound(TenureError):
    """Internal: the client turns it into None, False or LeaseLost, whichever the call means."""


def read_problem(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """Never fails: an answer without a code of ours came from something between us and the node, a proxy or
    another server. A 5xx of such a thing leaves the outcome unknown, whatever it says."""
    members: dict[str, Any] = {}
    try:
        if headers.get(CONTENT_TYPE) == MSGPACK:
            members = msgspec.msgpack.decode(body, type=dict[str, Any])
        else:
            members = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    request_id = headers.get("X-Request-Id", "")
    # A stream has no headers, so there it is a member.
    retry_after_s = _seconds(headers.get("Retry-After") or members.pop("retry_after_s", None))
    code = members.pop("code", None)
    if not isinstance(code, str):
        kind: Kind = "unknown" if status >= 500 else "answered"
        detail = f"HTTP {status} without a Tenure error code; does the endpoint name a Tenure node?"
        return Problem(
            status, "internal" if status >= 500 else "invalid", detail, kind, request_id, retry_after_s
        )
    detail = str(members.pop("detail", "") or members.get("title", ""))
    return Problem(status, code, detail, _kind(status, code), request_id, retry_after_s, members)


def _kind(status: int, code: str) -> Kind:
    if code in NOT_EXECUTED:
        return "not_executed"
    if code in UNKNOWN or status >= 500:
        return "unknown"
    return "answered"


def refusal(call: str, problem: Problem) -> TenureError:
    """The error that an answered refusal of this call is raised as."""
    code, detail, request_id = problem.code, problem.detail, problem.request_id
    members = problem.members
    if code in ("no_session", "session_expired") and call in TO_ANOTHER_SESSION:
        return InvalidRequest(code=code, detail=f"the successor's session: {detail}", request_id=request_id)
    if code == "no_session" and call not in SESSION_LOOKUPS:
        return LeaseLost(code, code=code, detail=detail, request_id=request_id)
    if code in NOT_FOUND:
        return NotFound(code=code, detail=detail, request_id=request_id)
    if code in ("held", "deadlock") or (code == "mode_conflict" and call != "commit"):
        cycle = members.get("cycle")
        return LeaseUnavailable(
            _holder(members.get("holder")),
            code=code,
            detail=detail,
            request_id=request_id,
            cycle=tuple(str(part) for part in cycle) if isinstance(cycle, list) else (),
            reason=str(members.get("reason") or ""),
        )
    if code in ("lost", "session_expired"):
        reason = str(members.get("reason") or ("unknown" if code == "lost" else code))
        cause = str(members.get("cause") or "")
        return LeaseLost(reason, code=code, detail=detail, request_id=request_id, cause=cause)
    if problem.status == 412 or code == "mode_conflict":
        return CommitRefused(
            code,
            _integer(members.get("floor")),
            detail=detail,
            request_id=request_id,
            revision=_integer(members.get("revision")),
        )
    if code in ("unauthenticated", "forbidden"):
        return NotAuthorized(code=code, detail=detail, request_id=request_id)
    if problem.status == 429:
        return QuotaExceeded(
            code=code, detail=detail, request_id=request_id, retry_after=problem.retry_after_s
        )
    return InvalidRequest(code=code, detail=detail, request_id=request_id, path=str(members.get("path", "")))


def _holder(value: Any) -> Holder | None:
    try:
        return msgspec.convert(value, Holder)
    except msgspec.ValidationError:
        return None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: Any) -> float | None:
    """Retry-After in seconds; its date form is not used by the cluster and is ignored."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except (TypeError, ValueError):
        return None
