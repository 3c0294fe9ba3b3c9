"""Mutants of durability: what is promised before it is on the disk."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_JOURNAL = "tenure_cluster.raft.journal"

SYNC_SKIPPED = Mutant(
    "sync skipped",
    "the journal says that a batch is durable without having synced its file",
    (
        Edit(
            "tenure_cluster.raft.segments:Segments.write",
            "return newest.file.sync",
            "return lambda: None",
        ),
    ),
)

VOTE_NOT_PERSISTED = Mutant(
    "vote not persisted",
    "the journal keeps the term and not for whom this node has voted in it",
    (
        Edit(
            f"{_JOURNAL}:Journal.setCurrentTerm",
            "self._records.append((records.Kind.TERM, term, votedForNodeId))",
            "self._records.append((records.Kind.TERM, term, None))",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

TERM_NOT_PERSISTED = Mutant(
    "term not persisted",
    "the journal keeps neither the term nor the vote",
    (
        Edit(
            f"{_JOURNAL}:Journal.setCurrentTerm",
            "self._records.append((records.Kind.TERM, term, votedForNodeId))",
            "pass",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

SENT_BEFORE_THE_SYNC = Mutant(
    "outbound messages before the sync",
    "answers and votes leave before what they promise is durable",
    (
        Edit(
            "tenure_cluster.raft.pump:Pump._barrier",
            "self._held = held",
            "self._send(held)",
        ),
    ),
)

SNAPSHOT_NOT_SYNCED = Mutant(
    "snapshot renamed before it is synced",
    "a snapshot gets its name, and the log is compacted, before its content is durable",
    (
        Edit(
            "tenure_cluster.raft.snapshot_file:SnapshotWriter._flush",
            "self._file.sync()",
            "pass",
        ),
    ),
    profiles.MANY_SNAPSHOTS,
)

COMPACTED_TOO_EARLY = Mutant(
    "log compacted before the snapshot is durable",
    "entries are forgotten when a snapshot is begun, not when it is durable",
    (
        Edit(
            "tenure_cluster.raft.snapshots:Snapshots.make_if_due",
            "self._entries = self._bytes = 0",
            "self._entries = self._bytes = 0\n"
            "    self._compact(index)\n"
            "    self._consensus().journal._segments.remove_later(index)",
        ),
    ),
    profiles.MANY_SNAPSHOTS,
)

MUTANTS = (
    SYNC_SKIPPED,
    VOTE_NOT_PERSISTED,
    TERM_NOT_PERSISTED,
    SENT_BEFORE_THE_SYNC,
    SNAPSHOT_NOT_SYNCED,
    COMPACTED_TOO_EARLY,
)
