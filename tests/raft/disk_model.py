"""A disk in memory that knows what is durable, and can lose the rest.

``ModelDisk`` keeps, for every file, what was synced and every write since; for the directory, what it held
at the last sync. ``kill`` is the death of the process: everything written stays. ``lose_power`` keeps what is
durable and lets chance decide about the rest: either the writes since are cut off at some byte, or each
sector of 512 bytes is the old one or that of some moment since; each name that was made, changed or removed
since is as before or as after.

``fail_after`` makes the power fail at the n-th operation from now: that operation and every later one raise
:class:`PowerLost`, so that a test can cut any sequence of operations at any place.

Work given to ``run`` and ``run_bulk`` waits until :meth:`ModelDisk.work`.
"""

import errno
import random
from collections import deque
from collections.abc import Callable

from tenure_cluster.raft.disk import Done

SECTOR_BYTES = 512


class PowerLost(BaseException):
    """The operation did not return, since the machine has stopped. Not an Exception: nobody may handle it."""


class Inode:
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

    def fail_sync(self) -> None:
        """What real systems do: the pages keep what was written, and count as clean."""
        self.writes.clear()

    def lose_power(self, chance: random.Random) -> None:
        if not self.writes:
            self.present = bytearray(self.durable)
        elif chance.random() < 0.5:
            whole = chance.randrange(len(self.writes) + 1)
            for offset, data in self.writes[:whole]:
                _apply(self.durable, offset, data)
            if whole < len(self.writes):
                offset, data = self.writes[whole]
                _apply(self.durable, offset, data[: chance.randrange(len(data) + 1)])
            self._forget_writes()
        else:
            self._mix_sectors(chance)
            self._forget_writes()

    def _forget_writes(self) -> None:
        self.present = bytearray(self.durable)
        self.writes.clear()

    def _mix_sectors(self, chance: random.Random) -> None:
        before = bytes(self.durable)
        versions = [before]
        for offset, data in self.writes:
            version = bytearray(versions[-1])
            _apply(version, offset, data)
            versions.append(bytes(version))
        size = chance.choice([len(version) for version in versions])
        self.durable = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            touched = [
                number
                for number, (offset, data) in enumerate(self.writes, 1)
                if offset < start + SECTOR_BYTES and offset + len(data) > start
            ]
            version = versions[chance.choice([0, *touched])] if touched else before
            piece = version[start : min(start + SECTOR_BYTES, size)]
            self.durable[start : start + len(piece)] = piece


def _apply(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class ModelFile:
    def __init__(self, disk: "ModelDisk", inode: Inode) -> None:
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
        self._disk.step()  # the power may fail with the write under way, so it has been made

    def read_at(self, offset: int, length: int) -> bytes:
        self._check()
        return bytes(self._inode.present[offset : offset + length])

    def sync(self) -> None:
        self._check()
        self._disk.step()
        self._disk.syncs += 1
        if self._disk.sync_error is not None and self._disk.good_syncs > 0:
            self._disk.good_syncs -= 1
        elif self._disk.sync_error is not None:
            self._inode.fail_sync()
            raise self._disk.sync_error
        self._inode.sync()

    def size(self) -> int:
        self._check()
        return len(self._inode.present)

    def close(self) -> None:
        self._open = False


class ModelDisk:
    def __init__(self, space_bytes: int = 1 << 40) -> None:
        self.space_bytes = space_bytes
        self.life = 0
        self.syncs = 0
        self.operations = 0
        self.sync_error: OSError | None = None
        self.good_syncs = 0
        """So many syncs of files still succeed before ``sync_error`` is raised."""
        self._fail_at: int | None = None
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._urgent: deque[tuple[Callable[[], None], Done]] = deque()
        self._bulk: deque[tuple[Callable[[], None], Done]] = deque()

    # -- what the code under test uses

    def names(self) -> list[str]:
        return sorted(self._names)

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).present)

    def create(self, name: str, size: int) -> ModelFile:
        self.step()
        inode = self._names[name] = Inode()
        file = ModelFile(self, inode)
        if size:
            file.write_at(0, bytes(size))
        return file

    def open(self, name: str) -> ModelFile:
        return ModelFile(self, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode
        self.step()

    def remove(self, name: str) -> None:
        self._inode(name)
        del self._names[name]
        self.step()

    def sync_directory(self) -> None:
        self.step()
        self._durable_names = dict(self._names)

    def free_bytes(self) -> int:
        return self.space_bytes - sum(len(inode.present) for inode in self._names.values())

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
        """The process has ended; a new one finds everything that was written."""
        self.life += 1
        self._fail_at = None
        self._urgent.clear()
        self._bulk.clear()

    def lose_power(self, chance: random.Random) -> None:
        """The machine has stopped and started again."""
        self.kill()
        names: dict[str, Inode] = {}
        for name in sorted(self._names.keys() | self._durable_names.keys()):
            before, after = self._durable_names.get(name), self._names.get(name)
            inode = before if before is after else chance.choice((before, after))
            if inode is not None:
                names[name] = inode
        for inode in {id(inode): inode for inode in names.values()}.values():
            inode.lose_power(chance)
        self._names, self._durable_names = names, dict(names)

    def overwrite(self, name: str, content: bytes) -> None:
        """Replace a file behind everybody's back, durably."""
        inode = self._names[name] = self._durable_names[name] = Inode()
        inode.present[:] = inode.durable[:] = content

    def copy(self) -> "ModelDisk":
        """Another disk with the same files, for a process of its own."""
        other = ModelDisk(self.space_bytes)
        for name, inode in self._names.items():
            other.overwrite(name, bytes(inode.present))
        return other

    # -- for the files

    def step(self) -> None:
        self.operations += 1
        if self._fail_at is not None and self.operations > self._fail_at:
            raise PowerLost

    def spend(self, more_bytes: int) -> None:
        if more_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "the disk is full")

    def _inode(self, name: str) -> Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._names[name]
