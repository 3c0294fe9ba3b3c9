"""Reading a journal back after whatever ended the last process.

All segments are read in order and every frame is replayed. The question is what to make of the first place X
where no intact frame stands and not all of the rest is zero:

1. An intact frame further on that says "everything before D is durable", with D after X, proves that X had
   been durable, and perhaps acknowledged: the file is damaged. So does any frame of a later segment, because
   its first one is only written when the segment before is durable as a whole.
2. Otherwise, if it looks like a write that was cut short (see ``segment.py``), it was never durable, so
   nothing that depends on it was ever promised: it is zeroed, and the journal goes on from there.
3. Otherwise the bytes were all written and have changed since: damaged.

The position up to which everything is durable is written, in a mark, before an acknowledgement leaves, but it
is not synced with it. So after the death of a process the files always tell what had been durable; after a
loss of power the last mark may be missing, and then rule 3 decides.

Damage is never repaired and never skipped; the node that owns the journal must not start.
"""

from dataclasses import dataclass, field
from typing import Final

from tenure_cluster.raft import records
from tenure_cluster.raft.codec import Malformed
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.log import InconsistentLog, Log
from tenure_cluster.raft.segment import (
    HEADER_BYTES,
    NOWHERE,
    JournalDamaged,
    Position,
    SegmentHeader,
    decode_header,
    frames_after,
    looks_torn,
    read_frame,
    segment_name,
    written_bytes,
)

SEGMENT_PREFIX: Final = "journal-"
SEGMENT_SUFFIX: Final = ".seg"
UNFINISHED_SUFFIX: Final = ".new"
"""A segment that is being prepared; it gets its name when it is durable."""


@dataclass(frozen=True)
class Repair:
    """Remains of a write that was never synced, taken away."""

    file: str
    offset: int
    bytes: int


@dataclass
class RecoveredSegment:
    header: SegmentHeader
    end: int
    """Where the next frame goes."""
    last_index: int
    """Index of the last entry of the log when this segment was left."""


@dataclass
class Recovered:
    log: Log
    segments: list[RecoveredSegment] = field(default_factory=list)
    """Those that have frames, oldest first."""
    prepared: SegmentHeader | None = None
    marked: Position = NOWHERE
    """The last durable position that the files themselves state."""
    repair: Repair | None = None


def recover(disk: Disk, cluster_id: str, node_id: str) -> Recovered | None:
    """Read the journal, repairing what a crash left. None if there has never been one here.

    Raises :class:`JournalDamaged`; then nothing has been changed.
    """
    names = [n for n in disk.names() if n.startswith(SEGMENT_PREFIX) and n.endswith(SEGMENT_SUFFIX)]
    if not names:
        return None
    _check_names(names)
    reader = _Reader(cluster_id, node_id)
    for name in names:
        reader.read(name, disk.read(name))
    recovered = reader.result
    if recovered.repair is not None:
        torn = disk.open(recovered.repair.file)
        torn.write_at(recovered.repair.offset, bytes(recovered.repair.bytes))
        torn.sync()
        torn.close()
    return recovered


def _check_names(names: list[str]) -> None:
    first = names[0].removeprefix(SEGMENT_PREFIX).removesuffix(SEGMENT_SUFFIX)
    if not first.isdecimal():
        raise JournalDamaged(names[0], 0, "this is not the name of a journal segment")
    for seq, name in enumerate(names, int(first)):
        if name != segment_name(seq):
            raise JournalDamaged(segment_name(seq), 0, "the file is missing, though later segments exist")


class _Reader:
    """Takes the segments one after the other. Each but the last must end where its successor says."""

    def __init__(self, cluster_id: str, node_id: str) -> None:
        self._identity = (cluster_id, node_id)
        self.result = Recovered(Log())

    def read(self, name: str, data: bytes) -> None:
        result = self.result
        header = decode_header(name, data)
        if (header.cluster_id, header.node_id) != self._identity:
            raise JournalDamaged(
                name,
                0,
                f"it belongs to node {header.node_id!r} of cluster {header.cluster_id!r},"
                f" not to node {self._identity[1]!r} of cluster {self._identity[0]!r}",
            )
        written = max(written_bytes(data), HEADER_BYTES)
        if result.segments and written == HEADER_BYTES:
            result.prepared = result.prepared or header
            return
        if result.repair is not None:
            raise JournalDamaged(
                result.repair.file, result.repair.offset, f"no intact batch, but {name} was begun after it"
            )
        if result.prepared is not None:
            raise JournalDamaged(
                result.prepared.name, HEADER_BYTES, f"the segment is empty, but {name} was begun after it"
            )
        end = self._frames(header, data)
        if end < written:
            self._judge(header, data, end)
            result.repair = Repair(name, end, written - end)
        if end > HEADER_BYTES:
            result.segments.append(RecoveredSegment(header, end, result.log.last_index or 0))
        else:
            result.prepared = header

    def _frames(self, header: SegmentHeader, data: bytes) -> int:
        """Replay all intact frames from the beginning; returns where they end."""
        offset = HEADER_BYTES
        marked: tuple[int, int] = self.result.marked
        while (frame := read_frame(data, header.salt, offset)) is not None:
            end, durable, body = frame
            try:
                if offset == HEADER_BYTES:
                    self._open(header, records.decode_body(body))
                elif body:
                    self._replay(records.decode_body(body))
            except (Malformed, InconsistentLog) as error:
                raise JournalDamaged(header.name, offset, str(error)) from error
            if durable > marked:
                marked = durable
            offset = end
        self.result.marked = Position(*marked)
        if offset == HEADER_BYTES and not self.result.segments:
            raise JournalDamaged(header.name, offset, "the first batch of the journal is not intact")
        return offset

    def _open(self, header: SegmentHeader, batch: tuple[object, ...]) -> None:
        """The first batch of a segment repeats what the log was, and says where the segment before it
        ended."""
        log, opening = self.result.log, batch[0] if batch else None
        if not self.result.segments:
            records.begin_at(log, opening)
        else:
            previous = self.result.segments[-1]
            if opening != records.opened(records.state(log), previous.end):
                raise JournalDamaged(
                    previous.header.name,
                    previous.end,
                    f"not all is here that was when {header.name} was begun",
                )
        self._replay(batch[1:])

    def _replay(self, batch: tuple[object, ...]) -> None:
        for record in batch:
            records.replay(self.result.log, record)

    def _judge(self, header: SegmentHeader, data: bytes, offset: int) -> None:
        here = Position(header.seq, offset)
        if any(durable > here for _, durable in frames_after(data, header.salt, offset)):
            raise JournalDamaged(
                header.name, offset, "no intact batch, but a later one proves that there was"
            )
        if not looks_torn(data, header.salt, offset):
            raise JournalDamaged(header.name, offset, "the checksum of the batch does not match")
