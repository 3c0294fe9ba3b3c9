"""The disk of one simulated machine: work takes time on the world's clock, and a crash can fall into it.

What a file keeps and loses stands in files.py. A disk can be slow, full, rotten, and fail to sync.
"""

import errno
import random
from collections import deque
from collections.abc import Callable

from tenure_chaos.sim.files import Inode as Inode
from tenure_chaos.sim.files import MemoryDisk
from tenure_chaos.sim.loop import CURRENT, Scheduled, VirtualLoop

Done = Callable[[BaseException | None], None]

SYNC_S = (0.0002, 0.002)
"""Shortest and longest time of a sync of a disk that nothing is wrong with."""


class _Worker:
    """One thread of the disk: a piece of work after the other, each takes its time."""

    def __init__(self, disk: "SimDisk") -> None:
        self._disk = disk
        self._work: deque[tuple[Callable[[], None], Done]] = deque()
        self._timer: Scheduled | None = None

    def put(self, work: Callable[[], None], done: Done) -> None:
        process = CURRENT.get()
        if process is not None and not process.alive:
            return  # it was killed in the midst of this call, and does nothing more
        self._work.append((work, done))
        if self._timer is None:
            self._begin()

    def clear(self) -> None:
        self._work.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        disk = self._disk
        self._timer = disk.loop.call_later(disk.work_time_s(), self._end, disk.life)

    def _end(self, life: int) -> None:
        if life != self._disk.life:
            return
        work, done = self._work.popleft()
        error: Exception | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        self._timer = None
        if self._work:
            self._begin()
        done(error)


class SimDisk(MemoryDisk):
    """One node's data directory. It outlives the process."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, space_bytes: int = 1 << 30) -> None:
        super().__init__(space_bytes)
        self.loop = loop
        self.sync_min_s, self.sync_max_s = SYNC_S
        self.fail_next_sync = False
        self._rng = rng
        self._whole_space_bytes = space_bytes
        self._urgent = _Worker(self)
        self._bulk = _Worker(self)

    # -- what the node uses

    def run(self, work: Callable[[], None], done: Done) -> None:
        self._urgent.put(work, done)

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        self._bulk.put(work, done)

    def close(self) -> None:
        """All that was given to ``run`` is finished by the process before it closes its disk."""

    # -- what the world does with it

    def kill(self) -> None:
        super().kill()
        self._urgent.clear()
        self._bulk.clear()
        self.fail_next_sync = False

    def lose_power(self) -> int:
        """The machine has stopped and will start again. Answers how many files have lost something."""
        return self.power_lost(self._rng)

    def slow_down(self, sync_min_s: float, sync_max_s: float) -> None:
        """Work takes so long from now on."""
        self.sync_min_s, self.sync_max_s = sync_min_s, sync_max_s

    def be_quick(self) -> None:
        """The end of ``slow_down``."""
        self.sync_min_s, self.sync_max_s = SYNC_S

    def fill(self, left_bytes: int) -> None:
        """Somebody else's files take all the space but this."""
        self.space_bytes = self.space_bytes - self.free_bytes() + left_bytes

    def make_room(self) -> None:
        """The end of ``fill``."""
        self.space_bytes = self._whole_space_bytes

    def flip(self, name: str, offset: int, bit: int | None = None) -> int:
        """Bit rot: one bit of a file changes behind everybody's back, in memory and on the platter. Answers
        which; the same again mends it.
        """
        inode = self._inode(name)
        if bit is None:
            bit = self._rng.randrange(8)
        for content in (inode.present, inode.durable):
            if offset < len(content):
                content[offset] ^= 1 << bit
        return bit

    # -- for the files and the workers

    def work_time_s(self) -> float:
        return self._rng.uniform(self.sync_min_s, self.sync_max_s)

    def synced(self) -> None:
        super().synced()
        if self.fail_next_sync:
            self.fail_next_sync = False
            raise OSError(errno.EIO, "the disk failed to sync")
