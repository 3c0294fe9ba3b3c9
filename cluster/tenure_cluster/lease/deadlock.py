"""Finding a cycle of sessions that wait for one another, before a wait would close it.

A waiting session waits for the session that holds the key and for the sessions of the waiters before it.
Only explicit sessions can close a cycle: a private session is opened for one acquire, so while it waits it
holds nothing, and whoever waits behind it on the key waits for the same sessions as it does.

The search is breadth first from the sessions that the new waiter would wait for, so the cycle that it
names is a shortest one. Leases and waiters that are over at this entry block nobody. It looks at no more than
DEADLOCK_SEARCH_MAX holders and waiters; a cycle that is longer than that is left to be ended by time-outs.
"""

from collections import deque

from tenure_cluster.lease import limits
from tenure_cluster.lease.holding import lease_live, waiter_dead
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Key, SessionId, TenantId


def find_cycle(step: Step, tenant: TenantId, session_id: SessionId, key: Key) -> list[str] | None:
    """The cycle ``[owner, key, owner, key, …]`` that would exist if the session queued for the key; None if none."""
    indexes = step.table.indexes
    ref = (tenant, session_id)
    if ref not in indexes.session_leases and ref not in indexes.session_waiters:
        # Nobody can be waiting for a session that neither holds nor queues: the ordinary case.
        return None
    return _Search(step, tenant, session_id, key).run()


class _Search:
    """One breadth-first search."""

    def __init__(self, step: Step, tenant: TenantId, session_id: SessionId, key: Key) -> None:
        self.step = step
        self.tenant = tenant
        self.target = session_id
        self.key = key
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        self.came_from: dict[SessionId, tuple[SessionId, Key]] = {}
        """For each session that was reached: who waits for it, and for which key."""
        self.scanned: dict[Key, int] = {}
        """How much of each key's queue has been looked at."""
        self.frontier: deque[SessionId] = deque()

    def run(self) -> list[str] | None:
        if self._reach_blockers(self.target, self.key, None):
            return self._path()
        waiters = self.step.table.waiters
        while self.frontier and self.steps_left > 0:
            session_id = self.frontier.popleft()
            for ref in self.step.table.indexes.session_waiters.get((self.tenant, session_id), ()):
                waiter = waiters[ref]
                if waiter_dead(self.step, waiter):
                    continue
                if self._reach_blockers(session_id, waiter.keys[0], waiter.ticket):
                    return self._path()
        return None

    def _reach_blockers(self, waiting: SessionId, key: Key, ticket: int | None) -> bool:
        """Reach every session that ``waiting`` waits for on a key; true once the cycle has closed."""
        table = self.step.table
        if key not in self.scanned:
            self.scanned[key] = 0
            self.steps_left -= 1
            lease = table.holder(self.tenant, key)
            if (
                lease is not None
                and lease_live(self.step, lease)
                and self._reach(waiting, key, lease.session_id)
            ):
                return True
        queue = table.key_queue(self.tenant, key)
        if queue is None:
            return False
        before = len(queue) if ticket is None else queue.position(ticket) - 1
        for at in range(self.scanned[key], before):
            self.steps_left -= 1
            if self.steps_left <= 0:
                return False
            waiter = table.waiters[queue.polled[queue.tickets[at]]]
            if waiter_dead(self.step, waiter) or waiter.private:
                continue
            if self._reach(waiting, key, waiter.session_id):
                return True
        self.scanned[key] = max(self.scanned[key], before)
        return False

    def _reach(self, waiting: SessionId, key: Key, blocker: SessionId) -> bool:
        if blocker in self.came_from:
            return False
        self.came_from[blocker] = (waiting, key)
        if blocker == self.target:
            return True
        self.frontier.append(blocker)
        return False

    def _path(self) -> list[str]:
        """The cycle from the target, in the direction of waiting."""
        edges: list[tuple[SessionId, Key]] = []
        session_id = self.target
        while True:
            session_id, key = self.came_from[session_id]
            edges.append((session_id, key))
            if session_id == self.target:
                break
        sessions = self.step.table.sessions
        cycle: list[str] = []
        for session_id, key in reversed(edges):
            cycle += [sessions[(self.tenant, session_id)].owner, key]
        return cycle
