"""Whether a decoded request may be asked at all: forms and bounds that its type can't say.

Checked before anything is proposed, so that nothing outside the bounds is ever in the log. A wrong form is
`invalid`; a value or length outside its bound is `out_of_range` and names the bound. Each names the path of
the fault.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tenure_cluster.addresses import is_http_url, split_address
from tenure_cluster.lease import limits
from tenure_cluster.lease.quota import Quota
from tenure_cluster.service.audit_messages import AUDIT_PAGE_MAX, ListAuditRequest, NoteAuditRequest
from tenure_cluster.service.backup_messages import BackupPointRequest
from tenure_cluster.service.cluster_requests import (
    ADDRESS_BYTES_MAX,
    NODE_ID_BYTES_MAX,
    AddMemberRequest,
    RemoveMemberRequest,
    TransferRequest,
)
from tenure_cluster.service.credential_requests import (
    EntrustRequest,
    ListCredentialsRequest,
    ListTenantsRequest,
    ReplaceSecretRequest,
    ResetQuotaRequest,
    RevokeCredentialRequest,
    SetQuotaRequest,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import (
    AbandonRequest,
    AcquireRequest,
    BreakRequest,
    CloseSessionRequest,
    CommitRequest,
    DeleteRecordRequest,
    EventsRequest,
    GetLeaseRequest,
    GetRecordRequest,
    GetSessionRequest,
    HandoverRequest,
    ListLeasesRequest,
    OpenSessionRequest,
    ParkRequest,
    ProgressNote,
    QueueRequest,
    ReleaseRequest,
    RenewRequest,
    Request,
    ResizeRequest,
    UnparkRequest,
    ValidateRequest,
)

if TYPE_CHECKING:
    # The client's test kit checks requests by this module, where no server is installed.
    from tenure_cluster.settings import Leases

WAIT_MS_MAX: Final = 86_400_000
"""Longest wait that a caller may state; it is answered in polls of at most lease.limits.POLL_SLICE_MS
each."""

PAGE_MAX: Final = 1_000
"""Most leases of one page."""

BATCH_MAX: Final = 1_000
"""Most operations of one batch."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_VALUE_CHARS_MAX: Final = 4 * (limits.VALUE_BYTES_MAX // 3 + 1)


def check(request: Request | EventsRequest, bounds: Leases) -> Problem | None:
    """None if the request may be proposed or read for, else why not."""
    return _CHECKS[type(request)](request, bounds)


def commit_value(request: CommitRequest) -> bytes | None:
    """The record value of a request that was checked."""
    if request.value is None:
        return None
    if request.value_encoding == "base64":
        return base64.b64decode(request.value, validate=True)
    return request.value.encode()


def _invalid(path: str, detail: str) -> Problem:
    return Problem("invalid", f"{path[2:]} {detail}", {"path": path})


def _out_of_range(path: str, what: str, low: int, high: int, unit: str, found: int) -> Problem:
    return Problem(
        "out_of_range",
        f"{path[2:]} must {what} {low} to {high} {unit}, not {found}",
        {"path": path, "min": low, "max": high},
    )


def _number(path: str, value: int, low: int, high: int, unit: str = "") -> Problem | None:
    if low <= value <= high:
        return None
    return _out_of_range(path, "be", low, high, unit or "in value", value)


def _text(path: str, value: str, low: int, high: int, *, plain: bool = True) -> Problem | None:
    """Text of `low` to `high` bytes of UTF-8; if `plain`, without control characters."""
    if value.isascii() and value.isprintable():
        size = len(value)
    else:
        if _SURROGATE.search(value):
            return _invalid(path, "holds a lone surrogate, which is not text in UTF-8")
        if plain and _CONTROL.search(value):
            return _invalid(path, "must not hold control characters")
        size = len(value.encode())
    if low <= size <= high:
        return None
    return _out_of_range(path, "be", low, high, "bytes of UTF-8", size)


def _key(path: str, value: str) -> Problem | None:
    return _text(path, value, 1, limits.KEY_BYTES_MAX)


def _id(path: str, value: str) -> Problem | None:
    return _text(path, value, 1, limits.ID_BYTES_MAX)


def _optional_id(path: str, value: str | None) -> Problem | None:
    return None if value is None else _id(path, value)


def _owner(value: str) -> Problem | None:
    return _text("$.owner", value, 1, limits.OWNER_BYTES_MAX)


def _ttl(value: int, bounds: Leases) -> Problem | None:
    return _number("$.ttl_ms", value, bounds.ttl_min_ms, bounds.ttl_max_ms, "ms")


def _metadata(metadata: dict[str, str]) -> Problem | None:
    size = 0
    for name, value in metadata.items():
        if _SURROGATE.search(name) or _SURROGATE.search(value):
            return _invalid("$.metadata", "holds a lone surrogate, which is not text in UTF-8")
        size += len(name.encode()) + len(value.encode())
    if size <= limits.METADATA_BYTES_MAX:
        return None
    what = "hold, keys and values together,"
    return _out_of_range("$.metadata", what, 0, limits.METADATA_BYTES_MAX, "bytes of UTF-8", size)


def _acquire(request: AcquireRequest, bounds: Leases) -> Problem | None:
    return (
        _acquire_keys(request)
        or _acquire_life(request, bounds)
        or _owner(request.owner)
        or _optional_id("$.request_id", request.request_id)
        or _number("$.wait_ms", request.wait_ms, 0, WAIT_MS_MAX, "ms")
        or _number("$.grace_ms", request.grace_ms, 0, limits.GRACE_MS_MAX, "ms")
        or (_metadata(request.metadata) if request.metadata else None)
        or _acquire_mode(request)
        or _acquire_progress(request)
    )


def _acquire_progress(request: AcquireRequest) -> Problem | None:
    if request.progress_ms is None:
        return None
    low, high = limits.PROGRESS_MS_MIN, limits.PROGRESS_MS_MAX
    return _number("$.progress_ms", request.progress_ms, low, high, "ms")


def _acquire_keys(request: AcquireRequest) -> Problem | None:
    keys = request.keys
    if keys is None:
        if request.key is None:
            return _invalid("$.key", "is missing: give key, or keys for a set")
        return _key("$.key", request.key)
    if request.key is not None:
        return _invalid("$.keys", "and key can't be given together")
    if not keys:
        return _invalid("$.keys", "must name at least one key")
    if len(keys) > limits.SET_KEYS_MAX:
        return _out_of_range("$.keys", "name", 1, limits.SET_KEYS_MAX, "keys", len(keys))
    for position, key in enumerate(keys):
        fault = _key(f"$.keys[{position}]", key)
        if fault is not None:
            return fault
    if len(set(keys)) < len(keys):
        return _invalid("$.keys", "names a key twice")
    return None


def _acquire_life(request: AcquireRequest, bounds: Leases) -> Problem | None:
    if request.session_id is None:
        if request.ttl_ms is None:
            return _invalid("$.ttl_ms", "is required without session_id")
        return _ttl(request.ttl_ms, bounds)
    if request.ttl_ms is not None:
        return _invalid("$.ttl_ms", "can't be given with session_id: the session has its own")
    return _id("$.session_id", request.session_id)


def _acquire_mode(request: AcquireRequest) -> Problem | None:
    if request.mode == "permit":
        if request.slots is None:
            return _invalid("$.slots", "is required in mode 'permit'")
        return _number("$.slots", request.slots, 1, limits.HOLDERS_PER_KEY_MAX)
    if request.slots is not None:
        return _invalid("$.slots", "goes with mode 'permit' only")
    return None


def _renew(request: RenewRequest, bounds: Leases) -> Problem | None:
    if (request.lease_id is None) == (request.session_id is None):
        return _invalid("$.lease_id", "or session_id must be given, exactly one of them")
    if request.progress is not None:
        if request.lease_id is None:
            return _invalid("$.progress", "goes with a lease_id")
        fault = _progress(request.progress)
        if fault is not None:
            return fault
    return (
        _optional_id("$.lease_id", request.lease_id)
        or _optional_id("$.session_id", request.session_id)
        or (None if request.ttl_ms is None else _ttl(request.ttl_ms, bounds))
    )


def _progress(note: ProgressNote) -> Problem | None:
    return (
        _text("$.progress.step", note.step, 0, limits.PROGRESS_STEP_BYTES_MAX)
        or _text("$.progress.text", note.text, 0, limits.PROGRESS_TEXT_BYTES_MAX, plain=False)
        or _number("$.progress.counter", note.counter, 0, limits.SEQ_MAX)
    )


def _park(request: ParkRequest, bounds: Leases) -> Problem | None:
    return (
        _id("$.lease_id", request.lease_id)
        or (None if request.token is None else _token(request.token))
        or _number("$.limit_ms", request.limit_ms, limits.PARK_MS_MIN, limits.PARK_MS_MAX, "ms")
    )


def _unpark(request: UnparkRequest, bounds: Leases) -> Problem | None:
    if request.session_id is not None and request.ttl_ms is not None:
        return _invalid("$.ttl_ms", "can't be given with session_id: the session has its own")
    return (
        _id("$.lease_id", request.lease_id)
        or (None if request.token is None else _token(request.token))
        or _optional_id("$.session_id", request.session_id)
        or (None if request.ttl_ms is None else _ttl(request.ttl_ms, bounds))
    )


def _commit(request: CommitRequest, bounds: Leases) -> Problem | None:
    return (
        _key("$.key", request.key)
        or _id("$.lease_id", request.lease_id)
        or _token(request.token)
        or _number("$.slot", request.slot, 0, limits.SEQ_MAX)
        or _commit_seq(request)
        or _optional_id("$.op_id", request.op_id)
        or _revision(request.if_revision)
        or (None if request.digest is None else _text("$.digest", request.digest, 0, limits.DIGEST_BYTES_MAX))
        or _commit_value(request)
    )


def _commit_seq(request: CommitRequest) -> Problem | None:
    if request.mode == "sequence":
        if request.seq is None:
            return _invalid("$.seq", "is required in mode 'sequence'")
        return _number("$.seq", request.seq, 0, limits.SEQ_MAX)
    if request.seq is not None:
        return _invalid("$.seq", "goes with mode 'sequence' only")
    return None


def _commit_value(request: CommitRequest) -> Problem | None:
    value = request.value
    if value is None:
        return None
    if request.value_encoding == "utf8":
        return _text("$.value", value, 0, limits.VALUE_BYTES_MAX, plain=False)
    if len(value) > _VALUE_CHARS_MAX:
        return _value_too_long(len(value) // 4 * 3)
    try:
        size = len(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return _invalid("$.value", "is not base64, which value_encoding says it is")
    return None if size <= limits.VALUE_BYTES_MAX else _value_too_long(size)


def _value_too_long(size: int) -> Problem:
    return _out_of_range("$.value", "decode to", 0, limits.VALUE_BYTES_MAX, "bytes", size)


def _token(token: int) -> Problem | None:
    return _number("$.token", token, 0, limits.TOKEN_MAX)


def _revision(revision: int | None) -> Problem | None:
    return None if revision is None else _number("$.if_revision", revision, 0, limits.SEQ_MAX)


def _list_leases(request: ListLeasesRequest, bounds: Leases) -> Problem | None:
    return (
        _text("$.prefix", request.prefix, 0, limits.KEY_BYTES_MAX)
        or _number("$.limit", request.limit, 1, PAGE_MAX)
        or (None if request.after is None else _text("$.after", request.after, 0, limits.KEY_BYTES_MAX))
        or (None if request.owner is None else _owner(request.owner))
    )


def _break(request: BreakRequest, bounds: Leases) -> Problem | None:
    return _key("$.key", request.key) or _text(
        "$.reason", request.reason, 1, limits.REASON_BYTES_MAX, plain=False
    )


def _resize(request: ResizeRequest, bounds: Leases) -> Problem | None:
    return _key("$.key", request.key) or _number("$.slots", request.slots, 1, limits.HOLDERS_PER_KEY_MAX)


def _open_session(request: OpenSessionRequest, bounds: Leases) -> Problem | None:
    return _owner(request.owner) or _ttl(request.ttl_ms, bounds) or _metadata(request.metadata)


def _events(request: EventsRequest, bounds: Leases) -> Problem | None:
    return _text("$.prefix", request.prefix, 0, limits.KEY_BYTES_MAX) or (
        None if request.after is None else _number("$.from", request.after, 0, limits.SEQ_MAX)
    )


def _entrust(request: EntrustRequest, bounds: Leases) -> Problem | None:
    asked = request.asked
    if not asked.rights:
        return _invalid("$.rights", "must name a right, or the credential would be for nothing")
    if not 0 < len(asked.prefixes) <= limits.CREDENTIAL_PREFIXES_MAX:
        found = len(asked.prefixes)
        return _out_of_range("$.prefixes", "be", 1, limits.CREDENTIAL_PREFIXES_MAX, "in number", found)
    for place, prefix in enumerate(asked.prefixes):
        if (fault := _text(f"$.prefixes[{place}]", prefix, 0, limits.KEY_BYTES_MAX)) is not None:
            return fault
    return (
        _text("$.name", asked.name, 1, limits.CREDENTIAL_NAME_BYTES_MAX)
        or _text("$.tenant", asked.tenant, 1, limits.TENANT_BYTES_MAX)
        or (
            None
            if asked.lifetime_ms is None
            else _number("$.lifetime_ms", asked.lifetime_ms, 1_000, limits.CREDENTIAL_LIFETIME_MS_MAX, "ms")
        )
    )


def _set_quota(request: SetQuotaRequest, bounds: Leases) -> Problem | None:
    fault = _text("$.tenant", request.tenant, 1, limits.TENANT_BYTES_MAX)
    for name in Quota.__struct_fields__:
        fault = fault or _number(f"$.{name}", getattr(request, name), 0, limits.SEQ_MAX)
    if fault is None and 0 < request.ttl_max_ms < request.ttl_min_ms:
        return _invalid("$.ttl_max_ms", f"is below ttl_min_ms, {request.ttl_min_ms}")
    return fault


def _add_member(request: AddMemberRequest, bounds: Leases) -> Problem | None:
    plain = request.id.replace("-", "").replace("_", "").replace(".", "")
    if not (0 < len(request.id) <= NODE_ID_BYTES_MAX and request.id.isascii() and plain.isalnum()):
        return _invalid("$.id", f"must be 1 to {NODE_ID_BYTES_MAX} letters, digits, '-', '_' or '.'")
    try:
        split_address(request.peer)
    except ValueError as error:
        return _invalid("$.peer", f"must be host:port: {error}")
    if not is_http_url(request.http):
        return _invalid("$.http", "must be an http URL")
    return _text("$.peer", request.peer, 1, ADDRESS_BYTES_MAX) or _text(
        "$.http", request.http, 1, ADDRESS_BYTES_MAX
    )


_CHECKS: Final[dict[type, Callable[[Any, Leases], Problem | None]]] = {
    AcquireRequest: _acquire,
    RenewRequest: _renew,
    ReleaseRequest: lambda request, bounds: _id("$.lease_id", request.lease_id),
    HandoverRequest: lambda request, bounds: (
        _id("$.lease_id", request.lease_id) or _id("$.to_session_id", request.to_session_id)
    ),
    ParkRequest: _park,
    UnparkRequest: _unpark,
    AbandonRequest: lambda request, bounds: (
        _id("$.request_id", request.request_id) or _optional_id("$.session_id", request.session_id)
    ),
    BreakRequest: _break,
    ResizeRequest: _resize,
    ValidateRequest: lambda request, bounds: _key("$.key", request.key) or _token(request.token),
    CommitRequest: _commit,
    GetLeaseRequest: lambda request, bounds: _key("$.key", request.key),
    ListLeasesRequest: _list_leases,
    QueueRequest: lambda request, bounds: _key("$.key", request.key),
    GetRecordRequest: lambda request, bounds: _key("$.key", request.key),
    DeleteRecordRequest: lambda request, bounds: _key("$.key", request.key) or _revision(request.if_revision),
    OpenSessionRequest: _open_session,
    GetSessionRequest: lambda request, bounds: _id("$.session_id", request.session_id),
    CloseSessionRequest: lambda request, bounds: _id("$.session_id", request.session_id),
    EventsRequest: _events,
    EntrustRequest: _entrust,
    ReplaceSecretRequest: lambda request, bounds: (
        _id("$.credential_id", request.asked.credential_id)
        or _number("$.overlap_ms", request.asked.overlap_ms, 0, limits.CREDENTIAL_OVERLAP_MS_MAX, "ms")
    ),
    RevokeCredentialRequest: lambda request, bounds: _id("$.credential_id", request.credential_id),
    ListCredentialsRequest: lambda request, bounds: _number("$.limit", request.limit, 1, PAGE_MAX),
    ListTenantsRequest: lambda request, bounds: _number("$.limit", request.limit, 1, PAGE_MAX),
    BackupPointRequest: lambda request, bounds: None,
    SetQuotaRequest: _set_quota,
    ListAuditRequest: lambda request, bounds: (
        _number("$.after", request.after, 0, limits.SEQ_MAX)
        or _number("$.limit", request.limit, 1, AUDIT_PAGE_MAX)
    ),
    NoteAuditRequest: lambda request, bounds: None,
    ResetQuotaRequest: lambda request, bounds: _text("$.tenant", request.tenant, 1, limits.TENANT_BYTES_MAX),
    TransferRequest: lambda request, bounds: (
        None if request.to is None else _text("$.to", request.to, 1, NODE_ID_BYTES_MAX)
    ),
    AddMemberRequest: _add_member,
    RemoveMemberRequest: lambda request, bounds: _text("$.id", request.id, 1, NODE_ID_BYTES_MAX),
}
