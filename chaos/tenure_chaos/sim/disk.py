"""A simulated disk that knows what is durable, and can lose the rest.

For every file it keeps what was synced and every write since; for the directory, what it held at the last
sync. ``kill`` is the death of the process: everything written stays. ``lose_power`` keeps what is durable
and lets chance decide about the rest: either the writes since are cut off at some byte, or each sector of
512 bytes is the old one or that of some moment since; each name that was made, changed or removed since is
as before or as after.

Work given to ``run`` takes time on the world's clock, and a crash can fall into it. A sync can be slow, and
it can fail.
"""

import errno
import random
from collections import deque
from collections.abc import Callable

from tenure_chaos.sim.loop import Scheduled, VirtualLoop

SECTOR_BYTES = 512

Done = Callable[[BaseException | None], None]


class Inode:
    """The content of one file, whatever it is called."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.present = bytearray()
        self.writes: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.present, offset, data)
        self.writes.append((offset, bytes(data)))

    def sync(self) -> None:
        for offset, data in self.writes:
            _apply(self.durable, offset, data)
        self.writes.clear()

    def lose_power(self, rng: random.Random) -> bool:
        """True if something that had been written is not there any more."""
        if not self.writes:
            return False
        written = bytes(self.present)
        if rng.random() < 0.5:
            whole = rng.randrange(len(self.writes) + 1)
            for offset, data in self.writes[:whole]:
                _apply(self.durable, offset, data)
            if whole < len(self.writes):
                offset, data = self.writes[whole]
                _apply(self.durable, offset, data[: rng.randrange(len(data) + 1)])
        else:
            self._mix_sectors(rng)
        self.present = bytearray(self.durable)
        self.writes.clear()
        return written != self.present

    def _mix_sectors(self, rng: random.Random) -> None:
        versions = [bytes(self.durable)]
        for offset, data in self.writes:
            version = bytearray(versions[-1])
            _apply(version, offset, data)
            versions.append(bytes(version))
        size = rng.choice([len(version) for version in versions])
        if len(self.durable) > size:
            del self.durable[size:]
        self.durable.extend(bytes(size - len(self.durable)))
        touched: dict[int, list[int]] = {}
        for number, (offset, data) in enumerate(self.writes, 1):
            for sector in range(
                offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1 if data else 0
            ):
                touched.setdefault(sector, [0]).append(number)
        for sector, numbers in sorted(touched.items()):
            start = sector * SECTOR_BYTES
            piece = versions[rng.choice(numbers)][start : min(start + SECTOR_BYTES, size)]
            self.durable[start : start + len(piece)] = piece


def _apply(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class SimFile:
    def __init__(self, disk: "SimDisk", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self._open = True

    def _check(self) -> None:
        if not self._open or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed")

    def write_at(self, offset: int, data: bytes) -> None:
        self._check()
        self._disk.spend(max(0, offset + len(data) - len(self._inode.present)))
        self._inode.write(offset, data)

    def read_at(self, offset: int, length: int) -> bytes:
        self._check()
        return bytes(self._inode.present[offset : offset + length])

    def sync(self) -> None:
        self._check()
        self._disk.synced()
        self._inode.sync()

    def size(self) -> int:
        self._check()
        return len(self._inode.present)

    def close(self) -> None:
        self._open = False


class _Worker:
    """One thread of the disk: a piece of work after the other, each takes its time."""

    def __init__(self, disk: "SimDisk") -> None:
        self._disk = disk
        self._work: deque[tuple[Callable[[], None], Done]] = deque()
        self._timer: Scheduled | None = None

    def put(self, work: Callable[[], None], done: Done) -> None:
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


class SimDisk:
    """One node's data directory. It outlives the process."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, space_bytes: int = 1 << 30) -> None:
        self.loop = loop
        self._rng = rng
        self.space_bytes = space_bytes
        self.sync_min_s, self.sync_max_s = 0.0002, 0.002
        self.life = 0
        self.syncs = 0
        self.fail_next_sync = False
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._used_bytes = 0
        self._urgent = _Worker(self)
        self._bulk = _Worker(self)

    # -- what the node uses

    def names(self) -> list[str]:
        return sorted(self._names)

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).present)

    def create(self, name: str, size: int) -> SimFile:
        old = self._names.get(name)
        if old is not None:
            self._used_bytes -= len(old.present)
        inode = self._names[name] = Inode()
        file = SimFile(self, inode)
        if size:
            file.write_at(0, bytes(size))
        return file

    def open(self, name: str) -> SimFile:
        return SimFile(self, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        del self._names[old]
        replaced = self._names.get(new)
        if replaced is not None:
            self._used_bytes -= len(replaced.present)
        self._names[new] = inode

    def remove(self, name: str) -> None:
        self._used_bytes -= len(self._inode(name).present)
        del self._names[name]

    def sync_directory(self) -> None:
        self.synced()
        self._durable_names = dict(self._names)

    def free_bytes(self) -> int:
        return max(0, self.space_bytes - self._used_bytes)

    def run(self, work: Callable[[], None], done: Done) -> None:
        self._urgent.put(work, done)

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        self._bulk.put(work, done)

    def close(self) -> None:
        """All that was given to ``run`` is finished by the process before it closes its disk."""

    # -- what the world does with it

    def kill(self) -> None:
        """The process has ended; a new one finds everything that was written."""
        self.life += 1
        self._urgent.clear()
        self._bulk.clear()
        self.fail_next_sync = False

    def lose_power(self) -> int:
        """The machine has stopped and will start again. Answers how many files have lost something."""
        self.kill()
        names: dict[str, Inode] = {}
        for name in sorted(self._names.keys() | self._durable_names.keys()):
            before, after = self._durable_names.get(name), self._names.get(name)
            inode = before if before is after else self._rng.choice((before, after))
            if inode is not None:
                names[name] = inode
        lost = sum(
            [inode.lose_power(self._rng) for inode in {id(node): node for node in names.values()}.values()]
        )
        self._names, self._durable_names = names, dict(names)
        self._used_bytes = sum(len(inode.present) for inode in names.values())
        return lost

    def flip(self, name: str, offset: int) -> None:
        """Bit rot: one bit of a file changes behind everybody's back."""
        inode = self._inode(name)
        for content in (inode.present, inode.durable):
            if offset < len(content):
                content[offset] ^= 1 << self._rng.randrange(8)

    # -- for the files and the workers

    def work_time_s(self) -> float:
        return self._rng.uniform(self.sync_min_s, self.sync_max_s)

    def synced(self) -> None:
        self.syncs += 1
        if self.fail_next_sync:
            self.fail_next_sync = False
            raise OSError(errno.EIO, "the disk failed to sync")

    def spend(self, more_bytes: int) -> None:
        if more_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "the disk is full")
        self._used_bytes += more_bytes

    def _inode(self, name: str) -> Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._names[name]
