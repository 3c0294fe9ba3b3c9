"""A pool of permits gets another number of slots while it is in use, by an administrator.

With more slots those who wait are granted at once. With fewer nobody loses a permit: a pool that has more
holders than slots grants none until enough of them have ended, and then the lowest slots again. Whoever asks
from now on must name the new number; those who wait for this key alone keep their places. A set of keys that
waits has one number for all its pools and can't follow, so it leaves the queue, and asked again it is told of
the conflict.

The number belongs to the phase in which the pool is in use. When nobody holds and nobody waits any more, the
next acquire decides anew, as ever.
"""

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Resize
from tenure_cluster.lease.holding import serve, settle
from tenure_cluster.lease.liveness import drop_waiter
from tenure_cluster.lease.results import Invalid, ModeConflict, NotHeld, Resized, Result, Unsupported
from tenure_cluster.lease.room import PERMIT, present_family
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Key, TenantId


def resize(step: Step, asked: Resize) -> Result:
    """Change the number of a pool's slots. Asked again, nothing changes."""
    if not 0 < asked.slots <= limits.HOLDERS_PER_KEY_MAX:
        return Invalid(f"slots is not between 1 and {limits.HOLDERS_PER_KEY_MAX}")
    table = step.table
    tenant, key, slots = step.counters(asked.tenant).tenant, asked.key, asked.slots
    settle(step, tenant, key)
    family = present_family(table, tenant, key)
    if family is None:
        return NotHeld()
    mode, before = family
    if mode != PERMIT:
        return ModeConflict(mode, PERMIT, key, 0, slots)
    if before != slots:
        if _keys_of_sets(step, tenant, key) > limits.CLOSE_AT_ONCE_MAX:
            return Unsupported("too many sets of keys wait for the pool")
        _tell_waiters(step, tenant, key, slots)
        state = table.keys.get((tenant, key))
        if state is not None and (state.mode, state.slots) == family:
            table.put_key_state(replace(state, slots=slots))
        step.emit("resized", tenant, key, asked.actor, 0, str(slots), PERMIT)
        serve(step, tenant, key)
    return Resized(slots, before, len(table.leases_of(tenant, key)))


def _keys_of_sets(step: Step, tenant: TenantId, key: Key) -> int:
    return sum(len(waiter.keys) for waiter in step.table.queue(tenant, key) if len(waiter.keys) > 1)


def _tell_waiters(step: Step, tenant: TenantId, key: Key, slots: int) -> None:
    """Let those who wait want a pool of that size, and sets of keys leave."""
    for waiter in step.table.queue(tenant, key):
        if len(waiter.keys) > 1:
            drop_waiter(step, waiter, "resized")
        else:
            step.table.replace_waiter(replace(waiter, slots=slots))
