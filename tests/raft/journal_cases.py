"""What the tests of the journal share."""

import random

from disk_model import ModelDisk

from tenure_cluster.raft.journal import Entry, Journal

SEGMENT_BYTES = 64 << 10

State = tuple[list[Entry], int, str | None]


class SeededClock:
    """Only chance is asked of it here."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    def random(self) -> float:
        return self._random.random()


def open_journal(
    disk: ModelDisk,
    snapshot: tuple[Entry, Entry] | None = None,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    cluster_id: str = "cluster",
    node_id: str = "n1",
) -> Journal:
    return Journal.open(
        disk,
        SeededClock(),
        cluster_id=cluster_id,
        node_id=node_id,
        segment_bytes=segment_bytes,
        snapshot=snapshot,
    )


def write(journal: Journal) -> None:
    """Flush and sync one batch, but acknowledge nothing."""
    ticket = journal.flush_batch()
    if ticket is not None:
        ticket.sync()


def commit(journal: Journal) -> None:
    """Make everything durable, so that it may be acknowledged."""
    ticket = journal.flush_batch()
    if ticket is not None:
        ticket.sync()
        journal.mark_durable()


def append(
    journal: Journal, count: int, *, term: int | None = None, size: int = 20, fill: bytes = b"c"
) -> None:
    last_index, last_term = journal[-1][1:] if len(journal) else (0, 0)
    for index in range(last_index + 1, last_index + 1 + count):
        journal.add(b"%d." % index + fill * size, index, last_term if term is None else term)


def state(journal: Journal) -> State:
    return journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId()


def segments(disk: ModelDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".seg")]
