"""Mutants of pools whose number of slots an administrator changes."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_GRANTING = "tenure_cluster.lease.granting"
_RESIZING = "tenure_cluster.lease.resizing"

SLOT_BEYOND_THE_NUMBER = Mutant(
    "slot beyond the number of a pool",
    "a permit gets the slot after the highest that is out, though the pool has no more that many",
    (
        Edit(
            f"{_GRANTING}:_free_slot",
            "return next(slot for slot in range(len(taken) + 1) if slot not in taken)",
            "return max(taken, default=-1) + 1",
        ),
    ),
    profiles.RESIZED_POOLS,
)

SHRINKING_FORGOTTEN = Mutant(
    "pool that does not shrink",
    "fewer slots are promised to an administrator, and as many as before are granted",
    (
        Edit(
            f"{_RESIZING}:resize",
            "table.put_key_state(replace(state, slots=slots))",
            "table.put_key_state(replace(state, slots=max(slots, before)))",
        ),
        Edit(
            f"{_RESIZING}:_tell_waiters",
            "replace(waiter, slots=slots)",
            "replace(waiter, slots=max(slots, waiter.slots))",
        ),
    ),
    profiles.RESIZED_POOLS,
)

GROWTH_UNNOTICED = Mutant(
    "growth that nobody hears of",
    "who waits for a pool is not served when it gets more slots",
    (
        Edit(
            f"{_RESIZING}:resize",
            "str(slots), PERMIT)\n        serve(step, tenant, key)",
            "str(slots), PERMIT)",
        ),
    ),
    profiles.RESIZED_POOLS,
)

RESIZE_TAKES_AWAY = Mutant(
    "shrinking that takes permits away",
    "who has a slot beyond the new number loses it at once",
    (
        Edit(
            f"{_RESIZING}:resize",
            "        _tell_waiters(step, tenant, key, slots)\n",
            "        _tell_waiters(step, tenant, key, slots)\n"
            "        from tenure_cluster.lease.holding import end_lease\n"
            "        for lease in tuple(table.leases_of(tenant, key)):\n"
            "            if lease.slot >= slots:\n"
            "                end_lease(step, lease, 'expired')\n",
        ),
    ),
    profiles.RESIZED_POOLS,
)

MUTANTS = (SLOT_BEYOND_THE_NUMBER, SHRINKING_FORGOTTEN, GROWTH_UNNOTICED, RESIZE_TAKES_AWAY)
