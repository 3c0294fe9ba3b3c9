"""What is remembered of things that are over, for a bounded time and in bounded number.

A memory is a dictionary in the order of its entries' times, swept from its oldest end.
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

import msgspec

from tenure_cluster.lease.line import Line
from tenure_cluster.lease.results import Result
from tenure_cluster.lease.types import (
    ClusterTime,
    FencingToken,
    Key,
    LeaseId,
    RequestId,
    SessionId,
    TenantId,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NEVER_MS: Final = 2**63
"""Later than every cluster time."""


class ExpiredSession(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An explicit session that expired and was taken away; whoever still names it is told so."""

    tenant: TenantId
    session_id: SessionId
    ended_ms: ClusterTime


class AbandonedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that was given up without a grant: an acquire of it that arrives late must not grant.
    ``scope`` is the session's id, or empty for a private session."""

    tenant: TenantId
    scope: str
    request_id: RequestId
    ended_ms: ClusterTime


class Operation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first answer to a commit with an op_id, and what was asked: only the same commit again is answered
    with it. ``content`` is a digest of what the commit would have written, and how."""

    tenant: TenantId
    key: Key
    op_id: str
    result: Result
    answered_ms: ClusterTime
    lease_id: LeaseId = ""
    token: FencingToken = 0
    content: bytes = b""


class Memory(Line[K, V]):
    """A dictionary whose entries are forgotten oldest first. Entries come in by remember() alone, with times
    that never fall, and go out by forget_oldest() alone."""

    __slots__ = ("_time_of", "entries_max", "oldest_ms")

    def __init__(self, time_of: Callable[[V], ClusterTime], entries_max: int) -> None:
        super().__init__()
        self._time_of = time_of
        self.entries_max = entries_max
        self.oldest_ms = NEVER_MS
        """Time of the oldest entry, kept at hand because every command asks for it."""

    def remember(self, key: K, value: V) -> None:
        """Add an entry as the newest; one of the same key is replaced."""
        known = key in self
        self.join(key, value)
        if known:
            self._note_oldest()
        elif self.oldest_ms == NEVER_MS:
            self.oldest_ms = self._time_of(value)

    def full(self) -> bool:
        """Whether there are more entries than may be kept."""
        return len(self) > self.entries_max

    def forget_oldest(self) -> V:
        """Take the oldest entry out and return it."""
        value = self.pop_first()
        self._note_oldest()
        return value

    def _note_oldest(self) -> None:
        self.oldest_ms = self._time_of(self[self.first()]) if self else NEVER_MS

    def fault(self, now_ms: ClusterTime) -> str:
        """What is wrong with the entries, empty if nothing is."""
        times = [self._time_of(value) for value in self.values()]
        if times != sorted(times) or (times and times[-1] > now_ms):
            return "a memory is out of the order of time"
        if self.oldest_ms != (times[0] if times else NEVER_MS):
            return "a memory does not know its oldest entry"
        return "a memory holds more than it may" if self.full() else ""
