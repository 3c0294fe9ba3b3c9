"""What a watcher of the cluster in memory is told: its events as Server-Sent Events, as the server writes
them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from tenure_cluster.lease.events import Event
from tenure_cluster.service.watch_messages import event_body


class EventMemory:
    """All events since the test began, or since it had them forgotten. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._horizon = 0

    def extend(self, events: Sequence[Event]) -> None:
        with self._lock:
            self._events += events

    def forget(self) -> None:
        """As a node that remembers nothing of what was before now."""
        with self._lock:
            self._horizon = self._head()
            self._events.clear()

    @property
    def head(self) -> int:
        """Revision of the last event."""
        with self._lock:
            return self._head()

    def _head(self) -> int:
        return self._horizon + len(self._events)

    @property
    def horizon(self) -> int:
        """The least revision after which everything is remembered."""
        with self._lock:
            return self._horizon

    def after(self, revision: int) -> list[Event]:
        with self._lock:
            return self._events[max(0, revision - self._horizon) :]


def told(events: Sequence[Event], prefix: str) -> bytes:
    """Those of the prefix, as they are sent."""
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n"
        % (event.revision, event.kind.encode(), msgspec.json.encode(event_body(event)))
        for event in events
        if event.key.startswith(prefix)
    )


def bookmark(revision: int) -> bytes:
    """Everything up to there has been told."""
    body = msgspec.json.encode({"kind": "bookmark", "revision": revision})
    return b"id: %d\nevent: bookmark\ndata: %b\n\n" % (revision, body)
