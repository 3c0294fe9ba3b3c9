"""Files in memory that know what is durable, and can lose the rest.

For every file there is what was synced, and every write since; for the directory, what it held at the last
sync. ``kill`` is the death of the process: everything written stays. ``lose_power`` keeps what is durable
and lets chance decide about the rest: either the writes since are cut off at some byte, or each sector of
512 bytes is the old one or that of some moment since; each name that was made, changed or removed since is
as before or as after.

A sync that fails does what real systems do: the pages keep what was written and count as clean, so a later
sync that succeeds does not make it durable.
"""

import errno
import random

SECTOR_BYTES = 512


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

    def fail_sync(self) -> None:
        self.writes.clear()

    def lose_power(self, rng: random.Random) -> bool:
        """True if something that had been written is not there any more."""
        written = bytes(self.present)
        if self.writes and rng.random() < 0.5:
            self._keep_some(rng)
        elif self.writes:
            self._mix_sectors(rng)
        self.present = bytearray(self.durable)
        self.writes.clear()
        return written != self.present

    def _keep_some(self, rng: random.Random) -> None:
        whole = rng.randrange(len(self.writes) + 1)
        for offset, data in self.writes[:whole]:
            _apply(self.durable, offset, data)
        if whole < len(self.writes):
            offset, data = self.writes[whole]
            _apply(self.durable, offset, data[: rng.randrange(len(data) + 1)])

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


class File:
    """An open file of one life of the process."""

    def __init__(self, disk: "MemoryDisk", inode: Inode) -> None:
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
        self._disk.written()

    def read_at(self, offset: int, length: int) -> bytes:
        self._check()
        return bytes(self._inode.present[offset : offset + length])

    def sync(self) -> None:
        self._check()
        try:
            self._disk.synced()
        except OSError:
            self._inode.fail_sync()
            raise
        self._inode.sync()

    def size(self) -> int:
        self._check()
        return len(self._inode.present)

    def close(self) -> None:
        self._open = False


class MemoryDisk:
    """One data directory. It outlives the process. Work given to the disk is done by whoever derives from
    this."""

    def __init__(self, space_bytes: int) -> None:
        self.space_bytes = space_bytes
        self.life = 0
        self.syncs = 0
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._used_bytes = 0

    # -- what the node uses

    def names(self) -> list[str]:
        return sorted(self._names)

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).present)

    def create(self, name: str, size: int) -> File:
        self._free(name)
        inode = self._names[name] = Inode()
        file = File(self, inode)
        if size:
            file.write_at(0, bytes(size))
        return file

    def open(self, name: str) -> File:
        return File(self, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        del self._names[old]
        self._free(new)
        self._names[new] = inode

    def remove(self, name: str) -> None:
        self._inode(name)
        self._free(name)
        del self._names[name]

    def sync_directory(self) -> None:
        self.synced()
        self.keep_names()

    def keep_names(self) -> None:
        self._durable_names = dict(self._names)

    def free_bytes(self) -> int:
        return max(0, self.space_bytes - self._used_bytes)

    # -- what the world does with it

    def kill(self) -> None:
        """The process has ended; a new one finds everything that was written."""
        self.life += 1

    def power_lost(self, rng: random.Random) -> int:
        """The machine has stopped and will start again. Answers how many files have lost something."""
        self.kill()
        names: dict[str, Inode] = {}
        for name in sorted(self._names.keys() | self._durable_names.keys()):
            before, after = self._durable_names.get(name), self._names.get(name)
            inode = before if before is after else rng.choice((before, after))
            if inode is not None:
                names[name] = inode
        lost = sum([inode.lose_power(rng) for inode in {id(node): node for node in names.values()}.values()])
        self._names, self._durable_names = names, dict(names)
        self._used_bytes = sum(len(inode.present) for inode in names.values())
        return lost

    def overwrite(self, name: str, content: bytes) -> None:
        """Replace a file behind everybody's back, durably."""
        self._free(name)
        inode = self._names[name] = self._durable_names[name] = Inode()
        inode.present[:] = inode.durable[:] = content
        self._used_bytes += len(content)

    # -- for the files; what a harness may refuse, count or interrupt

    def spend(self, more_bytes: int) -> None:
        """A write is about to be made that needs so much more space."""
        if more_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "the disk is full")
        self._used_bytes += more_bytes

    def written(self) -> None:
        """A write has been made."""

    def synced(self) -> None:
        """A sync is about to succeed. What is raised here fails it."""
        self.syncs += 1

    def _free(self, name: str) -> None:
        inode = self._names.get(name)
        if inode is not None:
            self._used_bytes -= len(inode.present)

    def _inode(self, name: str) -> Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._names[name]
