"""Making the next journal segment, in slices, so that the batches that wait for their sync meanwhile are not
held up.

A segment gets its name when it is durable in full, header and zeros. Everything here runs on the disk's
thread, or before the loop runs.
"""

from typing import Final

from tenure_cluster import faults
from tenure_cluster.raft.disk import Disk, DiskFile
from tenure_cluster.raft.recovery import UNFINISHED_SUFFIX
from tenure_cluster.raft.segment import HEADER_BYTES, SegmentHeader

SLICE_BYTES: Final = 1 << 20


class Allocation:
    """One segment in the making. :meth:`step` until :attr:`ready`, or :meth:`finish`."""

    def __init__(
        self, disk: Disk, header: SegmentHeader, *, first_frame: bytes = b"", replaces: bool = False
    ) -> None:
        self._disk = disk
        self.header = header
        self._first_frame = first_frame
        self._replaces = replaces
        self._unfinished_name = header.name + UNFINISHED_SUFFIX
        self._file: DiskFile | None = None
        self._offset = 0
        self.ready = False

    @classmethod
    def of(cls, disk: Disk, header: SegmentHeader) -> "Allocation":
        """A segment that an earlier process has prepared."""
        allocation = cls(disk, header)
        allocation._file = disk.open(header.name)
        allocation.ready = True
        return allocation

    @property
    def file(self) -> DiskFile:
        """The finished segment."""
        if self._file is None or not self.ready:
            raise RuntimeError(f"{self.header.name} is not ready")
        return self._file

    def step(self) -> None:
        """Write and sync one slice; after the last one the segment gets its name. Nothing when it is ready.

        On an error the attempt is taken away, and the next step begins anew.
        """
        if self.ready:
            return
        try:
            self._step()
        except OSError:
            self._take_away()
            raise

    def _step(self) -> None:
        if self._file is None:
            self._file = self._disk.create(self._unfinished_name, HEADER_BYTES)
            self._offset = HEADER_BYTES
        if self._offset < self.header.size:
            slice_bytes = min(SLICE_BYTES, self.header.size - self._offset)
            self._file.write_at(self._offset, bytes(slice_bytes))
            self._offset += slice_bytes
        if self._offset == self.header.size:
            self._file.write_at(0, self.header.encode())
            if self._first_frame:
                self._file.write_at(HEADER_BYTES, self._first_frame)
        self._file.sync()
        if self._offset == self.header.size:
            self._give_name()

    def _give_name(self) -> None:
        if not self._replaces and self.header.name in self._disk.names():
            raise FileExistsError(f"{self.header.name} exists already")  # a bug; it may hold batches
        faults.hit("journal.segment_rename")
        self._disk.rename(self._unfinished_name, self.header.name)
        self._disk.sync_directory()
        self.ready = True

    def _take_away(self) -> None:
        self.abandon()
        self._file = None
        if self._unfinished_name in self._disk.names():
            self._disk.remove(self._unfinished_name)

    def finish(self) -> DiskFile:
        while not self.ready:
            self.step()
        return self.file

    def abandon(self) -> None:
        """Close the file, in whatever state it is. It is replaced or removed later."""
        if self._file is not None:
            self._file.close()
