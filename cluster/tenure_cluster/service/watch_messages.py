"""What a watcher is told: events of the log, and notices that are no part of it.

An event's body says what happened at which revision. Each is told once and in order, so a watcher resumes
after the revision that it was told last. Notices have no place in that order:

    bookmark         everything up to `revision` that concerns the watcher has been told
    gap              events after `last` and up to `revision` may be missing; the watch has ended. A lesser
                     `revision`: this node is behind the watcher, who goes on after `last` elsewhere
    leader_changed   this node follows another leader, or another term of it
    shutting_down    this node stops: go on after `revision`, at one of `nodes`; the watch has ended
    alive            nothing has happened; a sign of life

The kind `restored` tells that the cluster was put back to a backup, by which all leases have ended. It is
the first event of the new cluster, and its revision is above all that were told by the old one.

A watcher that is told of a gap may still find what it missed on another node, which can remember more. If
that answers `compacted` too, it lists the state and watches on from the revision that the list names.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from tenure_cluster.lease.events import Event, EventKind
from tenure_cluster.service.answers import rfc3339

NoticeKind: TypeAlias = Literal["bookmark", "gap", "leader_changed", "shutting_down", "alive"]


class EventBody(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a key. ``detail`` is a reason, a refusal's code, or empty."""

    revision: int
    kind: EventKind
    key: str
    owner: str
    token: int
    mode: str
    """Empty where no lease or waiter is spoken of."""
    slot: int
    detail: str
    at: str
    cluster_time_ms: int


class Notice(msgspec.Struct, frozen=True):
    """Something else that a watcher is told. ``revision`` is None where it says nothing about the order of
    events."""

    kind: NoticeKind
    revision: int | None
    members: dict[str, Any] = {}

    @property
    def place(self) -> int | None:
        """The revision to go on after; None where that stays as it is. Nobody is sent back by a node that is
        behind, or would be told again what another has told already."""
        behind = self.revision is not None and self.members.get("last", 0) > self.revision
        return None if behind else self.revision

    @property
    def body(self) -> dict[str, Any]:
        own = {"kind": self.kind} if self.revision is None else {"kind": self.kind, "revision": self.revision}
        return {**own, **self.members}


ALIVE: Final = Notice("alive", None)


def event_body(event: Event) -> EventBody:
    return EventBody(
        revision=event.revision,
        kind=event.kind,
        key=event.key,
        owner=event.owner,
        token=event.token,
        mode=event.mode,
        slot=event.slot,
        detail=event.detail,
        at=rfc3339(event.wall_ms),
        cluster_time_ms=event.at_ms,
    )


class Encoder(Protocol):
    """Makes of events what is written to a watcher. What it has made is shared by all whom it serves."""

    def events(self, events: Sequence[Event]) -> Any: ...

    def notice(self, notice: Notice) -> Any: ...
