"""The durable log of one node: its entries, term and vote.

To PySyncObj this is its journal object; the whole log also stands in memory, and positions count from the
first entry there. On disk it is a row of segments to which batches are appended: ``segment.py`` has the
format, ``records.py`` what a batch is made of, ``segments.py`` the row, ``recovery.py`` what is made of it at
start.

The life of a batch:

1. ``add``, ``deleteEntriesFrom``, ``clear``, ``rebase`` and ``setCurrentTerm`` change the log in memory at
   once and remember a record; the journal is ``dirty``.
2. ``ticket = flush_batch()`` makes one frame of all remembered records and writes it. What comes from now on
   belongs to the next batch.
3. ``disk.run(ticket.sync, done)`` makes the frame durable, off the loop. An error there is the end of the
   node: nothing is known about the file any more, and the journal takes no further batch.
4. ``done`` calls ``mark_durable()``. Only now may anything be sent or answered that promises what the batch
   holds; ``durable_index`` has risen. A mark goes into the file, unsynced, so that the next start knows what
   had been durable even if the process is killed right after it has acknowledged.

There is never more than one batch between 2 and 4. ``sync_now()`` is all of it at once, for the time before
the loop runs.

``deleteEntriesTo`` is called when a durable snapshot covers the entries before the position and two more
(PySyncObj keeps the snapshot's last entry and the one before it). The segments that hold only such entries
are removed in the background. Nothing is ever rewritten in place.
"""

from collections.abc import Callable, Sequence
from typing import Final, overload

from tenure_cluster import faults
from tenure_cluster.raft import records
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.log import Entry, InconsistentLog, Log
from tenure_cluster.raft.membership import ENTRY_TYPE, Members
from tenure_cluster.raft.recovery import Repair, recover
from tenure_cluster.raft.segment import HEADER_BYTES, JournalDamaged, SegmentHeader
from tenure_cluster.raft.segments import JournalFailed, JournalStats, Segments

__all__ = [
    "SEGMENT_BYTES_DEFAULT",
    "Entry",
    "InconsistentLog",
    "Journal",
    "JournalDamaged",
    "JournalFailed",
    "JournalStats",
    "Repair",
    "SyncTicket",
]

SEGMENT_BYTES_DEFAULT: Final = 16 << 20


class SyncTicket:
    """One batch on its way to the disk."""

    __slots__ = ("_work", "last_index", "restarted")

    def __init__(self, work: Callable[[], None], last_index: int, restarted: bool) -> None:
        self._work = work
        self.last_index = last_index
        """What ``durable_index`` will be; it falls when entries are cut meanwhile."""
        self.restarted = restarted
        """The log began anew in this batch."""

    def sync(self) -> None:
        """Block until the batch is durable. For the disk's thread."""
        faults.hit("journal.before_sync")
        self._work()
        faults.hit("journal.after_sync")


class Journal:
    """Use :meth:`open`. All methods belong to the event loop's thread, :meth:`SyncTicket.sync` to the disk's.

    A change that no Raft log may make (a gap, a term that falls) raises :class:`InconsistentLog`: a bug, and
    the node must stop.
    """

    def __init__(self, log: Log, segments: Segments, repair: Repair | None) -> None:
        self._log = log
        self._segments = segments
        self._records: list[object] = []
        self._written = records.state(log)
        """The log as of the last batch that was written."""
        self._restarted = False
        self._in_flight: SyncTicket | None = None
        self._durable_index = log.last_index or 0
        self.members: Members | None = None
        """Told of entries that say who the members are, when they come and when they are cut off."""
        self.repair = repair
        """What recovery took away, for the log of the node."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        *,
        cluster_id: str,
        node_id: str,
        segment_bytes: int = SEGMENT_BYTES_DEFAULT,
        snapshot: tuple[Entry, Entry] | None,
    ) -> "Journal":
        """Read the journal of this disk, or begin one. When it returns, all that it holds is durable.

        ``snapshot``: the last two entries that the newest durable snapshot covers
        (``SnapshotInfo.boundary``), or None if there is no snapshot. The log then begins with exactly these
        two.

        Raises :class:`JournalDamaged` if anything is missing that may have been acknowledged, and OSError.
        Blocks.
        """
        segments = Segments(disk, clock, SegmentHeader(cluster_id, node_id, 1, segment_bytes, 0))
        recovered = recover(disk, cluster_id, node_id)
        if recovered is not None:
            segments.resume(recovered)
            journal = cls(recovered.log, segments, recovered.repair)
        elif snapshot is None:
            log = Log()
            segments.begin(log)
            journal = cls(log, segments, None)
        else:
            raise JournalDamaged("journal-*.seg", 0, "there is no journal, though there is a snapshot")
        segments.remove_leftovers()
        journal._align(snapshot)
        journal.sync_now()
        segments.remove(segments.removable(journal._first_index()))
        return journal

    def _align(self, snapshot: tuple[Entry, Entry] | None) -> None:
        """Let the log begin with the snapshot's last two entries, as PySyncObj wants it; else it would wipe
        the log when it loads the snapshot (S6)."""
        log, file = self._log, self._segments.oldest_name
        if snapshot is None:
            if log.floor_index != 0:
                raise JournalDamaged(
                    file,
                    HEADER_BYTES,
                    f"the log begins after entry {log.floor_index}, and there is no snapshot",
                )
            return
        previous, last = snapshot
        _, index, term = last
        if log.floor_index is not None and log.floor_index > index - 2:
            raise JournalDamaged(
                file,
                HEADER_BYTES,
                f"the log begins after entry {log.floor_index}, but the newest snapshot ends at {index}",
            )
        last_index = log.last_index
        if last_index is None or last_index < index:
            self.rebase(snapshot)
            return
        position = index - log.entries[0][1]
        here = log.entries[position]
        if here[2] == term:
            if here != last or log.entries[position - 1] != previous:
                raise JournalDamaged(file, HEADER_BYTES, f"entry {index} is not the one in the snapshot")
            log.forget(position - 1)
        else:
            # Never committed, like all that follow it. It may be of a later term too: what an earlier leader
            # had left was committed in the end, and not what a later one had put in its place here.
            self.rebase(snapshot)

    def _first_index(self) -> int:
        return self._log.entries[0][1] if self._log.entries else 0

    # -- what PySyncObj asks of a journal

    def add(self, command: bytes, idx: int, term: int) -> None:
        entry = (command, idx, term)
        self._log.add(entry)
        self._records.append(entry)
        if command[:1] == ENTRY_TYPE and self.members is not None:
            self.members.added(command, idx)

    def clear(self) -> None:
        """The log is empty; PySyncObj is about to add the two entries at the end of a snapshot."""
        self.rebase(())

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        entries = self._log.entries
        if not 0 <= entryFrom < len(entries):
            return
        index = entries[entryFrom][1]
        term_before = entries[entryFrom - 1][2] if entryFrom else self._log.floor_term
        self._log.cut(index, term_before)
        self._records.append((records.Kind.CUT, index, term_before))
        self._lower_durable(index - 1)
        if self.members is not None:
            self.members.cut(index - 1)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Forget the entries before this position, which must be covered by a durable snapshot."""
        if not 0 <= entryTo < len(self._log.entries):
            raise InconsistentLog(f"position {entryTo} of {len(self._log.entries)} entries")
        self._log.forget(entryTo)
        self._segments.remove_later(self._first_index())

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._log.entries[item]

    def __len__(self) -> int:
        return len(self._log.entries)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        if (term, votedForNodeId) != (self._log.term, self._log.voted_for):
            self._log.set_term(term, votedForNodeId)
            self._records.append((records.Kind.TERM, term, votedForNodeId))

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._log.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._log.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not kept: the commit index is volatile in Raft, and one that is ahead of the log does harm (D3)."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return 1

    def onOneSecondTimer(self) -> None:  # noqa: N802
        self._segments.allocate_again()

    def _destroy(self) -> None:
        self.close()

    # -- what we ask of it

    @property
    def dirty(self) -> bool:
        """There are records that are in no batch yet."""
        return bool(self._records)

    @property
    def in_flight(self) -> bool:
        """A batch was written and has not been marked durable."""
        return self._in_flight is not None

    @property
    def durable_index(self) -> int:
        """Index of the last entry that is both in this log and durable here."""
        return self._durable_index

    @property
    def log_bytes(self) -> int:
        """Bytes of all commands in the log."""
        return self._log.bytes

    @property
    def space_bytes(self) -> int:
        """How much can still be written without allocating a segment."""
        return self._segments.space_bytes

    @property
    def allocation_error(self) -> OSError | None:
        """The disk is too full for the next segment, which is tried again every second."""
        return self._segments.allocation_error

    @property
    def stats(self) -> JournalStats:
        return self._segments.stats

    def rebase(self, entries: Sequence[Entry]) -> None:
        """Restart the log with exactly these entries, which a durable snapshot covers. The segments before go
        once this is durable."""
        entries = tuple(entries)
        self._log.restart(entries)
        self._records.append((records.Kind.BASE, entries))
        self._restarted = True
        self._lower_durable(0)

    def _lower_durable(self, index: int) -> None:
        self._durable_index = min(self._durable_index, index)
        if self._in_flight is not None:
            self._in_flight.last_index = min(self._in_flight.last_index, index)

    def flush_batch(self) -> SyncTicket | None:
        """Write all records as one batch; None if there is nothing to write. Needs the running loop.

        Raises JournalFailed or OSError: the node must stop.
        """
        ticket = self._flush()
        if ticket is not None:
            self._segments.allocate_ahead()
        return ticket

    def _flush(self) -> SyncTicket | None:
        if self._in_flight is not None:
            raise RuntimeError("the batch before is still in flight")
        if not self._records:
            return None
        batch, self._records = self._records, []
        before, self._written = self._written, records.state(self._log)
        last_index = self._log.last_index or 0
        work = self._segments.write(batch, before, last_index)
        ticket = self._in_flight = SyncTicket(work, last_index, self._restarted)
        self._restarted = False
        return ticket

    def mark_durable(self) -> None:
        """The sync of the batch in flight has succeeded."""
        ticket, self._in_flight = self._in_flight, None
        if ticket is None:
            raise RuntimeError("no batch is in flight")
        self._segments.settle(ticket.last_index, ticket.restarted)
        self._durable_index = ticket.last_index
        if ticket.restarted:
            self._segments.remove_later(self._first_index())

    def sync_now(self) -> None:
        """Write and sync what is buffered, blocking. Only before the loop runs."""
        ticket = self._flush()
        if ticket is not None:
            ticket.sync()
            self.mark_durable()

    def close(self) -> None:
        """Close the files. What is not durable yet has been promised to nobody, and may be lost.

        If a batch is in flight, or a segment in the making, the disk's own ``close`` does the rest."""
        if self._in_flight is None:
            self._segments.close()
