"""A calendar of deadlines: which things seem due, found without looking at all of them.

Nothing here is replicated state and nothing decides by it. Expiry is evaluated by every command at
the entry's own stamp; the calendar only tells the reaper what to propose, and when to look again.

Theory of operation. Time is cut into buckets of BUCKET_MS. A reference is put into the bucket of its
deadline once and is not moved when the deadline moves: a renewal costs nothing. When a bucket's time
has come, each reference in it is asked for its present deadline. It is dropped if the thing is gone,
put into a later bucket if it was renewed, or becomes overdue. A reference costs eight bytes, where an
entry of a heap costs nearly a hundred.

No reference is put further ahead than HORIZON_MS, so that what ended long before its deadline does not
stay for a day; one that comes up and is still there has proved that it stays, and is put up to LATER times
as far ahead. References capped by the horizon are spread over its second half, or a million sessions with
long deadlines would all come up in one bucket; and if they came up as often as the first time, looking at
them would take a tenth of every node's time.

On a follower nobody asks what is due. advance() is therefore also called by the machine's own
housekeeping, and discard() when a thing ends, so that the calendar holds no more there than on the leader.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from tenure_cluster.lease.memory import NEVER_MS
from tenure_cluster.lease.types import ClusterTime

R = TypeVar("R", bound=Hashable)

BUCKET_MS: Final = 16
"""Width of a bucket. Deadlines stay exact; this only bounds how much is looked at too early."""

HORIZON_MS: Final = 30_000
"""How far ahead a reference is put at most."""

FULL_BUCKET: Final = 200
"""A bucket of more references is not looked through to know when its first one is due."""

LATER: Final = 10
"""How many times as far ahead a reference is put that has come up before."""

_SPREAD_MS: Final = HORIZON_MS // 2
_SPREAD_STEP_MS: Final = 7_919 % _SPREAD_MS


class Calendar(Generic[R]):
    """Deadlines of one kind of thing. ``deadline_of`` answers a reference's present deadline, or None if
    there is nothing of it to expire any more."""

    __slots__ = ("_asked_ms", "_buckets", "_deadline_of", "_order", "_overdue", "_spread_ms", "passes_ms")

    def __init__(self, deadline_of: Callable[[R], ClusterTime | None]) -> None:
        self._deadline_of = deadline_of
        self._buckets: dict[int, list[R]] = {}
        self._order: list[int] = []
        self._overdue: dict[R, None] = {}
        self._spread_ms = 0
        self._asked_ms: ClusterTime = 0
        self.passes_ms: ClusterTime = NEVER_MS
        """When the first bucket lies in the past, so that advance() has something to do. Kept at hand
        because every command asks for it."""

    def push(self, ref: R, deadline_ms: ClusterTime, now_ms: ClusterTime, times: int = 1) -> None:
        """Put a reference into the bucket of its deadline. Once is enough as long as the thing exists.
        ``times`` is how many horizons it may be put ahead."""
        at_ms = deadline_ms
        if at_ms > now_ms + times * _SPREAD_MS:
            self._spread_ms = (self._spread_ms + _SPREAD_STEP_MS) % _SPREAD_MS
            at_ms = min(at_ms, now_ms + times * (_SPREAD_MS + self._spread_ms))
        number = at_ms // BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [ref]
            heapq.heappush(self._order, number)
            self.passes_ms = (self._order[0] + 1) * BUCKET_MS
        else:
            bucket.append(ref)

    def discard(self, ref: R) -> None:
        """The thing has ended. What stands in a bucket is dropped when the bucket comes up."""
        if self._overdue:
            self._overdue.pop(ref, None)

    def advance(self, now_ms: ClusterTime, steps_max: int) -> int:
        """Empty the buckets that have passed, looking at no more than ``steps_max`` references. Returns
        what is left of the steps."""
        while steps_max > 0 and self.passes_ms <= now_ms:
            steps_max = self._empty_first(now_ms, steps_max)
        return steps_max

    def due(self, now_ms: ClusterTime, limit: int, steps_max: int) -> list[tuple[R, ClusterTime]]:
        """References whose deadline is not later than ``now_ms``, with their deadlines, at most
        ``limit``. They are named again by the next call unless they have ended or were renewed by
        then."""
        self._asked_ms = now_ms
        while steps_max > 0 and self._order and self._order[0] * BUCKET_MS <= now_ms:
            first = self._order[0]
            steps_max = self._empty_first(now_ms, steps_max)
            if self._order and self._order[0] == first:
                break
        found: list[tuple[R, ClusterTime]] = []
        moved: list[tuple[R, ClusterTime | None]] = []
        for ref in self._overdue:
            deadline_ms = self._deadline_of(ref)
            if deadline_ms is None or deadline_ms > now_ms:
                moved.append((ref, deadline_ms))
            elif len(found) < limit:
                found.append((ref, deadline_ms))
            else:
                break
        for ref, deadline_ms in moved:
            del self._overdue[ref]
            if deadline_ms is not None:
                self.push(ref, deadline_ms, now_ms, LATER)
        return found

    def next_ms(self) -> ClusterTime | None:
        """A time at which to ask for what is due; never later than the earliest deadline. After due()
        has found nothing at some time, it is later than that time."""
        if self._overdue:
            return self._deadline_of(next(iter(self._overdue))) or 0
        if not self._order:
            return None
        first = self._order[0]
        if len(self._buckets[first]) > FULL_BUCKET:
            return max(first * BUCKET_MS, self._asked_ms + 1)
        deadlines = (self._deadline_of(ref) for ref in self._buckets[first])
        end_ms = (first + 1) * BUCKET_MS
        return min((d for d in deadlines if d is not None and d < end_ms), default=end_ms)

    def _empty_first(self, now_ms: ClusterTime, steps_max: int) -> int:
        """Look through the first bucket. References whose deadline lies in it but after ``now_ms`` stay
        in it."""
        number = self._order[0]
        bucket = self._buckets[number]
        stay: list[R] = []
        while bucket and steps_max > 0:
            steps_max -= 1
            ref = bucket.pop()
            deadline_ms = self._deadline_of(ref)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                self._overdue[ref] = None
            elif deadline_ms // BUCKET_MS <= number:
                stay.append(ref)
            else:
                self.push(ref, deadline_ms, now_ms, LATER)
        if stay:
            bucket.extend(stay)
        if not bucket:
            del self._buckets[number]
            heapq.heappop(self._order)
            self.passes_ms = (self._order[0] + 1) * BUCKET_MS if self._order else NEVER_MS
        return steps_max
