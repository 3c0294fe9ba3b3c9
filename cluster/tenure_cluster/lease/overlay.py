"""A large dictionary that stands still while others go on changing it.

Copying a million references takes longer than the loop may be held, and writing a snapshot takes seconds. So
for the time of a snapshot the dictionary itself is left alone, and what is changed meanwhile is kept over it:
replaced values, added keys in their order, removed keys. Whoever uses the section of the table sees one
mapping. Afterwards the changes are brought into the dictionary in slices (merge()), and it takes its place
again.

The order is that of a dictionary: a key that is replaced stays where it is, one that is removed and added
again is the last.
"""

from collections.abc import Hashable, Iterator, MutableMapping
from typing import Any, TypeVar

from tenure_cluster.lease.line import Line

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Overlay(MutableMapping[K, V]):
    """``base`` with changes over it. No value is None."""

    __slots__ = ("added", "base", "removed", "replaced")

    def __init__(self, base: dict[K, V]) -> None:
        self.base = base
        self.replaced: dict[K, V] = {}
        """New values of keys of the base."""
        self.added: Line[K, V] = Line()
        """What comes after the base, in its order."""
        self.removed: dict[K, None] = {}
        """Keys of the base that are there no more, at least not where they were."""

    def get(self, key: K, default: Any = None) -> Any:
        value = self.replaced.get(key) or self.added.get(key)
        if value is not None:
            return value
        return default if key in self.removed else self.base.get(key, default)

    def __getitem__(self, key: K) -> V:
        value: V | None = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self.added or (key in self.base and key not in self.removed)

    def __setitem__(self, key: K, value: V) -> None:
        if key in self.added:
            self.added[key] = value
        elif key in self.removed or key not in self.base:
            self.added.join(key, value)
        else:
            self.replaced[key] = value

    def __delitem__(self, key: K) -> None:
        if key in self.added:
            self.added.leave(key)
        elif key in self.base and key not in self.removed:
            self.replaced.pop(key, None)
            self.removed[key] = None
        else:
            raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        removed = self.removed
        yield from (key for key in self.base if key not in removed)
        yield from self.added

    def __len__(self) -> int:
        return len(self.base) - len(self.removed) + len(self.added)

    def merge(self, steps: int) -> int:
        """Bring up to so many changes into the base, which nobody may be iterating over. Returns the steps
        that are left; if there are any, the base is what this mapping is."""
        while steps > 0 and self.removed:
            key, _ = self.removed.popitem()
            del self.base[key]
            steps -= 1
        while steps > 0 and self.replaced:
            key, value = self.replaced.popitem()
            self.base[key] = value
            steps -= 1
        while steps > 0 and self.added:
            key = self.added.first()
            self.base[key] = self.added.pop_first()
            steps -= 1
        return steps
