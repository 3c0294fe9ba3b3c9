"""What became of leases, by tenant, from the entries that this node applies.

How many hold and who waits since when is followed on every node; since when a lease was held is told with its
end, so that costs nothing as long as it is held. Counters and histograms move only while `counting` says
so: while this node leads and serves. So no event is counted by two nodes, and none again when a journal is
read at the start.

Waiting acquires of one owner for one key are told apart by their order alone, for the events name no request;
the sum of their waits is exact all the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

from tenure_cluster.lease import results
from tenure_cluster.lease.commands import Acquire, AnyCommand, Commit, Renew
from tenure_cluster.lease.events import ENDS, Event
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.observe.series import HOLD_BOUNDS_S, WAIT_BOUNDS_S, Histogram

OTHER: Final = "other"
"""Who is over the cap of tenants goes by this name."""

_REFUSALS: Final[dict[type, str]] = {
    results.Held: "held",
    results.Deadlock: "deadlock",
    results.ModeConflict: "mode_conflict",
    results.GuardConflict: "mode_conflict",
    results.QueueFull: "quota",
    results.TokensExhausted: "quota",
    results.Lost: "lost",
    results.SessionExpired: "session_expired",
    results.NoSession: "no_session",
    results.Unsupported: "unsupported",
    results.Invalid: "invalid",
}
"""The codes that callers are answered with. Of a fixed number, so they can be labels."""

_NOT_DENIED: Final = (results.Granted, results.Waiting)
_RENEWED: Final = (results.Renewed, results.SessionIs)
_STALE: Final = ("stale_token", "not_live")


class TenantCounts:
    """The series of one tenant, or of all that have none of their own."""

    __slots__ = (
        "accepted",
        "blocked",
        "denied",
        "ended",
        "granted",
        "held",
        "hold_s",
        "left",
        "refused",
        "renewals_failed",
        "renewed",
        "stale",
        "wait_s",
        "waiting",
    )

    def __init__(self) -> None:
        self.held = self.waiting = 0
        self.granted = self.blocked = self.renewed = self.left = self.accepted = self.stale = 0
        self.denied: Counter[str] = Counter()
        self.renewals_failed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wait_s = Histogram(WAIT_BOUNDS_S)
        self.hold_s = Histogram(HOLD_BOUNDS_S)


class LeaseCounts:
    """Follows the replicated state entry by entry. Belongs to the event loop."""

    def __init__(self, tenants_max: int, counting: Callable[[], bool]) -> None:
        """The first `tenants_max` tenants that are met have series of their own."""
        self.tenants: dict[str, TenantCounts] = {}
        self._tenants_max = tenants_max
        self._counting = counting
        self._queued_ms: dict[tuple[str, str, str], deque[int]] = {}
        """By tenant, key and owner: since when each waits."""

    def of(self, tenant: str) -> TenantCounts:
        """The tenant's series, or those of the rest."""
        counts = self.tenants.get(tenant)
        if counts is None:
            if len(self.tenants) >= self._tenants_max:
                tenant = OTHER
            counts = self.tenants.setdefault(tenant, TenantCounts())
        return counts

    def on_applied(
        self, commands: Sequence[AnyCommand], answers: Sequence[object], events: Sequence[Event]
    ) -> None:
        """One entry was applied."""
        counting = self._counting()
        if counting:
            for command, answer in zip(commands, answers, strict=True):
                note = _NOTES.get(type(command))
                if note is not None:
                    note(self.of(command.tenant), answer)  # type: ignore[union-attr]
        for event in events:
            kind = event.kind
            if kind == "granted":
                self._on_granted(event, counting)
            elif kind in ENDS:
                self._on_end(event, counting)
            elif kind == "queue_joined":
                self._on_joined(event, counting)
            elif kind == "queue_left":
                self._on_left(event, counting)

    def on_restored(self, table: LeaseTable) -> None:
        """The whole state was replaced."""
        for counts in self.tenants.values():
            counts.held = counts.waiting = 0
        for lease in table.leases.values():
            self.of(lease.tenant).held += 1
        self._queued_ms = {}
        for waiter in sorted(table.waiters.values(), key=lambda waiter: waiter.ticket):
            for key in waiter.keys:
                self.of(waiter.tenant).waiting += 1
                place = (waiter.tenant, key, waiter.owner)
                self._queued_ms.setdefault(place, deque()).append(waiter.queued_ms)

    def _on_granted(self, event: Event, counting: bool) -> None:
        counts = self.of(event.tenant)
        counts.held += 1
        queued_ms = self._leave_queue(event, counts) if self._queued_ms else None
        if counting:
            counts.granted += 1
            if queued_ms is not None:
                counts.wait_s.observe((event.at_ms - queued_ms) / 1000)

    def _on_end(self, event: Event, counting: bool) -> None:
        counts = self.of(event.tenant)
        counts.held -= 1
        if counting:
            counts.ended[event.kind] += 1
            counts.hold_s.observe((event.at_ms - event.since_ms) / 1000)

    def _on_joined(self, event: Event, counting: bool) -> None:
        counts = self.of(event.tenant)
        counts.waiting += 1
        self._queued_ms.setdefault((event.tenant, event.key, event.owner), deque()).append(event.at_ms)
        if counting:
            counts.blocked += 1

    def _on_left(self, event: Event, counting: bool) -> None:
        counts = self.of(event.tenant)
        self._leave_queue(event, counts)
        if counting:
            counts.left += 1

    def _leave_queue(self, event: Event, counts: TenantCounts) -> int | None:
        place = (event.tenant, event.key, event.owner)
        since = self._queued_ms.get(place)
        if since is None:
            return None
        counts.waiting -= 1
        queued_ms = since.popleft()
        if not since:
            del self._queued_ms[place]
        return queued_ms


def _note_acquire(counts: TenantCounts, answer: object) -> None:
    if not isinstance(answer, _NOT_DENIED):
        counts.denied[_REFUSALS.get(type(answer), OTHER)] += 1
        if type(answer) is results.Held:
            counts.blocked += 1


def _note_renew(counts: TenantCounts, answer: object) -> None:
    if isinstance(answer, _RENEWED):
        counts.renewed += 1
    else:
        counts.renewals_failed[_REFUSALS.get(type(answer), OTHER)] += 1


def _note_commit(counts: TenantCounts, answer: object) -> None:
    if type(answer) is results.Committed:
        counts.accepted += 1
        return
    cause = answer.code if type(answer) is results.CommitRefused else _REFUSALS.get(type(answer), OTHER)
    counts.refused[cause] += 1
    if cause in _STALE:
        counts.stale += 1


_NOTES: Final[dict[type, Callable[[TenantCounts, object], None]]] = {
    Acquire: _note_acquire,
    Renew: _note_renew,
    Commit: _note_commit,
}
