"""Events made by hand, and a watcher that remembers what it was told."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tenure_cluster.lease.events import Event, EventKind
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.watch import Subscription
from tenure_cluster.service.watch_messages import Notice


def happened(revision: int, key: str = "k", *, kind: EventKind = "granted", tenant: str = "default") -> Event:
    return Event(tenant, revision, kind, key, "owner", revision, 1_000 + revision, 0)


class PlainEncoder:
    """Leaves everything as it is, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def events(self, events: Sequence[Event]) -> list[Event]:
        self.asked += 1
        return list(events)

    def notice(self, notice: Notice) -> Notice:
        return notice


PLAIN = PlainEncoder()


class Watcher:
    """Takes what it is told, as long as it has room for it."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.told: list[Event] = []
        self.notices: list[Notice] = []
        self.room = room
        """Writes that it takes until it says that it takes no more."""
        self.written_when_full = 0
        self.ended = False
        self.subscription: Subscription | None = None

    def watch(self, subscribe: Callable[..., Subscription | Problem], *what: Any) -> "Watcher":
        """Watch by a function that takes an encoder, a write and an ended last."""
        subscription = subscribe(*what, PLAIN, self.write, self.end)
        assert isinstance(subscription, Subscription), subscription
        self.subscription = subscription
        return self

    def write(self, encoded: Any) -> bool:
        assert not self.ended
        if self.room <= 0:
            self.written_when_full += 1
        if isinstance(encoded, Notice):
            self.notices.append(encoded)
        else:
            self.told += encoded
        self.room -= 1
        return self.room > 0

    def end(self) -> None:
        assert not self.ended
        self.ended = True

    def has_room(self, room: int = 1_000_000) -> None:
        assert self.subscription is not None
        self.room = room
        self.subscription.resume()

    @property
    def revisions(self) -> list[int]:
        return [event.revision for event in self.told]

    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.notices]


async def turns(count: int = 20) -> None:
    """Let the loop do what it has to do at once."""
    for _ in range(count):
        await asyncio.sleep(0)
