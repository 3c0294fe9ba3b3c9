"""The disk as this package sees it: one flat directory, whole files, explicit durability.

Nothing is durable until it was synced: the bytes of a file by its ``sync``, the fact that a name exists, was
changed or is gone by ``sync_directory``. Blocking work that must not hold the event loop goes through ``run``
if somebody waits for it, and through ``run_bulk`` if it is much and can wait. Each has one thread, so work is
done in the order in which it was given, and what is bulky does not stand in the way of a sync.

The simulation replaces :class:`SystemDisk`; nothing else in this package touches files or threads.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Protocol

Done = Callable[[BaseException | None], None]
"""Called on the loop when work is finished, with the exception that it raised or None."""

ZEROS_BYTES: Final = 1 << 20
"""Zeros are written in pieces of this size."""

LOCK_NAME: Final = "lock"


class DirectoryInUse(Exception):
    """Another process works in this data directory."""


class DiskFile(Protocol):
    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of ``data``; the file grows when it must. Not durable before :meth:`sync`."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Read up to ``length`` bytes; fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Block until all that was written is durable. After an error nothing is known about what was
        written since the last success, and asking again would lie."""
        ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Idempotent. Does not sync."""
        ...


class Disk(Protocol):
    def names(self) -> list[str]:
        """The names of all files, sorted."""
        ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str, size: int) -> DiskFile:
        """A new file of ``size`` zero bytes, really written so that later writes need no new space. Replaces
        a file of that name. Neither it nor its name is durable yet."""
        ...

    def open(self, name: str) -> DiskFile:
        """An existing file for reading and writing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replaces ``new`` if it exists. Durable after :meth:`sync_directory`."""
        ...

    def remove(self, name: str) -> None:
        """An open file stays readable. Durable after :meth:`sync_directory`."""
        ...

    def sync_directory(self) -> None: ...

    def free_bytes(self) -> int: ...

    def run(self, work: Callable[[], None], done: Done) -> None:
        """Do ``work`` off the loop, after all work given before, then call ``done`` on the running loop."""
        ...

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        """The same on another thread, beside and in no order with what is given to :meth:`run`."""
        ...

    def close(self) -> None:
        """Finish the work that was given, close all files, release the lock. Idempotent."""
        ...


class SystemFile:
    def __init__(self, descriptor: int, sync: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._sync = sync

    def write_at(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):  # interrupted, or short because the disk is full: the next call says so
            written += os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)

    def read_at(self, offset: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            piece = os.pread(self._descriptor, length, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def sync(self) -> None:
        self._sync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Worker:
    """A thread that does one piece of work after the other and reports on the loop that gave it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], Done, asyncio.AbstractEventLoop] | None]
        self._queue = queue.SimpleQueue()

    def put(self, work: Callable[[], None], done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put((work, done, asyncio.get_running_loop()))

    def finish(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done, loop = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # handed to the loop, which decides whether the node lives on
                error = raised
            try:
                loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                if not loop.is_closed():
                    raise
            del item, work, done, error  # nothing is kept alive while the thread waits


class SystemDisk:
    """A directory of this machine, locked against other processes for as long as this object is open.

    With durability "os" nothing is ever synced: what was acknowledged survives the death of the process, but
    not a loss of power.
    """

    def __init__(
        self, directory: str | os.PathLike[str], durability: Literal["fsync", "os"] = "fsync"
    ) -> None:
        self.directory = Path(directory)
        self._sync: Callable[[int], None] = os.fdatasync if durability == "fsync" else _no_sync
        self._make_directory()
        self._directory_descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        self._files: list[SystemFile] = []
        self._lock_descriptor = -1
        self._urgent = _Worker("disk")
        self._bulk = _Worker("disk bulk")

    def _make_directory(self) -> None:
        """Make it if need be, and its name durable, without which nothing in it is. Another process may have
        made it a moment ago; but who can't read the directory above did not make it there."""
        names = [self.directory, *self.directory.parents]
        made = {name for name in names if not name.exists()}
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            above = name.resolve().parent
            with contextlib.suppress(PermissionError):
                descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
                is_mounted = os.fstat(descriptor).st_dev != name.stat().st_dev
                try:
                    if not is_mounted:
                        self._sync(descriptor)
                finally:
                    os.close(descriptor)
            if name.parent not in made:
                break

    def lock(self) -> None:
        """Take the directory for this process alone. Raises :class:`DirectoryInUse`."""
        if self._lock_descriptor >= 0:
            return
        descriptor = os.open(self.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryInUse(f"data directory {self.directory} is in use by another process") from error
        self._lock_descriptor = descriptor

    def names(self) -> list[str]:
        with os.scandir(self.directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file() and entry.name != LOCK_NAME)

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def create(self, name: str, size: int) -> SystemFile:
        file = self._open(name, os.O_CREAT | os.O_TRUNC)
        zeros = bytes(min(size, ZEROS_BYTES))
        for offset in range(0, size, ZEROS_BYTES):
            file.write_at(offset, zeros[: size - offset])
        return file

    def open(self, name: str) -> SystemFile:
        return self._open(name, 0)

    def _open(self, name: str, flags: int) -> SystemFile:
        file = SystemFile(os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC | flags, 0o600), self._sync)
        self._files = [known for known in self._files if known._descriptor >= 0]
        self._files.append(file)
        return file

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def sync_directory(self) -> None:
        self._sync(self._directory_descriptor)

    def free_bytes(self) -> int:
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def run(self, work: Callable[[], None], done: Done) -> None:
        self._urgent.put(work, done)

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        self._bulk.put(work, done)

    def close(self) -> None:
        self._bulk.finish()
        self._urgent.finish()
        for file in self._files:
            file.close()
        self._files.clear()
        for descriptor in (self._directory_descriptor, self._lock_descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._directory_descriptor = self._lock_descriptor = -1

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name in (".", ".."):
            raise ValueError(f"{name!r} is not a plain file name")
        return self.directory / name


def _no_sync(_descriptor: int) -> None:
    """For durability "os": the operating system writes when it likes."""
