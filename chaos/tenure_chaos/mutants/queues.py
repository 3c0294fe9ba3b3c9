"""Mutants of waiting: who is granted next, and whether they are still there."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_HOLDING = "tenure_cluster.lease.holding"
_QUEUEING = "tenure_cluster.lease.queueing"

WAITER_NOT_CHECKED = Mutant(
    "waiter granted without checking its session again",
    "a key is handed to the first in its queue, whose session may be over, or who may have fallen silent",
    (Edit(f"{_HOLDING}:_serve_key", "drop_dead(step, tenant, key)", "pass"),),
    profiles.SESSIONS_RUN_OUT,
)

LAST_COME_FIRST_SERVED = Mutant(
    "last come, first served",
    "a key is handed to the waiter who came last",
    (
        Edit(
            "tenure_cluster.lease.indexes:KeyQueue.head",
            "self.tickets[0]",
            "self.tickets[-1]",
        ),
    ),
    profiles.QUEUES,
)

POLL_LOSES_ITS_PLACE = Mutant(
    "poll that loses its place",
    "a waiter who asks again goes to the end of the queue",
    (
        Edit(
            f"{_QUEUEING}:refresh",
            "polled = replace(waiter, poll_deadline_ms=deadline_ms)",
            "table.remove_waiter(waiter)\n"
            "    table.last_ticket += 1\n"
            "    polled = replace(waiter, poll_deadline_ms=deadline_ms, ticket=table.last_ticket)\n"
            "    table.add_waiter(polled)",
        ),
    ),
    profiles.QUEUES,
)

NO_CLAIM_WINDOW = Mutant(
    "no claim window",
    "a grant to a waiter who has gone lasts for the whole TTL",
    (
        Edit(
            f"{_HOLDING}:_grant_waiter",
            "claim_deadline_ms = step.now_ms + limits.CLAIM_WINDOW_MS",
            "claim_deadline_ms = 0",
        ),
        Edit(
            f"{_HOLDING}:_grant_waiter",
            "replace(table.sessions[ref], deadline_ms=claim_deadline_ms)",
            "replace(table.sessions[ref], deadline_ms=step.now_ms + table.sessions[ref].ttl_ms)",
        ),
        Edit(
            f"{_HOLDING}:_grant_waiter",
            "grant_all(step, ref, waiter, table.sessions[ref], claim_deadline_ms)",
            "grant_all(step, ref, waiter, table.sessions[ref], claim_deadline_ms)\n"
            "    if waiter.private:\n"
            "        table.watch_session(ref)",
        ),
    ),
    profiles.QUEUES,
)

WAITER_FORGOTTEN = Mutant(
    "waiter that is forgotten",
    "a key that is released is not handed on",
    (
        Edit(
            "tenure_cluster.lease.sessions:release",
            "serve(step, lease.tenant, lease.key)",
            "pass",
        ),
        Edit(f"{_HOLDING}:settle", "serve(step, tenant, key)", "bury(step, tenant, key)"),
    ),
)

MUTANTS = (
    WAITER_NOT_CHECKED,
    LAST_COME_FIRST_SERVED,
    POLL_LOSES_ITS_PLACE,
    NO_CLAIM_WINDOW,
    WAITER_FORGOTTEN,
)
