"""Making a journal segment ahead of its use.

The zeros are written and synced in slices, as bulk work of the disk, under a name of their own. The segment
gets its name when it is durable in full, by work that is in order with the syncs of the batches: so whoever
enters it later in that order finds it, and an attempt that was given up can never take the place of a segment
in use.
"""

from typing import Final

from tenure_cluster import faults
from tenure_cluster.raft.disk import Disk, DiskFile
from tenure_cluster.raft.recovery import UNFINISHED_SUFFIX
from tenure_cluster.raft.segment import HEADER_BYTES, SegmentHeader

SLICE_BYTES: Final = 256 << 10


class Allocation:
    """One segment in the making: :meth:`write_slice` until :attr:`written`, then :meth:`give_name`. Or
    :meth:`finish`."""

    def __init__(
        self, disk: Disk, header: SegmentHeader, *, first_frame: bytes = b"", replaces: bool = False
    ) -> None:
        self._disk = disk
        self.header = header
        self._first_frame = first_frame
        self._replaces = replaces
        self._unfinished_name = f"{header.name}.{header.salt:08x}{UNFINISHED_SUFFIX}"
        self._file: DiskFile | None = None
        self._offset = 0
        self.written = False
        self.named = False

    @classmethod
    def of(cls, disk: Disk, header: SegmentHeader) -> "Allocation":
        """A segment that an earlier process has made and not used."""
        allocation = cls(disk, header)
        allocation._file = disk.open(header.name)
        allocation.written = allocation.named = True
        return allocation

    @property
    def file(self) -> DiskFile:
        """The finished segment."""
        if self._file is None or not self.named:
            raise RuntimeError(f"{self.header.name} is not ready")
        return self._file

    def write_slice(self) -> None:
        """Write and sync the next slice. On an error the attempt is taken away."""
        try:
            self._write_slice()
        except OSError:
            self.take_away()
            raise

    def _write_slice(self) -> None:
        if self._file is None:
            self._file = self._disk.create(self._unfinished_name, HEADER_BYTES)
            self._offset = HEADER_BYTES
        slice_bytes = min(SLICE_BYTES, self.header.size - self._offset)
        self._file.write_at(self._offset, bytes(slice_bytes))
        self._offset += slice_bytes
        if self._offset == self.header.size:
            self._file.write_at(0, self.header.encode())
            if self._first_frame:
                self._file.write_at(HEADER_BYTES, self._first_frame)
        self._file.sync()
        self.written = self._offset == self.header.size

    def give_name(self) -> None:
        """Once written. Nothing if it has its name already."""
        if self.named:
            return
        if not self._replaces and self.header.name in self._disk.names():
            raise FileExistsError(f"{self.header.name} exists already")  # a bug; it may hold batches
        faults.hit("journal.segment_rename")
        self._disk.rename(self._unfinished_name, self.header.name)
        self._disk.sync_directory()
        self.named = True

    def finish(self) -> DiskFile:
        """Do what is left, at once."""
        while not self.written:
            self.write_slice()
        self.give_name()
        return self.file

    def take_away(self) -> None:
        """Give up an attempt that has no name yet."""
        self.close()
        self._file = None
        if self._unfinished_name in self._disk.names():
            self._disk.remove(self._unfinished_name)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
