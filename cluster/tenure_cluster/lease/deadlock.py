"""Finding a cycle of sessions that wait for one another, before a wait would close it.

A waiting session waits for the session that holds the key and for the sessions of the waiters before it.
Only explicit sessions can close a cycle: a private session is opened for one acquire, so while it waits it
holds nothing, and whoever waits behind it on the key waits for the same sessions as it does.

A session that waits for one key twice does not wait for itself: whichever of its waiters comes first is
granted as if it were alone, and what it was granted it can give back. So the waiters that it has on the
key already count for nothing.

The search goes depth first from the sessions that the new waiter would wait for, the longest-standing
first. Leases and waiters that are over at this entry block nobody. It looks at no more than
DEADLOCK_SEARCH_MAX holders and waiters; a cycle that hides behind more than that is left to be ended by
time-outs.
"""

from collections.abc import Iterator

from tenure_cluster.lease import limits
from tenure_cluster.lease.liveness import lease_live, waiter_dead
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Key, SessionId, TenantId


def find_cycle(step: Step, tenant: TenantId, session_id: SessionId, owner: str, key: Key) -> list[str] | None:
    """The cycle ``[owner, key, owner, key, …]`` that would exist if the session queued for the key,
    each owner as it is named where it holds or waits; None if there would be none."""
    indexes = step.table.indexes
    ref = (tenant, session_id)
    if ref not in indexes.session_leases and ref not in indexes.session_waiters:
        # Nobody can be waiting for a session that neither holds nor queues: the ordinary case.
        return None
    return _Search(step, tenant, session_id, key).run(owner, key)


class _Search:
    """One depth-first search for a way back to the session that wants to wait."""

    def __init__(self, step: Step, tenant: TenantId, target: SessionId, wanted: Key) -> None:
        self.step = step
        self.tenant = tenant
        self.target = target
        self.wanted = wanted
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        self.seen: set[SessionId] = set()
        self.scanned: dict[Key, int] = {}
        """How many waiters of each key's queue have been looked at, from its head."""
        self.closed = False

    def run(self, owner: str, key: Key) -> list[str] | None:
        path = [(owner, key)]
        branches = [self._next_waits(key, None)]
        while branches:
            wait = next(branches[-1], None)
            if self.closed:
                return [name for edge in path for name in edge]
            if wait is None:
                branches.pop()
                path.pop()
            else:
                owner, key, ticket = wait
                path.append((owner, key))
                branches.append(self._next_waits(key, ticket))
        return None

    def _next_waits(self, key: Key, ticket: int | None) -> Iterator[tuple[str, Key, int]]:
        """What those wait for who stand before ``ticket`` (None: the end) on a key. Sets ``closed`` and
        stops at the target."""
        waiters = self.step.table.waiters
        for session_id, owner in self._blockers(key, ticket):
            if session_id == self.target:
                self.closed = True
                return
            if session_id in self.seen:
                continue
            self.seen.add(session_id)
            for ref in self.step.table.indexes.session_waiters.get((self.tenant, session_id), ()):
                waiter = waiters[ref]
                if not waiter_dead(self.step, waiter):
                    yield owner, waiter.keys[0], waiter.ticket

    def _blockers(self, key: Key, ticket: int | None) -> Iterator[tuple[SessionId, str]]:
        """Sessions that hold the key, then those that wait for it before ``ticket``; what an earlier
        branch has looked at is left out."""
        table = self.step.table
        if key not in self.scanned:
            self.scanned[key] = 0
            lease = table.holder(self.tenant, key)
            if lease is not None and lease_live(self.step, lease):
                yield lease.session_id, lease.owner
        queue = table.key_queue(self.tenant, key)
        if queue is None:
            return
        before = len(queue) if ticket is None else queue.position(ticket) - 1
        while self.scanned[key] < before and self.steps_left > 0:
            self.steps_left -= 1
            waiter = table.waiters[queue.polled[queue.tickets[self.scanned[key]]]]
            self.scanned[key] += 1
            own = waiter.session_id == self.target and key == self.wanted
            if not waiter.private and not own and not waiter_dead(self.step, waiter):
                yield waiter.session_id, waiter.owner
