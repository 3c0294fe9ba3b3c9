"""The row of segments of a live journal: where the next frame goes, which segment comes next, which may go.

One frame is under way at a time: :meth:`Segments.write`, then the work that it returns on the disk's thread,
then :meth:`Segments.settle`. A frame that does not fit into the newest segment goes into the next one, which
has been allocated ahead in slices; the work then first syncs the old segment with its last mark, so that a
segment that holds a frame proves that all before it are durable as a whole.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tenure_cluster import faults
from tenure_cluster.raft import records
from tenure_cluster.raft.allocation import Allocation
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.codec import pack
from tenure_cluster.raft.disk import Disk, DiskFile
from tenure_cluster.raft.log import Log
from tenure_cluster.raft.recovery import SEGMENT_PREFIX, UNFINISHED_SUFFIX, Recovered
from tenure_cluster.raft.segment import (
    BATCH_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    MARK_BYTES,
    NOWHERE,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    Position,
    SegmentHeader,
    encode_frame,
)

ALLOCATE_AT: Final = 0.25
"""The next segment is allocated when this part of the newest one is used."""
NO_SPACE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class JournalFailed(Exception):
    """An earlier write failed, so nothing is known about the files any more. The process must end."""


@dataclass(slots=True)
class Segment:
    header: SegmentHeader
    file: DiskFile
    end: int
    """Where the next frame goes."""
    last_index: int
    """No entry of the log that stands in this segment has a greater index."""


@dataclass(slots=True)
class JournalStats:
    """Since this process opened the journal."""

    bytes: int = 0
    batches: int = 0
    syncs: int = 0
    segments_made: int = 0
    segments_removed: int = 0


class Segments:
    def __init__(self, disk: Disk, clock: Clock, template: SegmentHeader) -> None:
        if not SEGMENT_BYTES_MIN <= template.size <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"journal segments of {template.size} bytes; from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
                " are possible"
            )
        self._disk = disk
        self._clock = clock
        self._template = template
        self._row: list[Segment] = []
        self._next: Allocation | None = None
        self._entering: tuple[Allocation, int] | None = None
        """The frame under way is the first of this segment and ends there."""
        self._naming = False
        """The next segment has its name, or gets it before any later work of the disk."""
        self._removing = False
        self._failure: BaseException | None = None
        self.durable = NOWHERE
        self.allocation_error: OSError | None = None
        """The disk is too full for the next segment; tried again with :meth:`allocate_again`."""
        self.stats = JournalStats()

    # -- start

    def begin(self, log: Log) -> None:
        """Make the first segment, with a first batch in it from the beginning."""
        header = self._header(1, self._template.size)
        frame = encode_frame(
            pack((records.opened(records.state(log), 0),)),
            header.salt,
            HEADER_BYTES,
            Position(1, HEADER_BYTES),
        )
        file = Allocation(self._disk, header, first_frame=frame).finish()
        self._row.append(Segment(header, file, HEADER_BYTES + len(frame), 0))
        self.stats.segments_made += 1
        self._mark()

    def resume(self, recovered: Recovered) -> None:
        """Go on with what was found, and make it durable: it may be in the operating system's memory only.

        What no mark vouches for is written once more. If the last process ended because a sync had failed,
        the operating system may take those pages for clean, though they never reached the disk.
        """
        newest_seq = recovered.segments[-1].header.seq
        for found in recovered.segments:
            file = self._disk.open(found.header.name)
            if found.header.seq == newest_seq:
                start = recovered.marked.offset if recovered.marked.seq == newest_seq else HEADER_BYTES
                file.write_at(start, file.read_at(start, found.end - start))
            file.sync()
            self._row.append(Segment(found.header, file, found.end, found.last_index))
        self._disk.sync_directory()
        if recovered.prepared is not None:
            self._next, self._naming = Allocation.of(self._disk, recovered.prepared), True
        newest = self._row[-1]
        if recovered.marked < Position(newest.header.seq, newest.end - MARK_BYTES):
            self._mark()
        else:
            self.durable = Position(newest.header.seq, newest.end)

    def remove_leftovers(self) -> None:
        """Segments that an earlier process did not finish."""
        for name in self._disk.names():
            if name.startswith(SEGMENT_PREFIX) and name.endswith(UNFINISHED_SUFFIX):
                self._disk.remove(name)

    def _header(self, seq: int, size: int) -> SegmentHeader:
        salt = int(self._clock.random() * (1 << 32))
        return SegmentHeader(self._template.cluster_id, self._template.node_id, seq, size, salt)

    # -- writing

    @property
    def oldest_name(self) -> str:
        return self._row[0].header.name

    @property
    def space_bytes(self) -> int:
        """How much can still be written without allocating anything."""
        newest = self._row[-1]
        space = newest.header.size - newest.end
        if self._next is not None and self._next.named:
            space += self._next.header.size - HEADER_BYTES
        return space

    def write(self, batch: Sequence[object], before: records.LogState, last_index: int) -> Callable[[], None]:
        """Write one frame, and return the blocking work after which it is durable.

        ``before`` is the log without the batch, ``last_index`` is that of the log with it.
        """
        if self._failure is not None:
            raise JournalFailed("the journal failed before") from self._failure
        body = pack(batch)
        if len(body) > BATCH_BYTES_MAX:
            raise ValueError(f"a batch of {len(body)} bytes, at most {BATCH_BYTES_MAX} are possible")
        newest = self._row[-1]
        self.stats.batches += 1
        if newest.end + FRAME_OVERHEAD_BYTES + len(body) + MARK_BYTES > newest.header.size:
            return self._enter_next(pack((records.opened(before, newest.end), *batch)), newest)
        frame = encode_frame(body, newest.header.salt, newest.end, self.durable)
        self._write_frame(newest, frame)
        newest.last_index = last_index
        return newest.file.sync

    def _write_frame(self, segment: Segment, frame: bytes) -> None:
        try:
            segment.file.write_at(segment.end, frame)
        except OSError as error:
            self._failure = error
            raise
        segment.end += len(frame)
        self.stats.bytes += len(frame)

    def _enter_next(self, body: bytes, newest: Segment) -> Callable[[], None]:
        needed = HEADER_BYTES + FRAME_OVERHEAD_BYTES + len(body) + MARK_BYTES
        allocation, other = self._next, None
        if allocation is None or not self._naming or allocation.header.size < needed:
            size = max(self._template.size, -(-needed // SEGMENT_BYTES_MIN) * SEGMENT_BYTES_MIN)
            header = self._header(newest.header.seq + 1, size)
            # One that has no name yet is taken away when its slice ends; one that has is replaced.
            other = allocation if self._naming else None
            allocation = Allocation(self._disk, header, replaces=other is not None)
        frame = encode_frame(body, allocation.header.salt, HEADER_BYTES, self.durable)
        self._next = allocation
        self._entering = (allocation, HEADER_BYTES + len(frame))
        self.stats.bytes += len(frame)

        def work() -> None:
            newest.file.sync()
            if other is not None:
                other.close()
            file = allocation.finish()
            file.write_at(HEADER_BYTES, frame)
            file.sync()

        return work

    def settle(self, last_index: int, restarted: bool) -> None:
        """The frame under way is durable; write the mark that says so. ``restarted``: it began the log
        anew."""
        self.stats.syncs += 1
        if self._entering is not None:
            allocation, end = self._entering
            self._row.append(Segment(allocation.header, allocation.file, end, last_index))
            self._next = self._entering = None
            self.stats.syncs += 1
            self.stats.segments_made += 1
        if restarted:
            for segment in self._row[:-1]:
                segment.last_index = -1
        self._mark()

    def _mark(self) -> None:
        newest = self._row[-1]
        self.durable = Position(newest.header.seq, newest.end)
        self._write_frame(newest, encode_frame(b"", newest.header.salt, newest.end, self.durable))

    # -- the next segment

    def allocate_ahead(self) -> None:
        """Begin to allocate the next segment when it is time. Needs the running loop."""
        newest = self._row[-1]
        if self._next is not None or self.allocation_error is not None:
            return
        if newest.end >= newest.header.size * ALLOCATE_AT:
            self._next = Allocation(self._disk, self._header(newest.header.seq + 1, self._template.size))
            self._naming = False
            self._write_slice(self._next)

    def allocate_again(self) -> None:
        if self.allocation_error is not None:
            self.allocation_error = None
            self.allocate_ahead()

    def _write_slice(self, allocation: Allocation) -> None:
        def done(error: BaseException | None) -> None:
            if self._next is not allocation:  # the segment was needed before it was ready, and made otherwise
                self._disk.run_bulk(allocation.take_away, self._background_done)
            elif error is None:
                if not allocation.written:
                    self._write_slice(allocation)
                else:
                    self._naming = True
                    self._disk.run(allocation.give_name, self._background_done)
            elif isinstance(error, OSError) and error.errno in NO_SPACE_ERRORS:
                self._next = None
                self.allocation_error = error
            else:
                self._failure = error

        self._disk.run_bulk(allocation.write_slice, done)

    def _background_done(self, error: BaseException | None) -> None:
        self._failure = self._failure or error

    # -- removal

    def removable(self, first_index: int) -> list[Segment]:
        """The oldest segments that have no entry of the log from ``first_index`` on, taken out of the row.

        Never the newest: the term and the vote may stand nowhere else. Its predecessors are dispensable,
        because a segment is in the row only when its first batch, which repeats both, is durable.
        """
        count = 0
        while count < len(self._row) - 1 and self._row[count].last_index < first_index:
            count += 1
        gone, self._row = self._row[:count], self._row[count:]
        return gone

    def remove(self, segments: Sequence[Segment]) -> None:
        """Blocking. One after the other, so that a crash leaves no gap in the row."""
        for segment in segments:
            faults.hit("journal.segment_remove")
            segment.file.close()
            self._disk.remove(segment.header.name)
            self._disk.sync_directory()
            self.stats.segments_removed += 1

    def remove_later(self, first_index: int) -> None:
        if self._removing or not (segments := self.removable(first_index)):
            return
        self._removing = True

        def done(error: BaseException | None) -> None:
            self._removing = False
            self._background_done(error)

        self._disk.run_bulk(lambda: self.remove(segments), done)

    def close(self) -> None:
        for segment in self._row:
            segment.file.close()
        if self._next is not None and self._next.named:
            self._next.close()
