"""Whether a key is free for whoever wants it: beside its holders, and before those who wait.

Shared and exclusive go with one another in one queue; a pool of permits does not go with them, nor with a
pool of another number of slots. A waiting set of keys lets others pass for SET_PATIENCE_MS; see holding.py.
"""

from typing import Final, TypeAlias

from tenure_cluster.lease import limits
from tenure_cluster.lease.indexes import KeyQueue, KeyRef
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import (
    ClusterTime,
    Key,
    Mode,
    SessionId,
    TenantId,
    Waiter,
)

EXCLUSIVE: Final[Mode] = "exclusive"
SHARED: Final[Mode] = "shared"
PERMIT: Final[Mode] = "permit"

Family: TypeAlias = tuple[Mode, int]
"""A mode with its number of slots, 0 unless it is permit."""


def blocked_until(step: Step, tenant: TenantId, key: Key) -> ClusterTime:
    """End of the key's grace period if it runs at this entry, else 0."""
    state = step.table.keys.get((tenant, key))
    return state.blocked_until_ms if state is not None and state.blocked_until_ms > step.now_ms else 0


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
