"""How keys are held: ending, and handing on to whoever waits; granting.py grants.

Modes. A key is held by one exclusive lease, or by any number of shared ones, or as a pool of permits with as
many slots as its first holder said. Shared and exclusive go with one another in one queue; a pool does not
go with them, nor with a pool of another number of slots (see room.py). The shared holders of one phase, from
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
from typing import Final

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.events import EventKind
from tenure_cluster.lease.granting import grant_all
from tenure_cluster.lease.liveness import drop_dead, lease_live, waiter_dead
from tenure_cluster.lease.results import Holder
from tenure_cluster.lease.room import (
    EXCLUSIVE,
    all_step_aside,
    blocked_until,
    has_room,
    may_pass,
    steps_aside,
)
from tenure_cluster.lease.rules import EXPIRED_BEFORE_CLOSED
from tenure_cluster.lease.step import InvariantBroken, Step
from tenure_cluster.lease.types import (
    ALONE,
    EndedLease,
    EndReason,
    Key,
    KeyState,
    Lease,
    TenantId,
    Waiter,
)

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


def expire_lease(step: Step, lease: Lease) -> None:
    """End a lease that has expired by this entry and hand its key on."""
    settle(step, lease.tenant, lease.key)


def bury(step: Step, tenant: TenantId, key: Key) -> None:
    """End the leases of a key that have expired, without handing it on."""
    held = step.table.leases_of(tenant, key)
    for lease in tuple(held) if held else ():
        if not lease_live(step, lease):
            end_lease(step, lease, "expired")


# Ending


def end_lease(step: Step, lease: Lease, reason: EndReason, detail: str = "") -> None:
    """End a lease without handing its key on. Its private session ends with it. A grant that was never
    claimed leaves no grace period: nobody knew of it, so no late write is to be waited for."""
    table = step.table
    tenant, key = lease.tenant, lease.key
    ref = (tenant, lease.lease_id)
    if reason == "expired":
        life, session = lease.life, table.sessions[(tenant, lease.session_id)]
        own_ms = lease.claim_deadline_ms or (0 if life is None else life.progress_deadline_ms)
        # One that was over by then, whoever came to see it, had expired; closing takes no grace period away.
        had_expired = 0 < own_ms <= session.deadline_ms and table.rules >= EXPIRED_BEFORE_CLOSED
        if session.closed and not had_expired:
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
