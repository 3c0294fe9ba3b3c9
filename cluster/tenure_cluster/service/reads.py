"""Answers that only look at the table. Pure: the table, its time and the time now are arguments.

Two times matter. Whether something has expired is decided by the table's own time, `as_of_ms`: the log has
passed that point, so no later entry can revive it. What remains is computed by `now_ms`, the leader's clock.
Between the two lies what looks expired and could still be renewed by an entry that was stamped before now; a
view that meets such a deadline is `undecided`, and its reader commits a tick and looks again, so that no
renewal can contradict the answer.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure_cluster.lease import limits, results
from tenure_cluster.lease.queueing import place_of
from tenure_cluster.lease.types import Waiter
from tenure_cluster.service.answers import (
    deadline_of,
    holder_body,
    holder_of,
    lease_body,
    remaining_ms,
    rfc3339,
    session_body,
)
from tenure_cluster.service.asks import Answer, Ask
from tenure_cluster.service.audit_messages import ListAuditRequest
from tenure_cluster.service.audit_pages import page as audit_page
from tenure_cluster.service.backup_messages import BackupPointReply, BackupPointRequest
from tenure_cluster.service.blockers import View as View
from tenure_cluster.service.blockers import chain
from tenure_cluster.service.credential_answers import page, tenants
from tenure_cluster.service.credential_requests import ListCredentialsRequest, ListTenantsRequest
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import (
    LeaseBody,
    LeasesReply,
    QueueReply,
    RecordReply,
    SessionReply,
    ValidateReply,
    WaiterBody,
)
from tenure_cluster.service.requests import (
    GetLeaseRequest,
    GetRecordRequest,
    GetSessionRequest,
    ListLeasesRequest,
    QueueRequest,
    ValidateRequest,
)

QUEUE_SHOWN_MAX: Final = 1_000
"""Most waiters that an answer lists; it says how many there are."""

TURN_WEIGHT: Final = 100
"""Reads of this weight are answered in one turn of the loop; see `weight`."""

_LISTINGS: Final = frozenset({"list_leases", "queue", "list_credentials", "list_tenants", "list_audit"})


def weight(operation: str) -> int:
    """How much of a turn of the loop a read takes, whatever it finds. A page may take ten milliseconds."""
    return TURN_WEIGHT if operation in _LISTINGS else 1


def read(ask: Ask, view: View) -> Answer:
    """Answer an operation of asks.READS."""
    return _READS[type(ask.request)](ask.tenant, ask.request, view)


def with_index(answer: Answer, applied_index: int) -> Answer:
    """Say of a stale read's answer how far this node's replica was."""
    if isinstance(answer, LeaseBody | LeasesReply | QueueReply | RecordReply | SessionReply):
        return msgspec.structs.replace(answer, applied_index=applied_index)
    if isinstance(answer, Problem):
        return msgspec.structs.replace(answer, extra={**answer.extra, "applied_index": applied_index})
    return answer


def held(view: View, tenant: str, key: str) -> results.Held:
    """Who has the key and how many wait for it, as a refusal says it."""
    state = view.table.key_state(tenant, key)
    queue = view.table.key_queue(tenant, key)
    return results.Held(
        key=key,
        holders=_named(view.holders(tenant, key)),
        waiters=len(queue) if queue is not None else 0,
        blocked_until_ms=state.blocked_until_ms if state is not None else 0,
    )


def waiting(view: View, waiter: Waiter) -> results.Waiting:
    """Where a queued acquire stands, as the machine itself would say it. Cheap in a long queue."""
    return place_of(view.table, waiter, lambda key: _named(view.holders(waiter.tenant, key)))


def _named(grants: list[results.Grant]) -> list[results.Holder]:
    return [holder_of(grant) for grant in grants[: limits.HOLDERS_NAMED_MAX]]


def _validate(tenant: str, request: ValidateRequest, view: View) -> Answer:
    """Of a pool each slot has a floor, and a token is held against that of its own slot, if it can be told
    which that is; else against the newest."""
    state = view.table.key_state(tenant, request.key)
    guards = state.guards if state is not None else {}
    floors = {guard.floor for guard in guards.values()}
    newest = max(floors, default=0)
    for grant in view.holders(tenant, request.key):
        lease = grant.lease
        guard = guards.get(lease.slot)
        below = guard is not None and lease.token < guard.floor
        if lease.token == request.token and not below and not (lease.claim_deadline_ms or lease.parked):
            return ValidateReply(valid=True, reason="", current_token=lease.token)
    if request.token in floors:
        return ValidateReply(valid=False, reason="not_live", current_token=request.token)
    stale = request.token < newest or not guards
    return ValidateReply(valid=False, reason="stale_token" if stale else "not_live", current_token=newest)


def _get_lease(tenant: str, request: GetLeaseRequest, view: View) -> Answer:
    holders = view.holders(tenant, request.key)
    if not holders:
        return Problem("not_held", f"nobody holds {request.key!r}", {"key": request.key})
    body = lease_body(holders[0], view.now_ms, for_holder=False)
    return msgspec.structs.replace(body, holders=len(holders)) if len(holders) > 1 else body


def _list_leases(tenant: str, request: ListLeasesRequest, view: View) -> Answer:
    grants, after = view.table.list_leases(
        tenant, request.prefix, request.after, request.owner, request.limit
    )
    live = [grant for grant in grants if view.live(deadline_of(grant))]
    counters = view.table.tenants.get(tenant)
    leases = []
    for grant in live:
        body = lease_body(grant, view.now_ms, for_holder=False)
        waiters = view.table.key_queue(tenant, grant.lease.key)
        leases.append(msgspec.structs.replace(body, waiters=len(waiters)) if waiters else body)
    return LeasesReply(
        leases=leases,
        next=after,
        revision=counters.revision if counters is not None else 0,
    )


def _queue(tenant: str, request: QueueRequest, view: View) -> Answer:
    waiters = view.queue(tenant, request.key)
    state = view.table.key_state(tenant, request.key)
    blocked_ms = remaining_ms(state.blocked_until_ms, view.now_ms) if state is not None else 0
    return QueueReply(
        key=request.key,
        holders=[
            msgspec.structs.replace(
                holder_body(holder_of(grant), view.now_ms),
                held_ms=remaining_ms(view.now_ms, grant.lease.granted_ms),
                state="parked" if grant.lease.parked else "held",
            )
            for grant in view.holders(tenant, request.key)
        ],
        waiters=[
            WaiterBody(
                position=position,
                owner=waiter.owner,
                mode=waiter.mode,
                waiting_ms=remaining_ms(view.now_ms, waiter.queued_ms),
                queued_at=rfc3339(waiter.queued_wall_ms),
                metadata=waiter.metadata,
                keys=waiter.keys if len(waiter.keys) > 1 else msgspec.UNSET,
            )
            for position, waiter in enumerate(waiters[:QUEUE_SHOWN_MAX], 1)
        ],
        waiters_total=len(waiters),
        chain=chain(view, tenant, request.key),
        blocked_ms=blocked_ms or msgspec.UNSET,
    )


def _get_record(tenant: str, request: GetRecordRequest, view: View) -> Answer:
    record = view.table.record(tenant, request.key)
    if record is None:
        return Problem("no_record", f"{request.key!r} has no record", {"key": request.key})
    return RecordReply(
        key=record.key,
        value=base64.b64encode(record.value).decode() if record.binary else record.value.decode(),
        value_encoding="base64" if record.binary else "utf8",
        digest=record.digest or None,
        token=record.token,
        owner=record.owner,
        revision=record.revision,
        committed_at=rfc3339(record.committed_wall_ms),
    )


def _get_session(tenant: str, request: GetSessionRequest, view: View) -> Answer:
    table, ref = view.table, (tenant, request.session_id)
    session = table.session(*ref)
    # A private session that has expired is remembered by the lease of its id.
    ended = table.ended.get(ref)
    private = ended is not None and not ended.session_id and ended.reason == "expired"
    if session.closed if session is not None else not (private or ref in table.expired_sessions):
        return Problem("no_session", "no such session is known")
    if session is None or not view.live(session.deadline_ms):
        return Problem("session_expired", "the session was not renewed in time")
    leases = table.lease_count(*ref)
    return SessionReply(session=session_body(session, leases, view.now_ms))


_READS: Final[dict[type, Callable[[str, Any, View], Answer]]] = {
    ValidateRequest: _validate,
    GetLeaseRequest: _get_lease,
    ListLeasesRequest: _list_leases,
    QueueRequest: _queue,
    GetRecordRequest: _get_record,
    GetSessionRequest: _get_session,
    ListCredentialsRequest: lambda tenant, request, view: page(view.table.credentials, request),
    ListAuditRequest: lambda tenant, request, view: audit_page(view.table.audit, request),
    ListTenantsRequest: lambda tenant, request, view: tenants(view.table, request),
    BackupPointRequest: lambda tenant, request, view: BackupPointReply(applied_index=view.applied_index),
}
