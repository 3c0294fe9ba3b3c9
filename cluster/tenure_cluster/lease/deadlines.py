"""The deadlines of a lease table: sessions, unclaimed grants, progress, silent waiters and grace periods.

Each thing that can be due has exactly one entry: a private session is watched by its waiter's deadline
while it queues, by the claim's while its grant is unclaimed, and by its own from then on.
"""

from typing import TYPE_CHECKING, Final

from tenure_cluster.lease.calendar import Calendar
from tenure_cluster.lease.commands import ExpireItem
from tenure_cluster.lease.indexes import KeyRef, LeaseRef, SessionRef, WaiterRef, request_item_id
from tenure_cluster.lease.types import ClusterTime

if TYPE_CHECKING:
    from tenure_cluster.lease.table import LeaseTable

DUE_STEPS_MAX: Final = 1_000
"""Most references of each kind that one look for what is due moves on: a millisecond or two."""


class Deadlines:
    """One calendar for each kind of thing that expires."""

    __slots__ = ("_table", "claims", "graces", "progress", "sessions", "waiters")

    def __init__(self, table: "LeaseTable") -> None:
        self._table = table
        self.sessions: Calendar[SessionRef] = Calendar(self._session_due)
        self.claims: Calendar[LeaseRef] = Calendar(self._claim_due)
        self.progress: Calendar[LeaseRef] = Calendar(self._progress_due)
        self.waiters: Calendar[WaiterRef] = Calendar(self._waiter_due)
        self.graces: Calendar[KeyRef] = Calendar(self._grace_due)

    def _session_due(self, ref: SessionRef) -> ClusterTime | None:
        session = self._table.sessions.get(ref)
        if session is None:
            return None
        if session.private:
            lease = self._table.leases.get(ref)
            if lease is None or lease.session_id != ref[1]:
                # It waits, or is of a set whose first lease has ended or gone elsewhere.
                leases = self._table.leases_in(*ref)
                if not leases:
                    return None
                lease = leases[0]
            if lease.claim_deadline_ms:
                return None
        return session.deadline_ms

    def _claim_due(self, ref: LeaseRef) -> ClusterTime | None:
        lease = self._table.leases.get(ref)
        return (lease.claim_deadline_ms or None) if lease is not None else None

    def _progress_due(self, ref: LeaseRef) -> ClusterTime | None:
        lease = self._table.leases.get(ref)
        life = lease.life if lease is not None else None
        return (life.progress_deadline_ms or None) if life is not None else None

    def _waiter_due(self, ref: WaiterRef) -> ClusterTime | None:
        waiter = self._table.waiters.get(ref)
        return waiter.poll_deadline_ms if waiter is not None else None

    def _grace_due(self, ref: KeyRef) -> ClusterTime | None:
        state = self._table.keys.get(ref)
        if state is None or self._table.key_queue(*ref) is None:
            return None
        return state.blocked_until_ms or None

    def rebuild(self) -> None:
        """Enter everything that the table holds; called once, on an empty set of calendars."""
        table = self._table
        now_ms = table.time_ms
        for ref in table.sessions:
            deadline_ms = self._session_due(ref)
            if deadline_ms is not None:
                self.sessions.push(ref, deadline_ms, now_ms)
        for ref, lease in table.leases.items():
            if lease.claim_deadline_ms:
                self.claims.push(ref, lease.claim_deadline_ms, now_ms)
            if lease.life is not None and lease.life.progress_deadline_ms:
                self.progress.push(ref, lease.life.progress_deadline_ms, now_ms)
        for waiter_ref, waiter in table.waiters.items():
            self.waiters.push(waiter_ref, waiter.poll_deadline_ms, now_ms)
        for ref in table.keys:
            deadline_ms = self._grace_due(ref)
            if deadline_ms is not None:
                self.graces.push(ref, deadline_ms, now_ms)

    def advance(self, now_ms: ClusterTime, steps_max: int) -> None:
        """Move on to cluster time, so that nothing piles up on a node where nobody asks what is due."""
        if self.sessions.passes_ms <= now_ms:
            steps_max = self.sessions.advance(now_ms, steps_max)
        if self.claims.passes_ms <= now_ms:
            steps_max = self.claims.advance(now_ms, steps_max)
        if self.progress.passes_ms <= now_ms:
            steps_max = self.progress.advance(now_ms, steps_max)
        if self.waiters.passes_ms <= now_ms:
            steps_max = self.waiters.advance(now_ms, steps_max)
        if self.graces.passes_ms <= now_ms:
            self.graces.advance(now_ms, steps_max)

    def due(self, now_ms: ClusterTime, limit: int) -> list[ExpireItem]:
        """At most ``limit`` items. What others wait for comes first."""
        items: list[ExpireItem] = []
        for ref, at_ms in self.graces.due(now_ms, limit, DUE_STEPS_MAX):
            items.append(ExpireItem("grace", ref[0], ref[1], at_ms))
        for ref, at_ms in self.claims.due(now_ms, limit - len(items), DUE_STEPS_MAX):
            items.append(ExpireItem("claim", ref[0], ref[1], at_ms))
        for ref, at_ms in self.progress.due(now_ms, limit - len(items), DUE_STEPS_MAX):
            items.append(ExpireItem("progress", ref[0], ref[1], at_ms))
        for ref, at_ms in self.sessions.due(now_ms, limit - len(items), DUE_STEPS_MAX):
            items.append(ExpireItem("session", ref[0], ref[1], at_ms))
        for waiter, at_ms in self.waiters.due(now_ms, limit - len(items), DUE_STEPS_MAX):
            items.append(ExpireItem("waiter", waiter[0], request_item_id(waiter[1], waiter[2]), at_ms))
        return items

    def next_ms(self) -> ClusterTime | None:
        """When to call due() again; None if nothing can become due."""
        times = [
            self.sessions.next_ms(),
            self.claims.next_ms(),
            self.progress.next_ms(),
            self.waiters.next_ms(),
            self.graces.next_ms(),
        ]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)
