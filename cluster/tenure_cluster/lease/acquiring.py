"""Acquire, claim and abandon: one request from its first try to its end.

A request is known by (tenant, scope, request_id), where the scope is its explicit session or empty. It is
at most one of: waiting, granted, or over and remembered. An acquire first asks which, and only a request
of which nothing is known is tried afresh. So a retry, whatever became of the first try, finds that
outcome and never makes a second grant.
"""

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Abandon, Acquire, Claim
from tenure_cluster.lease.holding import (
    EMPTY_METADATA,
    PERMIT,
    Family,
    blocked_until,
    claim_lease,
    end_lease,
    expire_lease,
    go_together,
    grant,
    has_room,
    holder_of,
    holders_of,
    present_family,
    serve,
    settle,
)
from tenure_cluster.lease.liveness import drop_waiter, lease_live, waiter_dead
from tenure_cluster.lease.memory import AbandonedRequest
from tenure_cluster.lease.queueing import enqueue, refresh, waiting
from tenure_cluster.lease.results import (
    Abandoned,
    Grant,
    Granted,
    Held,
    Invalid,
    Lost,
    ModeConflict,
    Result,
    TokensExhausted,
    Unsupported,
)
from tenure_cluster.lease.sessions import DURATION_MS_MAX, find_session
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import EndedLease, Lease, Session, TenantId, Waiter

REQUEST_REUSED = Invalid("request_id was used for another acquire")
LEASE_ID_IN_USE = Invalid("lease_id is in use")


def acquire(step: Step, asked: Acquire) -> Result:
    """Grant, queue, or say who holds."""
    fault = _fault(asked)
    if fault is not None:
        return fault
    table = step.table
    tenant = step.counters(asked.tenant).tenant
    ref = (tenant, asked.session_id or "", asked.request_id)
    fate = table.indexes.fate(*ref)
    if isinstance(fate, Lease):
        return _replay(step, asked, fate)
    if isinstance(fate, EndedLease):
        return Lost(fate.reason) if fate.key == asked.keys[0] else REQUEST_REUSED
    if fate is not None:
        return Lost("abandoned")
    waiter = table.waiters.get(ref)
    if waiter is not None:
        if waiter.keys != asked.keys:
            return REQUEST_REUSED
        if not waiter_dead(step, waiter):
            return _poll(step, waiter)
        settle(step, tenant, waiter.keys[0])
    if asked.session_id is not None:
        session = find_session(step, tenant, asked.session_id)
        if not isinstance(session, Session):
            return session
    return _try(step, tenant, asked)


def _fault(asked: Acquire) -> Invalid | Unsupported | None:
    """What is wrong with the command's shape, if anything."""
    if asked.mode == PERMIT and not 0 < asked.slots <= limits.HOLDERS_PER_KEY_MAX:
        return Invalid(f"slots is not between 1 and {limits.HOLDERS_PER_KEY_MAX}")
    if len(asked.keys) > 1:
        return Unsupported("sets of keys")
    if not asked.keys or not asked.keys[0]:
        return Invalid("an acquire needs a key")
    if len(asked.lease_ids) != 1 or not asked.lease_ids[0]:
        return Invalid("an acquire needs one lease_id for each key")
    if not asked.request_id:
        return Invalid("an acquire needs a request_id")
    if asked.session_id is None:
        if asked.ttl_ms is None or not 0 < asked.ttl_ms <= DURATION_MS_MAX:
            return Invalid("a private session needs a ttl_ms above 0")
    elif not asked.session_id or asked.ttl_ms is not None:
        return Invalid("an acquire has either a session_id or a ttl_ms")
    if not 0 <= asked.grace_ms <= limits.GRACE_MS_MAX:
        return Invalid(f"grace_ms is not between 0 and {limits.GRACE_MS_MAX}")
    return None


def _replay(step: Step, asked: Acquire, lease: Lease) -> Result:
    """The request was granted before: answer that grant. If nobody has claimed it yet, this is the claim."""
    if lease.key != asked.keys[0]:
        return REQUEST_REUSED
    settle(step, lease.tenant, lease.key)
    if (lease.tenant, lease.lease_id) not in step.table.leases:
        return Lost("expired")
    if lease.claim_deadline_ms:
        return Granted([step.table.grant_of(claim_lease(step, lease))], False, True)
    return Granted([step.table.grant_of(lease)], True, True)


def _poll(step: Step, waiter: Waiter) -> Result:
    """The request is queued: keep its place, and answer the grant if its turn has come in this very entry."""
    waiter = refresh(step, waiter)
    settle(step, waiter.tenant, waiter.keys[0])
    lease = step.table.leases.get((waiter.tenant, waiter.lease_ids[0]))
    if lease is not None:
        return Granted([step.table.grant_of(claim_lease(step, lease))], False, True)
    return waiting(step, waiter)


def _try(step: Step, tenant: TenantId, asked: Acquire) -> Result:
    """A request of which nothing is known."""
    table = step.table
    key, lease_id = asked.keys[0], asked.lease_ids[0]
    ref = (tenant, lease_id)
    if table.id_known(ref):
        return LEASE_ID_IN_USE
    settle(step, tenant, key)
    family: Family = (asked.mode, asked.slots if asked.mode == PERMIT else 0)
    present = present_family(table, tenant, key)
    own = _own_lease(step, asked)
    if present is not None and (not go_together(present, family) or (own and own.mode != asked.mode)):
        mode, slots = present if own is None else (own.mode, present[1])
        return ModeConflict(mode, asked.mode, key, slots, family[1])
    if own is not None:
        if asked.if_held == "return":
            if own.claim_deadline_ms:
                own = claim_lease(step, own)
            return Granted([table.grant_of(own)], False, True)
        return Held(key, [holder_of(step, own)], _queue_length(step, tenant, key), 0)
    if not _is_free(step, tenant, key, family):
        if asked.wait:
            return enqueue(step, tenant, asked)
        blocked_until_ms = blocked_until(step, tenant, key)
        holders = holders_of(step, tenant, key)
        return Held(key, holders, _queue_length(step, tenant, key), blocked_until_ms)
    if not step.tokens_left(tenant):
        return TokensExhausted()
    if asked.session_id is None:
        ttl_ms = asked.ttl_ms or 0
        session = Session(
            tenant,
            lease_id,
            asked.owner,
            ttl_ms,
            step.now_ms + ttl_ms,
            True,
            EMPTY_METADATA,
            step.wall_ms,
            step.wall_ms,
        )
        table.add_session(ref, session)
    else:
        session = table.sessions[(tenant, asked.session_id)]
    session_id = session.session_id
    lease = grant(step, ref, key, session_id, asked, 0)
    if session.private:
        table.watch_session(ref)
    return Granted([Grant(lease, session)], False, True)


def _is_free(step: Step, tenant: TenantId, key: str, family: Family) -> bool:
    """Whether a settled key can be granted to a newcomer: there is room beside its holders, nobody came
    before, no grace period runs."""
    return (
        step.table.key_queue(tenant, key) is None
        and has_room(step.table, tenant, key, family)
        and not blocked_until(step, tenant, key)
    )


def _own_lease(step: Step, asked: Acquire) -> Lease | None:
    """The lease that the asking session holds on the key already."""
    if asked.session_id is None:
        return None
    leases = step.table.leases_of(asked.tenant, asked.keys[0])
    return next((lease for lease in leases if lease.session_id == asked.session_id), None)


def _queue_length(step: Step, tenant: TenantId, key: str) -> int:
    queue = step.table.key_queue(tenant, key)
    return len(queue) if queue is not None else 0


def claim(step: Step, asked: Claim) -> Result:
    """Confirm a grant that was made to a waiter."""
    table = step.table
    ref = (asked.tenant, asked.lease_id)
    lease = table.leases.get(ref)
    if lease is None:
        ended = table.ended.get(ref)
        return Lost(ended.reason if ended is not None else "unknown")
    if not lease_live(step, lease):
        expire_lease(step, lease)
        return Lost("expired")
    if not lease.claim_deadline_ms:
        return Granted([table.grant_of(lease)], True, True)
    return Granted([table.grant_of(claim_lease(step, lease))], False, True)


def abandon(step: Step, asked: Abandon) -> Result:
    """Give a request up, whatever has become of it. If it arrives late after all, it is not granted."""
    table = step.table
    tenant = step.counters(asked.tenant).tenant
    ref = (tenant, asked.session_id or "", asked.request_id)
    if asked.poll_deadline_ms is not None:
        waiter = table.waiters.get(ref)
        same = waiter is not None and waiter.poll_deadline_ms == asked.poll_deadline_ms
        return _leave(step, waiter) if waiter is not None and same else Abandoned(False)
    fate = table.indexes.fate(*ref)
    if isinstance(fate, Lease):
        if not lease_live(step, fate):
            expire_lease(step, fate)
            return Abandoned(False)
        end_lease(step, fate, "abandoned")
        serve(step, tenant, fate.key)
        return Abandoned(True)
    if isinstance(fate, EndedLease):
        return Abandoned(False)
    table.remember_abandoned(ref, AbandonedRequest(*ref, step.now_ms))
    waiter = table.waiters.get(ref)
    return Abandoned(False) if waiter is None else _leave(step, waiter)


def _leave(step: Step, waiter: Waiter) -> Abandoned:
    cause = waiter_dead(step, waiter)
    drop_waiter(step, waiter, cause or "abandoned")
    settle(step, waiter.tenant, waiter.keys[0])
    return Abandoned(not cause)
