"""A dictionary in which entries stand in line: who joins is the last, and the first is found at once.

A plain dictionary keeps the order, but finding its first entry costs a walk over all places that were deleted
at its front. An OrderedDict finds it, but has to hash every key again whenever it grows: with a hundred
thousand references of leases that holds the event loop for tens of milliseconds, with a million for half a
second, and copying its values takes twenty times as long as copying a dictionary's. So this is a dictionary
with the keys in a queue beside it. Who leaves the line from its midst stays in the queue until he comes to
its front, or until more of the queue have left than stand in it.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LEFT_MAX: Final = 1_000
"""So many places of those who left are always kept."""


class Line(dict[K, V]):
    """Entries come in by join(), and go out by leave() and pop_first(): by nothing else. The value of one
    that is present may be replaced."""

    __slots__ = ("_left", "_left_count", "_queue")

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[K] = deque()
        self._left: dict[K, int] = {}
        """How many places in the queue are no more those of a key; a present one comes after them."""
        self._left_count = 0

    def join(self, key: K, value: V) -> None:
        """Stand at the end of the line, wherever it stood before."""
        if key in self:
            self.leave(key)
        self[key] = value
        self._queue.append(key)

    def leave(self, key: K) -> None:
        """Be no more in the line; harmless for one that is not."""
        if key not in self:
            return
        del self[key]
        self._left[key] = self._left.get(key, 0) + 1
        self._left_count += 1
        if self._left_count > len(self) + LEFT_MAX:
            self._queue = deque(self)
            self._left.clear()
            self._left_count = 0

    def first(self) -> K:
        """The key that has stood in the line for longest; there must be one."""
        queue, left = self._queue, self._left
        while left and (places := left.get(queue[0])):
            key = queue.popleft()
            self._left_count -= 1
            if places == 1:
                del left[key]
            else:
                left[key] = places - 1
        return queue[0]

    def pop_first(self) -> V:
        """Take out the first and return its value."""
        key = self.first()
        self._queue.popleft()
        return self.pop(key)
