"""The records that make up a batch of the journal, and how they are replayed.

An entry stands for itself: the (command, index, term) tuple. Everything else is a tuple that begins with one
of the kinds below. The first record of a segment is always ``OPENED``; it repeats what the log was, so that
the segments before it can be removed once a snapshot covers their entries.
"""

from typing import Any, Final, TypeAlias

from tenure_cluster.raft.codec import Malformed, unpack
from tenure_cluster.raft.log import Entry, InconsistentLog, Log
from tenure_cluster.raft.segment import SEGMENT_BYTES_MAX


class Kind:
    CUT: Final = 1
    """(CUT, index, term of the entry before): entries from this index on are taken away."""
    TERM: Final = 2
    """(TERM, term, voted_for)"""
    BASE: Final = 3
    """(BASE, entries): the log restarts with exactly these entries, which a durable snapshot covers."""
    OPENED: Final = 4
    """(OPENED, term, voted_for, last_index, last_term, previous_end): the log as the segment begins, and
    where the segment before it ends."""


LogState: TypeAlias = tuple[int, str | None, int | None, int]
"""(term, voted_for, last_index, last_term)"""


def state(log: Log) -> LogState:
    return (log.term, log.voted_for, log.last_index, log.last_term)


def opened(before: LogState, previous_end: int) -> tuple[object, ...]:
    return (Kind.OPENED, *before, previous_end)


def decode_body(body: bytes) -> tuple[Any, ...]:
    """The records of a batch. Raises :class:`Malformed`."""
    records = unpack(body, bytes_max=SEGMENT_BYTES_MAX, items_max=len(body))
    if not isinstance(records, tuple):
        raise Malformed("a batch is not an array of records")
    return records


def replay(log: Log, record: Any) -> None:
    """Do to ``log`` what was done when the record was written. Raises :class:`InconsistentLog`."""
    match record:
        case (bytes(), int(), int()):
            log.add(record)
        case (Kind.TERM, int(term), None | str() as voted_for):
            log.set_term(term, voted_for)
        case (Kind.CUT, int(first_index), int(term_before)):
            log.cut(first_index, term_before)
        case (Kind.BASE, tuple(entries)):
            log.restart(_entries(entries))
        case _:
            raise InconsistentLog("a record of unknown shape")


def begin_at(log: Log, record: Any) -> None:
    """Start a replay at a segment whose predecessors are gone. Raises :class:`InconsistentLog`."""
    match record:
        case (
            Kind.OPENED,
            int(term),
            None | str() as voted_for,
            None | int() as index,
            int(index_term),
            int(),
        ):
            log.term, log.voted_for = term, voted_for
            log.floor_index, log.floor_term = index, index_term
        case _:
            raise InconsistentLog("the first record does not say what the log was")


def _entries(values: tuple[Any, ...]) -> list[Entry]:
    for value in values:
        match value:
            case (bytes(), int(), int()):
                pass
            case _:
                raise InconsistentLog("something that is not an entry")
    return list(values)
