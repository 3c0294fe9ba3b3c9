"""Who still counts at an entry's time, and the leaving of waiters who do not.

A lease has expired when its session has, or when nobody has claimed it in its claim window. A waiter is dead
when it has not polled for too long, or when its explicit session has expired. Whatever is over counts for
nothing from its deadline on, though it may stand in the table until a command meets it.
"""

from msgspec.structs import replace

from tenure_cluster.lease.indexes import KeyQueue
from tenure_cluster.lease.memory import NEVER_MS
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Key, Lease, Session, TenantId, Waiter


def lease_live(step: Step, lease: Lease) -> bool:
    """Whether the lease has not expired at this entry."""
    return step.table.lease_deadline(lease) > step.now_ms


def session_live(step: Step, session: Session) -> bool:
    """Whether the session has not expired at this entry."""
    return session.deadline_ms > step.now_ms


def waiter_dead(step: Step, waiter: Waiter) -> str:
    """Why a waiter can no longer be granted, empty if it can."""
    if waiter.poll_deadline_ms <= step.now_ms:
        return "silent"
    if waiter.private:
        return ""
    session = step.table.sessions[(waiter.tenant, waiter.session_id)]
    if session_live(step, session):
        return ""
    return "session_closed" if session.closed else "session_expired"


def drop_waiter(step: Step, waiter: Waiter, cause: str) -> None:
    """Take a waiter out of its queues. Its private session ends with it. The keys of a set are put down as
    unserved; of a single key the caller knows."""
    table = step.table
    tenant = waiter.tenant
    table.remove_waiter(waiter)
    if waiter.private:
        table.remove_session((tenant, waiter.session_id))
    for key in waiter.keys:
        step.changed((tenant, key))
        refresh_idleness(step, tenant, key)
        if len(waiter.keys) > 1:
            step.unserved[(tenant, key)] = None
        step.emit("queue_left", tenant, key, waiter.owner, 0, cause, waiter.mode)


def drop_dead(step: Step, tenant: TenantId, key: Key) -> None:
    """Drop the key's waiters that can no longer be granted, first come first, as many as the entry may. Looks
    at no others, except that the sessions of waiters are looked through once their earliest known deadline
    has passed."""
    table = step.table
    queue = table.key_queue(tenant, key)
    if queue is None or not step.drops_left:
        return
    dead: dict[int, Waiter] = {}
    for ref in queue.polled.values():
        waiter = table.waiters[ref]
        if waiter.poll_deadline_ms > step.now_ms or len(dead) >= step.drops_left:
            break
        dead[waiter.ticket] = waiter
    if queue.sessions_until_ms <= step.now_ms:
        dead |= _look_at_sessions(step, queue)
        if len(dead) > step.drops_left:
            queue.sessions_until_ms = 0  # some that are over stay: they must be looked for again
    for ticket in sorted(dead)[: step.drops_left]:
        step.drops_left -= 1
        drop_waiter(step, dead[ticket], waiter_dead(step, dead[ticket]))


def _look_at_sessions(step: Step, queue: KeyQueue) -> dict[int, Waiter]:
    """The queue's waiters whose explicit session has expired, by ticket; notes when to look again."""
    table = step.table
    dead: dict[int, Waiter] = {}
    queue.sessions_until_ms = NEVER_MS
    for ref in queue.in_order():
        waiter = table.waiters[ref]
        if waiter.private:
            continue
        deadline_ms = table.sessions[(waiter.tenant, waiter.session_id)].deadline_ms
        if deadline_ms <= step.now_ms:
            dead[waiter.ticket] = waiter
        elif deadline_ms < queue.sessions_until_ms:
            queue.sessions_until_ms = deadline_ms
    return dead


def refresh_idleness(step: Step, tenant: TenantId, key: Key) -> None:
    """Note that the key's state came into use or fell idle."""
    table = step.table
    state = table.keys.get((tenant, key))
    if state is None:
        return
    in_use = table.in_use(tenant, key)
    if in_use != (state.idle_since_ms < 0):
        table.put_key_state(replace(state, idle_since_ms=-1 if in_use else step.now_ms))
