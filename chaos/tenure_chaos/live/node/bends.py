"""Clock and disk of a node's process, as they are until the bench orders otherwise."""

import errno
import os
import random
import signal
import time
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import SystemDisk, SystemFile

SECTOR_BYTES: Final = 512


@dataclass
class Bends:
    """What is bent at the moment. Orders come on one thread, and the disk works on others: each is one
    assignment."""

    sync_fails: bool = False
    """The next sync fails, once."""
    sync_takes_s: tuple[float, float] = (0.0, 0.0)
    """Every sync takes so much longer."""
    tears: bool = False
    """The next write to a journal segment arrives in part, and the process is killed."""
    free_bytes: int | None = None
    """What the disk says is free; a write that needs new space beyond it fails."""
    rng: random.Random = field(default_factory=random.Random)


class BentClock(SystemClock):
    """Runs at a rate, from the moment at which it was set, and shows a wall time that can be stepped."""

    def __init__(self, bends: Bends) -> None:
        super().__init__()
        self._rate = 1.0
        self._since = self._base = time.monotonic()
        self._step_ms = 0

    def monotonic(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._rate

    def wall_ms(self) -> int:
        return super().wall_ms() + self._step_ms

    def set_rate(self, rate: float) -> None:
        """On the event loop's thread."""
        now, true_now = self.monotonic(), time.monotonic()
        self._base, self._since, self._rate = now, true_now, rate

    def step_wall(self, by_ms: int) -> None:
        self._step_ms += by_ms


class BentFile(SystemFile):
    """A file of a bent disk."""

    def __init__(self, file: SystemFile, name: str, bends: Bends) -> None:
        self._file = file
        self._name = name
        self._bends = bends

    def write_at(self, offset: int, data: bytes) -> None:
        bends = self._bends
        if bends.tears and self._name.startswith("journal") and len(data) < 1 << 16:
            # A power loss tears sectors apart; of a write within one, bytes.
            kept = bends.rng.randrange(len(data)) // SECTOR_BYTES * SECTOR_BYTES or len(data) // 2
            self._file.write_at(offset, data[:kept])
            os.kill(os.getpid(), signal.SIGKILL)
        free = bends.free_bytes
        if free is not None and offset + len(data) > self._file.size() + free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file.write_at(offset, data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._file.read_at(offset, length)

    def sync(self) -> None:
        before_sync(self._bends)
        self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


def before_sync(bends: Bends) -> None:
    """Wait or fail, if it is so ordered."""
    least_s, most_s = bends.sync_takes_s
    if most_s > 0:
        time.sleep(bends.rng.uniform(least_s, most_s))
    if bends.sync_fails:
        bends.sync_fails = False
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class BentDisk(SystemDisk):
    """The system's disk with ``bends``."""

    bends: ClassVar[Bends]

    def create(self, name: str, size: int) -> SystemFile:
        free = self.bends.free_bytes
        if free is not None and size > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return BentFile(super().create(name, size), name, self.bends)

    def open(self, name: str) -> SystemFile:
        return BentFile(super().open(name), name, self.bends)

    def free_bytes(self) -> int:
        free = self.bends.free_bytes
        return super().free_bytes() if free is None else free
