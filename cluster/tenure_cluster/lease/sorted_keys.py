"""Keys in the order of their UTF-8 bytes, found and kept at a cost that does not grow with their number.

A list of lists: each holds at most CHUNK_MAX keys in order, and everything in one comes before everything in
the next. Adding and removing is a search by halves among the chunks and one within a chunk, and moves no more
than a chunk. Comparing strings by code points gives the same order as comparing their UTF-8 by bytes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Final

CHUNK_MAX: Final = 1_000


class SortedKeys:
    """A set of keys, in order."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered = sorted(keys)
        half = CHUNK_MAX // 2
        self._chunks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        """No key of a chunk is smaller than this; some of it may be gone."""

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        chunk = self._chunks[at]
        insort(chunk, key)
        if key < self._firsts[at]:
            self._firsts[at] = key
        if len(chunk) > CHUNK_MAX:
            half = len(chunk) // 2
            # Slices are as large as they need to be; a list that is cut keeps its place.
            self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
            self._firsts.insert(at + 1, chunk[half])

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_right(self._firsts, key) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if not chunk:
            del self._chunks[at]
            del self._firsts[at]

    def after(self, key: str | None) -> Iterator[str]:
        """Those that come after a key, or all."""
        at = 0 if key is None else max(bisect_right(self._firsts, key) - 1, 0)
        for number in range(at, len(self._chunks)):
            chunk = self._chunks[number]
            start = bisect_right(chunk, key) if key is not None and number == at else 0
            for place in range(start, len(chunk)):
                yield chunk[place]

    def starting(self, key: str) -> Iterator[str]:
        """Those that are not smaller than a key."""
        at = max(bisect_left(self._firsts, key) - 1, 0)
        for number in range(at, len(self._chunks)):
            chunk = self._chunks[number]
            start = bisect_left(chunk, key) if number == at else 0
            for place in range(start, len(chunk)):
                yield chunk[place]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedKeys) and list(self.after(None)) == list(other.after(None))
