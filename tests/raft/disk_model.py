"""A disk in memory that knows what is durable and can lose the rest (tenure_chaos.sim.files), as a test uses
it.

``fail_after`` makes the power fail at the n-th operation from now: that operation and every later one raise
:class:`PowerLost`, so that a test can cut any sequence of operations at any place.

Work given to ``run`` and ``run_bulk`` waits until :meth:`ModelDisk.work`.
"""

import random
from collections import deque
from collections.abc import Callable

from tenure_chaos.sim.files import SECTOR_BYTES, File, MemoryDisk
from tenure_cluster.raft.disk import Done

__all__ = ["SECTOR_BYTES", "ModelDisk", "PowerLost"]


class PowerLost(BaseException):
    """The operation did not return, since the machine has stopped. Not an Exception: nobody may handle it."""


class ModelDisk(MemoryDisk):
    def __init__(self, space_bytes: int = 1 << 40) -> None:
        super().__init__(space_bytes)
        self.operations = 0
        self.sync_error: OSError | None = None
        self.good_syncs = 0
        """So many syncs of files still succeed before ``sync_error`` is raised."""
        self._fail_at: int | None = None
        self._urgent: deque[tuple[Callable[[], None], Done]] = deque()
        self._bulk: deque[tuple[Callable[[], None], Done]] = deque()

    # -- what the code under test uses

    def create(self, name: str, size: int) -> File:
        self._step()
        return super().create(name, size)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._step()

    def remove(self, name: str) -> None:
        super().remove(name)
        self._step()

    def sync_directory(self) -> None:
        self._step()
        self.keep_names()

    def run(self, work: Callable[[], None], done: Done) -> None:
        self._urgent.append((work, done))

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        self._bulk.append((work, done))

    def close(self) -> None:
        self.work()

    # -- what a test does with it

    def work(self, pieces: int | None = None, *, bulk: bool = True) -> None:
        """Do the work that was given, and what follows from it; or only so many pieces of it, or no bulk."""
        while (queue := self._urgent or (self._bulk if bulk else None)) and pieces != 0:
            work, done = queue.popleft()
            error: Exception | None = None
            try:
                work()
            except Exception as raised:
                error = raised
            done(error)
            if pieces is not None:
                pieces -= 1

    def fail_after(self, operations: int) -> None:
        """The power fails at the operation after so many more."""
        self._fail_at = self.operations + operations

    def kill(self) -> None:
        super().kill()
        self._fail_at = None
        self._urgent.clear()
        self._bulk.clear()

    def lose_power(self, chance: random.Random) -> None:
        """The machine has stopped and started again."""
        self.power_lost(chance)

    def copy(self) -> "ModelDisk":
        """Another disk with the same files, for a process of its own."""
        other = ModelDisk(self.space_bytes)
        for name in self.names():
            other.overwrite(name, self.read(name))
        return other

    # -- what the files come by

    def written(self) -> None:
        self._step()  # the power may fail with the write under way, so it has been made

    def synced(self) -> None:
        self._step()
        super().synced()
        if self.sync_error is None:
            return
        if self.good_syncs <= 0:
            raise self.sync_error
        self.good_syncs -= 1

    def _step(self) -> None:
        self.operations += 1
        if self._fail_at is not None and self.operations > self._fail_at:
            raise PowerLost
