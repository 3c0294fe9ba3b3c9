"""How keys are held: granting, ending, and handing on to whoever waits.

Every command that touches a key first calls settle(): it ends a lease that has expired by the entry's
time and grants the key to the first live waiter. So expiry is as exact as the entry's stamp, whenever the
reaper comes, and a key is never free while somebody waits for it (unless its grace period runs).

Ending an expired session through one of its keys ends the lease of that key alone, so the cost of touching a
key does not depend on how much the session holds. The rest of the session ends where it is met, or when
the reaper's Expire takes it.
"""

from typing import Final

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.events import EventKind
from tenure_cluster.lease.liveness import drop_dead, lease_live
from tenure_cluster.lease.results import Holder
from tenure_cluster.lease.step import InvariantBroken, Step
from tenure_cluster.lease.types import (
    ClusterTime,
    EndedLease,
    EndReason,
    FencingToken,
    Guard,
    Key,
    KeyState,
    Lease,
    LeaseId,
    Mode,
    RequestId,
    SessionId,
    TenantId,
    Waiter,
)

EMPTY_METADATA: Final[dict[str, str]] = {}
"""Shared by everything without metadata; values of the table are never changed in place."""

EXCLUSIVE: Final[Mode] = "exclusive"

_EVENT_OF_REASON: Final[dict[EndReason, EventKind]] = {
    "released": "released",
    "abandoned": "released",
    "session_closed": "released",
    "expired": "expired",
    "broken": "broken",
}


def settle(step: Step, tenant: TenantId, key: Key) -> Lease | None:
    """Bring a key up to this entry's time. Returns its live lease; with None the key is free or in its grace
    period (see blocked_until())."""
    lease = step.table.holder(tenant, key)
    if lease is not None and lease_live(step, lease):
        drop_dead(step, tenant, key)
        return lease
    if lease is not None:
        end_lease(step, lease, "expired")
    elif step.table.key_queue(tenant, key) is None:
        return None
    serve(step, tenant, key)
    return step.table.holder(tenant, key)


def blocked_until(step: Step, tenant: TenantId, key: Key) -> ClusterTime:
    """End of the key's grace period if it runs at this entry, else 0."""
    state = step.table.keys.get((tenant, key))
    return state.blocked_until_ms if state is not None and state.blocked_until_ms > step.now_ms else 0


def expire_lease(step: Step, lease: Lease) -> None:
    """End a lease that has expired by this entry and hand its key on."""
    end_lease(step, lease, "expired")
    serve(step, lease.tenant, lease.key)


def grant(
    step: Step,
    ref: tuple[TenantId, LeaseId],
    key: Key,
    session_id: SessionId,
    owner: str,
    grace_ms: int,
    metadata: dict[str, str],
    request_id: RequestId,
    claim_deadline_ms: ClusterTime,
) -> Lease:
    """Grant a free key: mint the token, raise the guard's floor to it, tell the watchers."""
    table = step.table
    tenant, lease_id = ref
    token = step.mint(tenant)
    revision = step.emit("granted", tenant, key, owner, token)
    lease = Lease(
        tenant,
        lease_id,
        key,
        EXCLUSIVE,
        0,
        session_id,
        owner,
        token,
        grace_ms,
        metadata or EMPTY_METADATA,
        request_id,
        claim_deadline_ms,
        step.now_ms,
        step.wall_ms,
        revision,
    )
    table.add_lease(ref, lease)
    _raise_floor_by_grant(step, lease)
    return lease


def _raise_floor_by_grant(step: Step, lease: Lease) -> None:
    """From here on nothing older than this grant passes the guard."""
    table = step.table
    ref = (lease.tenant, lease.key)
    state = table.keys.get(ref)
    if state is None:
        return
    if state.guard_mode is None:
        # Never written: while it is held, the floor follows from the lease.
        table.drop_key_state(ref)
        return
    guard = _raised(state.guards.get(lease.slot), lease.token, lease.lease_id, lease.owner)
    guards = {**state.guards, lease.slot: guard}
    table.put_key_state(replace(state, guards=guards, blocked_until_ms=0, idle_since_ms=-1))


def _raised(guard: Guard | None, floor: FencingToken, lease_id: LeaseId = "", owner: str = "") -> Guard:
    """The guard with its floor at a token that was just minted, for a grant or for nobody."""
    last_token, last_seq = (guard.last_token, guard.last_seq) if guard is not None else (0, 0)
    return Guard(floor, last_token, last_seq, lease_id, owner)


def raise_all_floors(step: Step, tenant: TenantId, key: Key) -> None:
    """Put a new token, which nobody gets, into every guard of a key that nobody holds."""
    table = step.table
    state = table.keys.get((tenant, key))
    if state is None:
        return
    floor = step.mint(tenant)
    guards = {slot: _raised(guard, floor) for slot, guard in state.guards.items()}
    table.put_key_state(replace(state, guards=guards))


def end_lease(step: Step, lease: Lease, reason: EndReason, detail: str = "") -> None:
    """End a lease without handing its key on. Its private session ends with it. A grant that was never
    claimed leaves no grace period: nobody knew of it, so no late write is to be waited for."""
    table = step.table
    tenant, key = lease.tenant, lease.key
    ref = (tenant, lease.lease_id)
    grace_end_ms = 0
    if lease.grace_ms and not lease.claim_deadline_ms:
        if reason == "expired":
            # Counted from the deadline: finding the expiry late does not prolong the grace.
            grace_end_ms = table.lease_deadline(lease) + lease.grace_ms
        elif reason == "broken":
            grace_end_ms = step.now_ms + lease.grace_ms
    private = lease.session_id == lease.lease_id
    ended = EndedLease(
        tenant,
        lease.lease_id,
        key,
        "" if private else lease.session_id,
        lease.request_id,
        lease.token,
        reason,
        step.now_ms,
    )
    state = table.key_state(tenant, key)
    if state is None:
        raise InvariantBroken(f"held key {key!r} without state")
    table.remove_lease(ref, lease, ended)
    if private:
        table.remove_session(ref)
    idle_since_ms = -1 if table.in_use(tenant, key) else step.now_ms
    table.put_key_state(
        KeyState(
            tenant, key, state.mode, state.slots, state.guards, state.guard_mode, grace_end_ms, idle_since_ms
        )
    )
    detail = detail or ("" if reason in ("released", "expired") else reason)
    step.emit(_EVENT_OF_REASON[reason], tenant, key, lease.owner, lease.token, detail)


def serve(step: Step, tenant: TenantId, key: Key) -> None:
    """Hand a key that nobody holds to its first live waiter, which has a claim window to confirm it."""
    if step.table.key_queue(tenant, key) is None:
        return
    drop_dead(step, tenant, key)
    queue = step.table.key_queue(tenant, key)
    if queue is not None and not blocked_until(step, tenant, key) and step.tokens_left(tenant):
        _grant_waiter(step, step.table.waiters[queue.head()])


def _grant_waiter(step: Step, waiter: Waiter) -> None:
    table = step.table
    tenant, lease_id = waiter.tenant, waiter.lease_ids[0]
    claim_deadline_ms = step.now_ms + limits.CLAIM_WINDOW_MS
    table.remove_waiter(waiter)
    if waiter.private:
        ref = (tenant, lease_id)
        table.replace_session(ref, replace(table.sessions[ref], deadline_ms=claim_deadline_ms))
    grant(
        step,
        (tenant, lease_id),
        waiter.keys[0],
        waiter.session_id,
        waiter.owner,
        waiter.grace_ms,
        waiter.metadata,
        waiter.request_id,
        claim_deadline_ms,
    )


def claim_lease(step: Step, lease: Lease) -> Lease:
    """Confirm a grant that was made to a waiter; its full TTL counts from here.

    The deadline of a private session was the end of the claim window, which its holder was never told and
    which may be later. An explicit session's was promised to its holder and stays if it is later."""
    table = step.table
    ref = (lease.tenant, lease.lease_id)
    claimed = replace(lease, claim_deadline_ms=0)
    table.replace_lease(ref, claimed)
    session_ref = (lease.tenant, lease.session_id)
    session = table.sessions[session_ref]
    deadline_ms = step.now_ms + session.ttl_ms
    if not session.private and deadline_ms < session.deadline_ms:
        deadline_ms = session.deadline_ms
    table.replace_session(
        session_ref, replace(session, deadline_ms=deadline_ms, renewed_wall_ms=step.wall_ms)
    )
    if session.private:
        table.watch_session(ref)
    return claimed


def holder_of(step: Step, lease: Lease) -> Holder:
    """What anybody of the tenant may know of a lease."""
    return Holder(
        lease.key,
        lease.owner,
        lease.token,
        lease.mode,
        lease.slot,
        step.table.lease_deadline(lease),
        lease.granted_wall_ms,
        lease.metadata,
    )
