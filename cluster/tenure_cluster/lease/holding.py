"""How keys are held: granting, ending, and handing on to whoever waits.

Modes. A key is held by one exclusive lease, or by any number of shared ones, or as a pool of permits with as
many slots as its first holder said. Shared and exclusive go with one another in one queue; a pool does not
go with them, nor with a pool of another number of slots (see family()). The shared holders of one phase, from
the first that holds until the last has ended, carry one token.

Every command that touches a key first calls settle(): it ends what has expired by the entry's time and
grants what is free to the waiters, first come first served, for as long as the first can be granted. So
readers behind a writer are granted together, a waiting writer stops later readers, expiry is as exact as
the entry's stamp, whenever the reaper comes, and nothing is free while somebody waits for it (unless a
grace period runs).

Sets of keys. A waiting set stands in the queue of each of its keys and is granted when all of them are free
for it, in one entry: all or none. Until then it reserves nothing: for SET_PATIENCE_MS whoever comes after it
and can be granted passes it. From then on nobody does, so that its keys are kept for it one by one as they
come free. Since tickets order all queues alike, sets can't block one another in a circle.

Ending an expired session through one of its keys ends the leases of that key alone, so the cost of touching a
key does not depend on how much the session holds. The rest of the session ends where it is met, or when
the reaper's Expire takes it.
"""

from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.events import EventKind
from tenure_cluster.lease.indexes import KeyQueue, KeyRef, SessionRef
from tenure_cluster.lease.liveness import drop_dead, lease_live, waiter_dead
from tenure_cluster.lease.results import Holder
from tenure_cluster.lease.step import InvariantBroken, Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import (
    ALONE,
    OF_PRIVATE_SET,
    OF_SET,
    ClusterTime,
    EndedLease,
    EndReason,
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

EXCLUSIVE: Final[Mode] = "exclusive"
SHARED: Final[Mode] = "shared"
PERMIT: Final[Mode] = "permit"


class Wanted(NamedTuple):
    """What a grant needs to know, where no acquire asks for it."""

    mode: Mode
    slots: int
    owner: str
    grace_ms: int
    metadata: dict[str, str]
    request_id: RequestId
    progress_ms: int


Family: TypeAlias = tuple[Mode, int]
"""A mode with its number of slots, 0 unless it is permit."""

_EVENT_OF_REASON: Final[dict[EndReason, EventKind]] = {
    "released": "released",
    "abandoned": "released",
    "session_closed": "released",
    "expired": "expired",
    "broken": "broken",
    "handed_over": "handed_over",
}


def settle(step: Step, tenant: TenantId, key: Key) -> Lease | None:
    """Bring a key up to this entry's time. Returns its live lease, of several the first; with None the key is
    free or in its grace period (see blocked_until())."""
    serve(step, tenant, key)
    return step.table.holder(tenant, key)


def blocked_until(step: Step, tenant: TenantId, key: Key) -> ClusterTime:
    """End of the key's grace period if it runs at this entry, else 0."""
    state = step.table.keys.get((tenant, key))
    return state.blocked_until_ms if state is not None and state.blocked_until_ms > step.now_ms else 0


def expire_lease(step: Step, lease: Lease) -> None:
    """End a lease that has expired by this entry and hand its key on."""
    settle(step, lease.tenant, lease.key)


def bury(step: Step, tenant: TenantId, key: Key) -> None:
    """End the leases of a key that have expired, without handing it on."""
    held = step.table.leases_of(tenant, key)
    for lease in tuple(held) if held else ():
        if not lease_live(step, lease):
            end_lease(step, lease, "expired")


# What is free


def present_family(table: LeaseTable, tenant: TenantId, key: Key) -> Family | None:
    """In which mode a settled key is held, or else waited for; None if it is neither."""
    lease = table.holder(tenant, key)
    if lease is not None:
        return lease.mode, table.keys[(tenant, key)].slots if lease.mode == PERMIT else 0
    queue = table.key_queue(tenant, key)
    if queue is None:
        return None
    waiter = table.waiters[queue.head()]
    return waiter.mode, waiter.slots


def go_together(one: Family, other: Family) -> bool:
    """Whether both can stand in one queue: a pool only with the same pool."""
    return one == other or PERMIT not in (one[0], other[0])


def has_room(table: LeaseTable, tenant: TenantId, key: Key, family: Family) -> bool:
    """Whether a settled key could be granted in this mode beside its holders, if nobody waited."""
    mode, slots = family
    first = table.holder(tenant, key)
    if first is None:
        return True
    if mode == EXCLUSIVE or first.mode != mode:
        return False
    places = slots if mode == PERMIT else limits.HOLDERS_PER_KEY_MAX
    return len(table.leases_of(tenant, key)) < places


def steps_aside(step: Step, waiter: Waiter) -> bool:
    """Whether a waiter lets others pass who can be granted before it can: a set of keys, for a while."""
    return len(waiter.keys) > 1 and step.now_ms < waiter.queued_ms + limits.SET_PATIENCE_MS


def may_pass(step: Step, tenant: TenantId, session_id: SessionId | None, others_max: int) -> bool:
    """Whether a session may be granted a key before a set that steps aside. One that waits for something else
    may not: the set would wait for it, and it perhaps for the set."""
    if session_id is None:
        return True
    return len(step.table.indexes.session_waiters.get((tenant, session_id), ())) <= others_max


def all_step_aside(step: Step, tenant: TenantId, key: Key, ahead_of: int | None = None) -> bool:
    """Whether all who wait for a key, or all before a ticket, let others pass."""
    queue = step.table.key_queue(tenant, key)
    if queue is None:
        return True
    count = len(queue) if ahead_of is None else queue.position(ahead_of) - 1
    return count <= limits.SETS_PASSED_MAX and count <= _leading_sets(step, (tenant, key), queue)


def _leading_sets(step: Step, ref: KeyRef, queue: KeyQueue) -> int:
    """How many waiters at the head of a queue let others pass, counted no further than is asked for. Kept for
    the entry: each of many sets that wait for the same keys asks for it."""
    known = step.leading_sets.get(ref)
    if known is None:
        known, waiters = 0, step.table.waiters
        places = min(len(queue), limits.SETS_PASSED_MAX)
        while known < places and steps_aside(step, waiters[queue.at(known)]):
            known += 1
        step.leading_sets[ref] = known
    return known


def _free_slot(table: LeaseTable, tenant: TenantId, key: Key) -> int:
    taken = {lease.slot for lease in table.leases_of(tenant, key)}
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


# Granting


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
    """The same for a lease that goes on with a new token."""
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


# Ending


def end_lease(step: Step, lease: Lease, reason: EndReason, detail: str = "") -> None:
    """End a lease without handing its key on. Its private session ends with it. A grant that was never
    claimed leaves no grace period: nobody knew of it, so no late write is to be waited for."""
    table = step.table
    tenant, key = lease.tenant, lease.key
    ref = (tenant, lease.lease_id)
    if reason == "expired":
        life = lease.life
        if table.sessions[(tenant, lease.session_id)].closed:
            reason = "session_closed"
        elif life is not None and 0 < life.progress_deadline_ms == table.lease_deadline(lease):
            detail = "no_progress"
    grace_end_ms = 0
    if lease.grace_ms and not lease.claim_deadline_ms:
        if reason == "expired":
            # Counted from the deadline: finding the expiry late does not prolong the grace.
            grace_end_ms = table.lease_deadline(lease) + lease.grace_ms
        elif reason == "broken":
            grace_end_ms = step.now_ms + lease.grace_ms
    ended = EndedLease(
        tenant,
        lease.lease_id,
        key,
        lease.scope,
        lease.request_id,
        lease.token,
        reason,
        step.now_ms,
        lease.in_set != ALONE,
        detail if reason in ("expired", "broken") else "",
    )
    state = table.key_state(tenant, key)
    if state is None:
        raise InvariantBroken(f"held key {key!r} without state")
    table.remove_lease(ref, lease, ended)
    step.changed((lease.tenant, key))
    if lease.private and (lease.in_set == ALONE or not table.lease_count(tenant, lease.session_id)):
        table.remove_session((tenant, lease.session_id))
    idle_since_ms = -1 if table.in_use(tenant, key) else step.now_ms
    # Grace periods of several holders of a key run side by side; the longest counts.
    grace_end_ms = max(grace_end_ms, state.blocked_until_ms)
    table.put_key_state(
        KeyState(
            tenant, key, state.mode, state.slots, state.guards, state.guard_mode, grace_end_ms, idle_since_ms
        )
    )
    detail = detail or ("" if reason in ("released", "expired") else reason)
    step.tell(_EVENT_OF_REASON[reason], lease, detail)


# Handing on


def serve(step: Step, tenant: TenantId, key: Key) -> None:
    """Hand on what has expired or is free to the waiters, first come first served; so too with every other
    key that was touched on the way. Each waiter has a claim window to confirm its grant."""
    if not step.unserved and not step.serving and step.table.key_queue(tenant, key) is None:
        bury(step, tenant, key)  # nobody waits, so nothing is handed on
        return
    step.unserved[(tenant, key)] = None
    if step.serving:
        return
    step.serving = True
    while step.unserved:
        ref = next(iter(step.unserved))
        del step.unserved[ref]
        _serve_key(step, *ref)
    step.serving = False


def _serve_key(step: Step, tenant: TenantId, key: Key) -> None:
    table = step.table
    bury(step, tenant, key)
    if table.key_queue(tenant, key) is None:
        return
    drop_dead(step, tenant, key)
    place = 0
    while (queue := table.key_queue(tenant, key)) is not None and place < len(queue):
        waiter = table.waiters[queue.at(place) if place else queue.head()]
        if waiter_dead(step, waiter):
            return  # more of them than this entry may drop
        if step.grants_left <= 0 or step.looks_left <= 0:
            _put_off(step, tenant, key)
            return
        if _is_its_turn(step, waiter, key):
            _grant_waiter(step, waiter)
        elif place < limits.SETS_PASSED_MAX and steps_aside(step, waiter):
            place += 1
        else:
            return


def _put_off(step: Step, tenant: TenantId, key: Key) -> None:
    """The entry has done enough for waiters. The reaper goes on with this key, because a grace period of it
    ends just now; and so does whatever command comes to the key before. A key that has never been held, where
    a set keeps others waiting, gets a state for that, without a guard."""
    holder = step.table.holder(tenant, key)
    if holder is not None and holder.mode == EXCLUSIVE:
        return
    state = step.table.key_state(tenant, key)
    if state is None:
        state = KeyState(step.counters(tenant).tenant, key, EXCLUSIVE, 0, {}, None, 0, -1)
    step.table.put_key_state(replace(state, blocked_until_ms=max(state.blocked_until_ms, step.now_ms, 1)))


def _is_its_turn(step: Step, waiter: Waiter, served: Key) -> bool:
    """Whether all that a waiter wants is free for it now: there is room, and nobody before it can't be
    passed. ``served`` is settled; its other keys are looked at in their order, and settled on the way."""
    table = step.table
    tenant = waiter.tenant
    if not step.tokens_left(tenant, len(waiter.keys)) or step.is_stuck(waiter.ticket):
        return False
    step.looks_left -= 1
    for key in waiter.keys:
        if key != served:
            step.looks_left -= 1
            told = len(step.events)
            bury(step, tenant, key)
            drop_dead(step, tenant, key)
            if len(step.events) > told:
                step.unserved[(tenant, key)] = None
        room = has_room(table, tenant, key, (waiter.mode, waiter.slots))
        if not room or blocked_until(step, tenant, key):
            return _stuck(step, waiter, key)
        queue = table.key_queue(tenant, key)
        if queue is None or queue.tickets[0] == waiter.ticket:
            continue
        if not all_step_aside(step, tenant, key, waiter.ticket):
            return _stuck(step, waiter, key)
        if not may_pass(step, tenant, None if waiter.private else waiter.session_id, 1):
            return False
    return True


def _stuck(step: Step, waiter: Waiter, key: Key) -> bool:
    if len(waiter.keys) > 1:
        step.note_stuck(waiter.ticket, (waiter.tenant, key))
    return False


def _grant_waiter(step: Step, waiter: Waiter) -> None:
    table = step.table
    claim_deadline_ms = step.now_ms + limits.CLAIM_WINDOW_MS
    table.remove_waiter(waiter)
    step.grants_left -= len(waiter.keys)
    for key in waiter.keys:
        step.changed((waiter.tenant, key))
    ref = (waiter.tenant, waiter.session_id)
    if waiter.private:
        table.replace_session(ref, replace(table.sessions[ref], deadline_ms=claim_deadline_ms))
    if len(waiter.keys) > 1:
        # It may have been in the way of others that go beside it.
        step.unserved.update(((waiter.tenant, key), None) for key in waiter.keys)
    grant_all(step, ref, waiter, table.sessions[ref], claim_deadline_ms)


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


def holders_of(step: Step, tenant: TenantId, key: Key) -> list[Holder]:
    """What anybody of the tenant may know of a key's leases, at most HOLDERS_NAMED_MAX of them."""
    leases = step.table.leases_of(tenant, key)
    return [holder_of(step, lease) for lease in islice(leases, limits.HOLDERS_NAMED_MAX)]


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
