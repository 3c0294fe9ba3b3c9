"""The queue of a key: joining it, polling in it, and what a waiter is told.

A waiter stays as long as it polls: each poll gives it WAITER_SILENCE_MS more, however long it has been
waiting. What counts is its own sign of life, never its age. A private session that waits lives by the
polls too; an explicit one by its own renewals.
"""

from collections.abc import Callable
from itertools import islice

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.deadlock import find_cycle
from tenure_cluster.lease.granting import EMPTY_METADATA
from tenure_cluster.lease.holding import holders_of
from tenure_cluster.lease.liveness import refresh_idleness
from tenure_cluster.lease.results import Deadlock, Holder, QueueFull, Waiting
from tenure_cluster.lease.room import PERMIT
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import Key, Session, TenantId, Waiter


def enqueue(step: Step, tenant: TenantId, asked: Acquire) -> Waiting | QueueFull | Deadlock:
    """Put an acquire at the end of its keys' queues."""
    table = step.table
    for key in asked.keys:
        queue = table.key_queue(tenant, key)
        if queue is not None and len(queue) >= limits.WAITERS_PER_KEY_MAX:
            return QueueFull(limits.WAITERS_PER_KEY_MAX)
    cycle = find_cycle(step, tenant, asked)
    if cycle is not None:
        return Deadlock(cycle)
    waiter = _new_waiter(step, tenant, asked)
    table.last_ticket = waiter.ticket
    if waiter.private:
        session = Session(
            tenant,
            waiter.session_id,
            waiter.owner,
            table.shared_ttl(waiter.ttl_ms),
            waiter.poll_deadline_ms,
            True,
            EMPTY_METADATA,
            step.wall_ms,
            step.wall_ms,
        )
        table.add_session((tenant, waiter.session_id), session)
    table.add_waiter(waiter)
    for key in waiter.keys:
        refresh_idleness(step, tenant, key)
        step.emit("queue_joined", tenant, key, waiter.owner, 0, "", waiter.mode)
    return waiting(step, waiter)


def _new_waiter(step: Step, tenant: TenantId, asked: Acquire) -> Waiter:
    private = asked.session_id is None
    return Waiter(
        tenant,
        asked.request_id,
        asked.lease_ids[0] if asked.session_id is None else asked.session_id,
        private,
        asked.keys,
        asked.lease_ids,
        asked.mode,
        asked.slots if asked.mode == PERMIT else 0,
        asked.owner,
        asked.ttl_ms or 0,
        asked.grace_ms,
        asked.metadata or EMPTY_METADATA,
        step.table.last_ticket + 1,
        step.now_ms + limits.WAITER_SILENCE_MS,
        step.now_ms,
        step.wall_ms,
        asked.progress_ms,
    )


def refresh(step: Step, waiter: Waiter) -> Waiter:
    """A waiter has polled: it keeps its place and may be silent again for as long as at first."""
    table = step.table
    deadline_ms = step.now_ms + limits.WAITER_SILENCE_MS
    polled = replace(waiter, poll_deadline_ms=deadline_ms)
    table.replace_polled_waiter(polled)
    if polled.private:
        ref = (polled.tenant, polled.session_id)
        table.replace_session(ref, replace(table.sessions[ref], deadline_ms=deadline_ms))
    return polled


def waiting(step: Step, waiter: Waiter) -> Waiting:
    """What a waiter is told: its place, who holds, and whose turn comes before; of a set the greatest of its
    places, and the holders of all its keys."""
    return place_of(step.table, waiter, lambda key: holders_of(step, waiter.tenant, key))


def place_of(table: LeaseTable, waiter: Waiter, holders_of_key: Callable[[Key], list[Holder]]) -> Waiting:
    """Where a waiter stands; ``holders_of_key`` says who holds a key."""
    queues = [table.key_queue(waiter.tenant, key) for key in waiter.keys]
    position, before = 1, list[str]()
    for queue in queues:
        if queue is not None and queue.position(waiter.ticket) > position:
            position = queue.position(waiter.ticket)
            named = min(position - 1, limits.HOLDERS_NAMED_MAX)
            before = [table.waiters[ref].owner for ref in islice(queue.in_order(), named)]
    holders = [holder for key in waiter.keys for holder in holders_of_key(key)]
    return Waiting(position, holders[: limits.HOLDERS_NAMED_MAX], before)
