"""Snapshot files: written beside, synced, renamed, synced again, and read in full before they are used.

There is one snapshot, the newest. A new one is written as bulk work of the disk, in slices, each synced by
itself, so that no sync of the journal beside it waits for more than a slice. It gets its name when it is
durable, and only then the one before it is removed; who still reads that one goes on, since an open file
stays readable.

A damaged newest snapshot is never replaced by an older one: the log between the two is gone.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from tenure_cluster import faults
from tenure_cluster.raft.disk import Disk, DiskFile
from tenure_cluster.raft.log import Entry
from tenure_cluster.raft.snapshot_format import (
    SNAPSHOT_BYTES_MAX,
    SnapshotDamaged,
    SnapshotInfo,
    SnapshotParser,
    encode_chunk,
    encode_head,
)

__all__ = [
    "SnapshotDamaged",
    "SnapshotInfo",
    "SnapshotReader",
    "SnapshotReceiver",
    "SnapshotSave",
    "SnapshotStore",
    "SnapshotWriter",
]

PREFIX: Final = "snapshot-"
SUFFIX: Final = ".snap"
UNFINISHED_SUFFIX: Final = ".new"
SLICE_BYTES: Final = 512 << 10
"""Written and synced at a time."""
READ_BYTES: Final = 1 << 20

SaveDone = Callable[[SnapshotInfo | None, BaseException | None], None]
"""Called on the loop with the durable snapshot, or with what went wrong."""


class SnapshotStore:
    """The snapshot of one node. Methods belong to the loop's thread; those that say so block."""

    def __init__(self, disk: Disk, cluster_id: str) -> None:
        self._disk = disk
        self._cluster_id = cluster_id
        self._latest: SnapshotInfo | None = None
        self._looked = False
        self._received = 0

    def latest(self) -> SnapshotInfo | None:
        """The newest snapshot. The first call blocks: it reads the whole file, and removes what is left over.

        Raises :class:`SnapshotDamaged`.
        """
        if not self._looked:
            names = [n for n in self._disk.names() if n.startswith(PREFIX)]
            finished = [n for n in names if n.endswith(SUFFIX)]
            if finished:
                self._latest = self._verify(finished[-1])
                self._disk.sync_directory()  # its name may be in the operating system's memory only
            for name in names:
                if self._latest is None or name != self._latest.name:
                    self._disk.remove(name)
            self._looked = True
        return self._latest

    def _verify(self, name: str) -> SnapshotInfo:
        parser = SnapshotParser(name)
        file = self._disk.open(name)
        try:
            while piece := file.read_at(parser.fed_bytes, READ_BYTES):
                parser.feed(piece)
        finally:
            file.close()
        info = parser.finish()
        if info.name != name:
            raise SnapshotDamaged(name, f"it was written as {info.name}")
        self.check_cluster(info, name)
        return info

    def check_cluster(self, info: SnapshotInfo, name: str) -> None:
        if info.cluster_id != self._cluster_id:
            raise SnapshotDamaged(name, f"it is of cluster {info.cluster_id!r}, not {self._cluster_id!r}")

    def chunks(self, info: SnapshotInfo) -> Iterator[bytes]:
        """The chunks of the state, checked again while they are read. Whoever has not seen the end of the
        iteration must not use what came before: a checksum that does not match raises
        :class:`SnapshotDamaged` there."""
        reader = self.reader(info)
        try:
            parser = SnapshotParser(info.name)
            while piece := reader.read_at(parser.fed_bytes, READ_BYTES):
                yield from parser.feed(piece)
            parser.finish()
        finally:
            reader.close()

    def reader(self, info: SnapshotInfo) -> "SnapshotReader":
        """The bytes of the file, for a transfer. Stays readable when a newer snapshot takes its place.

        Raises FileNotFoundError if ``info`` is not the latest any more.
        """
        return SnapshotReader(self._disk.open(info.name), info)

    def writer(self, last: Entry, previous: Entry, members: tuple[object, ...] = ()) -> "SnapshotWriter":
        """For a new snapshot that covers the log up to ``last``; ``previous`` is the entry before that.
        Blocks."""
        self.latest()  # which removes unfinished files, so it has to come first
        return SnapshotWriter(self._disk, SnapshotInfo(self._cluster_id, previous, last, members))

    def save(
        self,
        last: Entry,
        previous: Entry,
        chunks: Iterable[bytes],
        done: SaveDone,
        members: tuple[object, ...] = (),
    ) -> "SnapshotSave":
        """Write a snapshot in the background: ``chunks`` is drawn on the loop, a slice at a time, the rest is
        bulk work of the disk. Ends with a call of ``done``, unless it is cancelled."""
        return SnapshotSave(self, self._disk, self.writer(last, previous, members), iter(chunks), done)

    def receiver(self, size: int) -> "SnapshotReceiver":
        """For a snapshot of ``size`` bytes that another node sends."""
        self.latest()
        self._received += 1
        name = f"{PREFIX}received-{self._received}{UNFINISHED_SUFFIX}"
        return SnapshotReceiver(self, self._disk, name, size)

    def adopt(self, info: SnapshotInfo) -> None:
        """``info`` is durable: it is the latest from now on, unless a newer one, which was made or received
        at the same time, was faster. For the parts of this module."""
        if self._latest is None or info.index >= self._latest.index:
            self._latest = info

    def remove_older(self, info: SnapshotInfo) -> None:
        """Remove what ``info``, which is durable, makes superfluous. Blocks."""
        faults.hit("snapshot.before_remove")
        older = [
            n for n in self._disk.names() if n.startswith(PREFIX) and n.endswith(SUFFIX) and n < info.name
        ]
        for name in older:
            self._disk.remove(name)
        if older:
            self._disk.sync_directory()


class SnapshotReader:
    def __init__(self, file: DiskFile, info: SnapshotInfo) -> None:
        self._file = file
        self.info = info
        self.size = info.size

    def read_at(self, offset: int, length: int) -> bytes:
        return self._file.read_at(offset, length)

    def close(self) -> None:
        self._file.close()


class SnapshotWriter:
    """Writes one snapshot; every method blocks. Nothing is there before :meth:`commit` has returned."""

    def __init__(self, disk: Disk, info: SnapshotInfo) -> None:
        self._disk = disk
        self._info = info
        self._unfinished_name = info.name + UNFINISHED_SUFFIX
        self._file: DiskFile | None = None
        self._offset = 0
        self._sha = hashlib.sha256()
        self._buffer = bytearray()
        self._put(encode_head(info))

    def append(self, chunk: bytes) -> None:
        if chunk:
            self._put(encode_chunk(chunk))
            if len(self._buffer) >= SLICE_BYTES:
                self._flush()

    def _put(self, data: bytes) -> None:
        self._sha.update(data)
        self._buffer += data

    def _flush(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.create(self._unfinished_name, 0)
        self._file.write_at(self._offset, bytes(self._buffer))
        self._offset += len(self._buffer)
        self._buffer.clear()
        self._file.sync()
        return self._file

    def commit(self) -> SnapshotInfo:
        """Finish the file, make it durable and give it its name."""
        self._put(encode_chunk(b""))
        self._buffer += self._sha.digest()
        self._flush().close()
        faults.hit("snapshot.before_rename")
        self._disk.rename(self._unfinished_name, self._info.name)
        self._disk.sync_directory()
        faults.hit("snapshot.after_rename")
        return replace(self._info, size=self._offset)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._disk.remove(self._unfinished_name)


class SnapshotSave:
    """A snapshot that is being written in the background."""

    def __init__(
        self,
        store: SnapshotStore,
        disk: Disk,
        writer: SnapshotWriter,
        chunks: Iterator[bytes],
        done: SaveDone,
    ) -> None:
        self._store = store
        self._disk = disk
        self._writer = writer
        self._chunks = chunks
        self._done = done
        self._info: SnapshotInfo | None = None
        self._cancelled = False
        self._next_slice(None)

    def cancel(self) -> None:
        """Stop, soon; ``done`` is not called any more."""
        self._cancelled = True

    def _next_slice(self, error: BaseException | None) -> None:
        if error is not None or self._cancelled:
            self._give_up(error)
            return
        piece: list[bytes] = []
        piece_bytes = 0
        try:
            while piece_bytes < SLICE_BYTES and (chunk := next(self._chunks, None)) is not None:
                piece.append(chunk)
                piece_bytes += len(chunk)
        except Exception as raised:  # what the state machine raises belongs to whoever asked for the snapshot
            self._give_up(raised)
            return
        if piece:
            self._disk.run_bulk(lambda: self._append(piece), self._next_slice)
        else:
            self._disk.run_bulk(self._commit, self._committed)

    def _append(self, piece: list[bytes]) -> None:
        for chunk in piece:
            self._writer.append(chunk)

    def _commit(self) -> None:
        self._info = self._writer.commit()
        self._store.remove_older(self._info)

    def _committed(self, error: BaseException | None) -> None:
        if self._info is not None:
            self._store.adopt(self._info)
        if not self._cancelled:
            self._done(None if error else self._info, error)

    def _give_up(self, error: BaseException | None) -> None:
        def done(abandon_error: BaseException | None) -> None:
            if not self._cancelled:
                self._done(None, error or abandon_error)

        self._disk.run_bulk(self._writer.abandon, done)


class SnapshotReceiver:
    """Takes the bytes of a snapshot in order, checks them as they come, and installs it when it is
    complete."""

    def __init__(self, store: SnapshotStore, disk: Disk, name: str, size: int) -> None:
        if not 0 < size <= SNAPSHOT_BYTES_MAX:
            raise SnapshotDamaged(name, f"a snapshot of {size} bytes is not possible")
        self._store = store
        self._disk = disk
        self._name = name
        self._file = disk.create(name, 0)
        self._parser = SnapshotParser(name)
        self._unsynced_bytes = 0
        self._sync_error: BaseException | None = None
        self.size = size
        self.info: SnapshotInfo | None = None
        """What was received, once it is complete and every check has passed."""

    @property
    def received(self) -> int:
        """Bytes that have come so far: the offset of the next ones."""
        return self._parser.fed_bytes

    def write(self, offset: int, data: bytes) -> None:
        """The next bytes. Needs the running loop, since they are synced in the background.

        Raises :class:`SnapshotDamaged` as soon as it is clear that they will not make a snapshot of this
        cluster.
        """
        if offset != self.received or offset + len(data) > self.size:
            raise SnapshotDamaged(
                self._name,
                f"{len(data)} bytes at {offset} do not follow {self.received} of {self.size} bytes",
            )
        self._parser.feed(data)
        self._file.write_at(offset, data)
        self._unsynced_bytes += len(data)
        if self.received == self.size:
            info = self._parser.finish()
            self._store.check_cluster(info, self._name)
            self.info = info
        elif self._unsynced_bytes >= SLICE_BYTES:
            self._unsynced_bytes = 0
            self._disk.run_bulk(self._file.sync, self._synced)

    def _synced(self, error: BaseException | None) -> None:
        self._sync_error = self._sync_error or error

    def install(self, done: SaveDone) -> None:
        """Make the snapshot durable and the latest one, in the background; then call ``done``."""

        def work() -> None:
            self._install()

        def installed(error: BaseException | None) -> None:
            if error is None and self.info is not None:
                self._store.adopt(self.info)
            done(None if error else self.info, error)

        self._disk.run_bulk(work, installed)

    def install_now(self) -> SnapshotInfo:
        """The same, blocking."""
        info = self._install()
        self._store.adopt(info)
        return info

    def _install(self) -> SnapshotInfo:
        if self.info is None:
            raise RuntimeError("the snapshot is not complete")
        if self._sync_error is not None:
            raise self._sync_error
        self._file.sync()
        self._file.close()
        faults.hit("snapshot.before_rename")
        self._disk.rename(self._name, self.info.name)
        self._disk.sync_directory()
        faults.hit("snapshot.after_rename")
        self._store.remove_older(self.info)
        return self.info

    def abandon(self) -> None:
        """Forget what was received. In the background, after what is still under way there."""

        def remove() -> None:
            self._file.close()
            self._disk.remove(self._name)

        self._disk.run_bulk(remove, lambda error: None)
