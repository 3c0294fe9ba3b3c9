"""Granting a key that has room, and confirming a grant: tokens are minted here, and guards raised to them."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.indexes import SessionRef
from tenure_cluster.lease.room import PERMIT, SHARED, blocked_until
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import (
    ALONE,
    OF_PRIVATE_SET,
    OF_SET,
    ClusterTime,
    FencingToken,
    Guard,
    Key,
    KeySet,
    KeyState,
    Lease,
    LeaseId,
    LeaseLife,
    Mode,
    RequestId,
    Session,
    SessionId,
    TenantId,
    Waiter,
)

EMPTY_METADATA: Final[dict[str, str]] = {}
"""Shared by everything without metadata; values of the table are never changed in place."""


class Wanted(NamedTuple):
    """What a grant needs to know, where no acquire asks for it."""

    mode: Mode
    slots: int
    owner: str
    grace_ms: int
    metadata: dict[str, str]
    request_id: RequestId
    progress_ms: int


def _free_slot(table: LeaseTable, tenant: TenantId, key: Key) -> int:
    taken = {lease.slot for lease in table.leases_of(tenant, key)}
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def grant(
    step: Step,
    ref: tuple[TenantId, LeaseId],
    key: Key,
    session_id: SessionId,
    wanted: Acquire | Waiter | Wanted,
    claim_deadline_ms: ClusterTime,
    in_set: int = ALONE,
    same_slot: int | None = None,
) -> Lease:
    """Grant a key that has room: mint the token, raise the guard's floor to it, tell the watchers. Who joins
    a shared phase gets its token."""
    table = step.table
    tenant, lease_id = ref
    first = table.holder(tenant, key)
    slot = same_slot or 0
    if same_slot is None and wanted.mode == PERMIT:
        slot = _free_slot(table, tenant, key)
    joins = first is not None and wanted.mode == SHARED
    owner = table.shared_owner(wanted.owner)
    if first is not None and joins:
        token = first.token
        revision = step.emit("granted", tenant, key, owner, token, "", wanted.mode, slot)
    else:
        token, revision = step.mint_for(tenant, key, owner, wanted.mode, slot)
    lease = Lease(
        tenant,
        lease_id,
        key,
        wanted.mode,
        slot,
        session_id,
        owner,
        token,
        wanted.grace_ms,
        wanted.metadata or EMPTY_METADATA,
        wanted.request_id,
        claim_deadline_ms,
        step.now_ms,
        step.wall_ms,
        revision,
        in_set,
        _life(step, wanted.progress_ms, claim_deadline_ms) if wanted.progress_ms else None,
    )
    table.add_lease(ref, lease)
    _raise_floor_by_grant(step, lease, wanted.slots if wanted.mode == PERMIT else 0)
    return lease


def _life(step: Step, progress_ms: int, claim_deadline_ms: ClusterTime) -> LeaseLife:
    """Progress is demanded from the claim on, or from the grant if it needs no claim."""
    return LeaseLife(progress_ms, 0 if claim_deadline_ms else step.now_ms + progress_ms)


def grant_all(
    step: Step,
    session_ref: SessionRef,
    wanted: Acquire | Waiter,
    session: Session,
    claim_deadline_ms: ClusterTime,
) -> list[Lease]:
    """Grant all keys that were asked for, in their order; each has room. A private session and its lease
    share their reference as one object."""
    tenant, session_id = session_ref
    refs = [session_ref if lease_id == session_id else (tenant, lease_id) for lease_id in wanted.lease_ids]
    in_set = ALONE
    if len(refs) > 1:
        in_set = OF_PRIVATE_SET if session.private else OF_SET
        scope = "" if session.private else session.session_id
        key_set = KeySet(tenant, scope, wanted.request_id, wanted.keys, wanted.lease_ids)
        step.table.add_set((tenant, scope, wanted.request_id), key_set)
    return [
        grant(step, ref, key, session.session_id, wanted, claim_deadline_ms, in_set)
        for ref, key in zip(refs, wanted.keys, strict=True)
    ]


def raise_floor(step: Step, lease: Lease) -> None:
    """Raise the guard's floor to the new token of a lease that goes on."""
    state = step.table.keys.get((lease.tenant, lease.key))
    _raise_floor_by_grant(step, lease, state.slots if state is not None else 0)


def _raise_floor_by_grant(step: Step, lease: Lease, slots: int) -> None:
    """From here on nothing older than this grant passes its slot's guard. A phase in another mode or with
    another number of slots forgets the guards of the other slots: no token is at the floor of a slot that has
    no guard. A grace period runs on: of a pool, or of readers, one may hand over while another's is kept."""
    table = step.table
    tenant, key = ref = (lease.tenant, lease.key)
    state = table.keys.get(ref)
    if state is None:
        if lease.mode != PERMIT:
            return
        state = KeyState(tenant, key, lease.mode, slots, {}, None, 0, -1)
    blocked_until_ms = blocked_until(step, tenant, key)
    alone = lease.mode != SHARED
    slots = slots if lease.mode == PERMIT else 0
    if lease.mode != PERMIT and state.guard_mode is None and not blocked_until_ms:
        # Never written: while it is held, the floor follows from the lease.
        table.drop_key_state(ref)
        return
    whose = (lease.lease_id, lease.owner) if alone else ("", "")
    same_pool = lease.mode == PERMIT and (state.mode, state.slots) == (PERMIT, slots)
    kept = state.guards if same_pool else {}
    guards = {**kept, lease.slot: _raised(state.guards.get(lease.slot), lease.token, *whose)}
    table.put_key_state(
        KeyState(tenant, key, lease.mode, slots, guards, state.guard_mode, blocked_until_ms, -1)
    )


def _raised(guard: Guard | None, floor: FencingToken, lease_id: LeaseId = "", owner: str = "") -> Guard:
    """The guard with its floor at a token that was just minted, for a grant, for a shared phase or for
    nobody."""
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


def claim_all(step: Step, lease: Lease) -> list[Lease]:
    """Confirm a grant that was made to a waiter, of a set all that is left of it. Returns what was claimed,
    in the order of the keys; what had been claimed before stays as it is."""
    return [
        claim_lease(step, member) if member.claim_deadline_ms else member
        for member in step.table.together(lease)
    ]


def claim_lease(step: Step, lease: Lease) -> Lease:
    """Confirm a grant that was made to a waiter; its full TTL counts from here.

    The deadline of a private session was the end of the claim window, which its holder was never told and
    which may be later. An explicit session's was promised to its holder and stays if it is later."""
    table = step.table
    ref = (lease.tenant, lease.lease_id)
    claimed = replace(lease, claim_deadline_ms=0)
    if lease.life is not None and lease.life.progress_ms:
        deadline_ms = step.now_ms + lease.life.progress_ms
        claimed = replace(claimed, life=replace(lease.life, progress_deadline_ms=deadline_ms))
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
        table.watch_session(session_ref)
    return claimed
