"""What has happened lately, by tenant: the events that this node's replica has applied, down to a horizon.

Revisions are replicated state, so an event has the same revision on every node, and a watcher that was told
everything up to one can go on after it anywhere. What differs between nodes is how far back they remember:
the log is kept in memory alone. After a start it begins at the revision of the snapshot that the node started
from, since everything behind that is applied again; a snapshot that is installed moves it likewise.

The log is the buffer of all watchers. One that is slow costs a number, its place in the log, until the
horizon overtakes it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tenure_cluster.lease.events import Event

FORGET_PARTS: Final = 16
"""A full log forgets a part of this size at once, of the tenant that has most: a busy one can't push out the
history of the others."""


class _History:
    """The events of one tenant, whose revisions follow one another."""

    __slots__ = ("events", "horizon")

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        """Revision of the last event that is not here any more, or never was."""
        self.events: list[Event] = []

    @property
    def head(self) -> int:
        return self.horizon + len(self.events)


class EventLog:
    """Bounded by the number of its events; each is bounded by the bounds of a key, an owner and a reason."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._histories: dict[str, _History] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def head(self, tenant: str) -> int:
        """Revision of the tenant's last event; 0 before the first."""
        history = self._histories.get(tenant)
        return history.head if history is not None else 0

    def horizon(self, tenant: str) -> int:
        """The least revision after which everything is here."""
        history = self._histories.get(tenant)
        return history.horizon if history is not None else 0

    def after(self, tenant: str, revision: int, limit: int) -> Sequence[Event]:
        """The events that follow a revision, at most ``limit``. It must not lie below the horizon."""
        history = self._histories.get(tenant)
        if history is None:
            return ()
        start = revision - history.horizon
        return history.events[start : start + limit]

    def extend(self, events: Sequence[Event]) -> None:
        """Take in what an entry came to."""
        first, last = events[0], events[-1]
        if first.tenant == last.tenant and last.revision - first.revision == len(events) - 1:
            self._add(first.tenant, events)
        else:
            by_tenant: dict[str, list[Event]] = {}
            for event in events:
                by_tenant.setdefault(event.tenant, []).append(event)
            for tenant, its_events in by_tenant.items():
                self._add(tenant, its_events)
        if self._size > self._events_max:
            self._forget()

    def restored(self, revisions: Mapping[str, int]) -> None:
        """The state was replaced by one in which the tenants have these revisions."""
        kept = {}
        for tenant, revision in revisions.items():
            history = self._histories.get(tenant)
            kept[tenant] = history if history is not None and history.head == revision else _History(revision)
        self._histories = kept
        self._size = sum(len(history.events) for history in kept.values())

    def _add(self, tenant: str, events: Sequence[Event]) -> None:
        before = events[0].revision - 1
        history = self._histories.get(tenant)
        if history is None or history.head != before:
            # Only a tenant's first event can follow nothing; anything else would be a hole that must show.
            self._size -= len(history.events) if history is not None else 0
            history = self._histories[tenant] = _History(before)
        history.events += events
        self._size += len(events)

    def _forget(self) -> None:
        while self._size > self._events_max:
            largest = max(self._histories.values(), key=lambda history: len(history.events))
            part = max(1, self._events_max // FORGET_PARTS)
            forgotten = min(part, len(largest.events))
            del largest.events[:forgotten]
            largest.horizon += forgotten
            self._size -= forgotten
