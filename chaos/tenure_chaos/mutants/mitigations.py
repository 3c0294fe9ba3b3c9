"""What closes the defects of PySyncObj, each to be left out by itself: what does it cost the cluster?

Twelve mitigations can be left out by an option of the engine's construction (``raft/mitigations.py``). Others
are the way in which something of the package was replaced; those are undone by an edit that puts back what
the package does in their place. Codes are those of ``raft/DEFECTS.md``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tenure_chaos.mutants.edits import Edit
from tenure_cluster.raft import mitigations

_SHORT: Final = {"safety_s": "20"}

_SMALL: Final = {
    "entry_bytes_max": "4096",
    "segment_bytes": "65536",
    "snapshot_entries": "10",
    "tail_entries": "2",
    "piece_bytes": "512",
}
"""So that a resend takes several messages, compaction keeps a short tail, and the journal many segments."""

POWER: Final = {
    **_SHORT,
    "faults": "power loss one,power loss majority,power loss all,kill one,kill all,isolate leader,slow disk",
    "fault_gap_s": "1",
    "think_s": "0.1",
    **_SMALL,
}
"""Crashes with much that is not durable yet, and a snapshot every few entries."""

LINKS: Final = {
    **_SHORT,
    "faults": "isolate leader,split in halves,cut one way,bridge,slow link,reset links,kill leader",
    "fault_gap_s": "0.5",
    "think_s": "0.1",
    **_SMALL,
    "snapshot_entries": "1000",
}
"""Much under way on links that are cut, slow and reset; leaders come and go."""

SNAPSHOTS: Final = {**LINKS, "snapshot_entries": "10"}
"""The same, with followers that have to be sent a snapshot."""

PAUSES: Final = {
    **_SHORT,
    "faults": "pause node,slow link,cut one way,bridge",
    "fault_gap_s": "1",
    "think_s": "0.1",
}
"""Nodes that miss what goes on while a leader is healthy."""


@dataclass(frozen=True)
class Off:
    """One mitigation left out. ``disturbs``: it keeps the peace, and its worth is counted in elections."""

    name: str
    closes: str
    what: str
    """What the cluster does without it."""
    profile: Mapping[str, str]
    left_out: frozenset[str] = frozenset()
    edits: tuple[Edit, ...] = ()
    disturbs: bool = False


def _switched(
    name: str, closes: str, what: str, profile: Mapping[str, str], *, disturbs: bool = False
) -> Off:
    return Off(name, closes, what, profile, frozenset({name}), disturbs=disturbs)


SWITCHED: Final = (
    _switched(
        mitigations.APPEND_TRIM,
        "S1 S2 S14 S15",
        "an append truncates what follows it, matching or not",
        LINKS,
    ),
    _switched(
        mitigations.TERM_TAGS,
        "S3",
        "answers of an earlier office are counted",
        LINKS,
    ),
    _switched(
        mitigations.FLIGHT_FILTER,
        "L1",
        "every refusal of a flight moves the leader's place",
        LINKS,
    ),
    _switched(
        mitigations.SNAPSHOT_GUARD,
        "S7",
        "a snapshot is installed though the log has all of it",
        SNAPSHOTS,
    ),
    _switched(
        mitigations.VOTE_ONCE,
        "S13",
        "votes are counted, and not voters",
        LINKS,
    ),
    _switched(
        mitigations.OWN_SYNC,
        "D1",
        "a leader counts its own copy, and everybody applies, before the sync",
        POWER,
    ),
    _switched(
        mitigations.SYNC,
        "D1 D2",
        "answers and votes leave before the sync",
        POWER,
    ),
    _switched(
        mitigations.PRE_VOTE,
        "L3",
        "a node that hears nobody raises the term",
        PAUSES,
        disturbs=True,
    ),
    _switched(
        mitigations.STICKY,
        "L3",
        "who hears its leader votes for another all the same",
        PAUSES,
        disturbs=True,
    ),
    _switched(
        mitigations.SILENT_START,
        "L3",
        "who has just started votes at once",
        {**PAUSES, "faults": "kill one,pause node,cut one way"},
        disturbs=True,
    ),
    _switched(
        mitigations.HIGHER_TERM,
        "L4",
        "a deposed leader is not told so",
        LINKS,
        disturbs=True,
    ),
    _switched(
        mitigations.QUICK_STEP_DOWN,
        "L4",
        "a leader that nobody answers stays for 30 s",
        LINKS,
        disturbs=True,
    ),
)
"""By an option of the engine's construction."""

_JOURNAL = "tenure_cluster.raft.journal"
_SNAPSHOTS = "tenure_cluster.raft.snapshots"
_CONSENSUS = "tenure_cluster.raft.consensus"

UNDONE: Final = (
    Off(
        "boot alignment",
        "S6",
        "a log that does not begin where the snapshot ends is cleared at the start",
        {**POWER, "faults": "kill one,kill leader,kill all"},
        edits=(
            Edit(
                f"{_JOURNAL}:Journal._align",
                "previous, last = snapshot",
                "if tuple(log.entries[:2]) != tuple(snapshot):\n"
                "        self.rebase(snapshot)\n"
                "        return\n"
                "    previous, last = snapshot",
            ),
        ),
    ),
    Off(
        "snapshots commit nothing",
        "S4",
        "a piece of a snapshot moves the commit index to the end of the log",
        SNAPSHOTS,
        edits=(
            Edit(
                f"{_CONSENSUS}:Consensus._on_snapshot",
                '"commit_index": self.replica.commit_index,',
                '"commit_index": max('
                "self.replica.commit_index, min(message.index, self.replica.last_index)),",
            ),
        ),
    ),
    Off(
        "snapshot synced before its name",
        "D7",
        "a snapshot gets its name before its content is durable",
        POWER,
        edits=(
            Edit(
                "tenure_cluster.raft.snapshot_file:SnapshotWriter._flush",
                "self._file.sync()",
                "pass",
            ),
        ),
    ),
    Off(
        "compaction behind a durable snapshot",
        "D8",
        "the log is compacted when a snapshot is begun",
        POWER,
        edits=(
            Edit(
                f"{_SNAPSHOTS}:Snapshots.make_if_due",
                "self._entries = self._bytes = 0",
                "self._entries = self._bytes = 0\n"
                "    self._compact(index)\n"
                "    self._consensus().journal._segments.remove_later(index)",
            ),
        ),
    ),
    Off(
        "commit index not stored",
        "D3",
        "a node that starts takes all of its log for committed",
        POWER,
        edits=(
            Edit(
                f"{_CONSENSUS}:Consensus.__init__",
                "if self.is_alone:",
                "self.replica.commit_index = self.replica.last_index\n    if self.is_alone:",
            ),
        ),
    ),
    Off(
        "checksums of the journal",
        "D5",
        "what was torn is read as it stands",
        POWER,
        edits=(
            Edit(
                "tenure_cluster.raft.segment:read_frame",
                "if data[end - 1] != _TRAILER[0] or zlib.crc32(body, seed) != body_crc:",
                "if False:",
            ),
        ),
    ),
    Off(
        "term and vote in the journal",
        "D2",
        "a node that starts knows neither its term nor its vote",
        {**LINKS, "faults": "kill one,kill leader,kill all,isolate leader"},
        edits=(
            Edit(
                f"{_JOURNAL}:Journal.setCurrentTerm",
                "self._records.append((records.Kind.TERM, term, votedForNodeId))",
                "pass",
            ),
        ),
    ),
    Off(
        "messages before timers",
        "L3",
        "a process that was paused looks at its timers before it reads what came",
        {**PAUSES, "faults": "pause node"},
        edits=(
            Edit(
                "tenure_cluster.raft.pump:Pump._on_timer",
                "elif gap_s > self._options.election_timeout_min_ms / 2000:",
                "elif False:",
            ),
            Edit(
                "tenure_cluster.raft.pump:Pump._round",
                "self._deliver(consensus)",
                "consensus.tick()\n    self._deliver(consensus)",
            ),
        ),
        disturbs=True,
    ),
    Off(
        "answers exactly once",
        "L6 S12",
        "what was appended when the office was lost is answered as not executed",
        LINKS,
        edits=(
            Edit(
                "tenure_cluster.raft.proposals:Proposals.end_office",
                "self._answers.extend((done, Unknown()) for done in batch.dones)",
                "self._answers.extend((done, refusal) for done in batch.dones)",
            ),
        ),
    ),
)
"""By an edit."""

ALL: Final = (*SWITCHED, *UNDONE)
BY_NAME: Final = {off.name: off for off in ALL}
