"""A snapshot on its way out of the cluster: its file, read piece by piece while the node goes on.

The file is the one that the node itself would start from: made in slices, synced, and checked before it got
its name. It stays readable when a newer one takes its place, so whoever reads slowly holds up nobody; what
it costs meanwhile is the space of one old file.
"""

import asyncio
from typing import Final

from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.snapshot_file import SnapshotInfo, SnapshotReader, SnapshotStore
from tenure_cluster.raft.snapshots import Snapshots
from tenure_cluster.raft.types import RaftError

PIECE_BYTES: Final = 256 << 10
"""Read at a time."""


class SnapshotExport:
    """An open snapshot. Reading is bulk work of the disk."""

    def __init__(self, disk: Disk, reader: SnapshotReader) -> None:
        self.info = reader.info
        self._disk = disk
        self._reader = reader

    async def read_at(self, offset: int) -> bytes:
        """Up to PIECE_BYTES of the file; none at its end. Raises OSError."""
        piece = b""

        def read() -> None:
            nonlocal piece
            piece = self._reader.read_at(offset, PIECE_BYTES)

        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self._disk.run_bulk(read, done)
        await future
        return piece

    def close(self) -> None:
        """Behind a read that may still be under way."""
        self._disk.run_bulk(self._reader.close, lambda error: None)


async def export(store: SnapshotStore, disk: Disk, snapshots: Snapshots) -> SnapshotExport:
    """Have a snapshot of at least what is applied now, and open it. Raises RaftError."""
    while True:
        info = await _made(snapshots)
        try:
            return SnapshotExport(disk, store.reader(info))
        except FileNotFoundError:
            continue  # a newer one has taken its place a moment ago, and has more


async def _made(snapshots: Snapshots) -> SnapshotInfo:
    future: asyncio.Future[SnapshotInfo] = asyncio.get_running_loop().create_future()

    def done(info: SnapshotInfo | None, error: BaseException | None) -> None:
        if future.done():
            return
        if info is None:
            future.set_exception(RaftError(f"no snapshot could be made: {error}"))
        else:
            future.set_result(info)

    snapshots.want(done)
    return await future
