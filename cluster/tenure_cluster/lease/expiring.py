"""What time ends: the reaper's batches, and the memories that are over.

The reaper proposes what seemed due when it looked. Between that look and this entry a session may have been
renewed, so each item is ended only if it still has exactly the deadline that the reaper saw.
"""

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Expire, ExpireItem
from tenure_cluster.lease.holding import expire_lease, serve, settle
from tenure_cluster.lease.indexes import parse_request_item_id
from tenure_cluster.lease.liveness import drop_waiter
from tenure_cluster.lease.memory import NEVER_MS, ExpiredSession
from tenure_cluster.lease.results import Done
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Session


def expire(step: Step, asked: Expire) -> Done:
    """End what is due. At most EXPIRE_BATCH_MAX items, leases and waiters of explicit sessions end in one
    entry, and fewer if much comes of them; the reaper asks again for the rest."""
    batch = _Batch(step)
    for item in asked.items[: limits.EXPIRE_BATCH_MAX]:
        if batch.full():
            break
        if item.deadline_ms <= step.now_ms:
            batch.end(item)
    return Done(batch.ended)


class _Batch:
    """One Expire command on its way."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.ended = 0
        self.endings_left = limits.EXPIRE_BATCH_MAX

    def full(self) -> bool:
        return self.endings_left <= 0 or self.step.full()

    def end(self, item: ExpireItem) -> None:
        match item.kind:
            case "session":
                self._session(item)
            case "claim":
                self._claim(item)
            case "progress":
                self._progress(item)
            case "waiter":
                self._waiter(item)
            case "grace":
                self._grace(item)

    def _count(self) -> None:
        self.ended += 1
        self.endings_left -= 1

    def _session(self, item: ExpireItem) -> None:
        table = self.step.table
        ref = (item.tenant, item.id)
        session = table.sessions.get(ref)
        if session is None or session.deadline_ms != item.deadline_ms:
            return
        if not session.private:
            self._explicit_session(session)
            return
        held = table.leases_in(*ref)
        for lease in held:
            expire_lease(self.step, lease)
        if not held:
            waiter = table.waiters[table.indexes.reserved[ref]]
            drop_waiter(self.step, waiter, "silent")
            serve(self.step, waiter.tenant, waiter.keys[0])
        self._count()

    def _explicit_session(self, session: Session) -> None:
        table = self.step.table
        ref = (session.tenant, session.session_id)
        while waiters := table.indexes.session_waiters.get(ref):
            if self.full():
                return
            waiter = table.waiters[next(iter(waiters))]
            drop_waiter(self.step, waiter, "session_closed" if session.closed else "session_expired")
            serve(self.step, waiter.tenant, waiter.keys[0])
            self.endings_left -= 1
        while leases := table.indexes.session_leases.get(ref):
            if self.full():
                return
            expire_lease(self.step, table.leases[(session.tenant, next(iter(leases)))])
            self.endings_left -= 1
        _take_away(self.step, session)
        self._count()

    def _claim(self, item: ExpireItem) -> None:
        lease = self.step.table.leases.get((item.tenant, item.id))
        if lease is not None and 0 < lease.claim_deadline_ms == item.deadline_ms:
            expire_lease(self.step, lease)
            self._count()

    def _progress(self, item: ExpireItem) -> None:
        lease = self.step.table.leases.get((item.tenant, item.id))
        life = lease.life if lease is not None else None
        if lease is not None and life is not None and 0 < life.progress_deadline_ms == item.deadline_ms:
            expire_lease(self.step, lease)
            self._count()

    def _waiter(self, item: ExpireItem) -> None:
        request = parse_request_item_id(item.id)
        if request is None:
            return
        waiter = self.step.table.waiters.get((item.tenant, *request))
        if waiter is not None and waiter.poll_deadline_ms == item.deadline_ms:
            drop_waiter(self.step, waiter, "silent")
            settle(self.step, item.tenant, waiter.keys[0])
            self._count()

    def _grace(self, item: ExpireItem) -> None:
        table = self.step.table
        state = table.keys.get((item.tenant, item.id))
        if state is None or not 0 < state.blocked_until_ms == item.deadline_ms:
            return
        table.put_key_state(replace(state, blocked_until_ms=0))
        serve(self.step, item.tenant, item.id)
        self._count()


def _take_away(step: Step, session: Session) -> None:
    """Take away an explicit session that has no leases and no waiters any more and has expired or is
    closed."""
    ref = (session.tenant, session.session_id)
    step.table.remove_session(ref)
    if session.closed:
        return
    step.table.remember_expired_session(ref, ExpiredSession(*ref, step.now_ms))


def sweep(step: Step) -> None:
    """Forget what is over, oldest first, in a bounded number of steps. Called before a command looks, once
    for all that have the same stamp: of an entry there may be hundreds of those, and together they must not
    hold the loop either."""
    table = step.table
    over_ms = step.now_ms - limits.REQUEST_MEMORY_MS
    steps = limits.HOUSEKEEPING_STEPS_MAX
    while steps and table.ended.oldest_ms <= over_ms:
        table.forget_ended()
        steps -= 1
    while steps and table.operations.oldest_ms <= over_ms:
        table.operations.forget_oldest()
        steps -= 1
    while steps and table.abandoned.oldest_ms <= over_ms:
        table.forget_abandoned()
        steps -= 1
    while steps and table.expired_sessions.oldest_ms <= over_ms:
        table.expired_sessions.forget_oldest()
        steps -= 1
    if table.idle_look_ms <= step.now_ms or len(table.indexes.idle) > limits.IDLE_KEYS_MAX:
        _sweep_idle_keys(step, steps)


def _sweep_idle_keys(step: Step, steps: int) -> None:
    table = step.table
    idle = table.indexes.idle
    for _ in range(steps):
        if not idle:
            table.idle_look_ms = NEVER_MS
            return
        ref = idle.first()
        state = table.keys[ref]
        over_ms = state.idle_since_ms + limits.KEY_MEMORY_MS
        if len(idle) <= limits.IDLE_KEYS_MAX and over_ms > step.now_ms:
            table.idle_look_ms = over_ms
            return
        if state.blocked_until_ms > step.now_ms:
            # Its grace period still keeps others out, so it must stay; it goes to the end of the line.
            table.put_key_state(replace(state, idle_since_ms=step.now_ms))
            return
        table.drop_key_state(ref)
