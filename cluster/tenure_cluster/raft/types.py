"""What the consensus part says to the rest: options, the state machine it drives, and how a proposal
ended."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Role = Literal["leader", "follower", "candidate"]
RefusalReason = Literal["not_leader", "queue_full", "too_large", "shutting_down"]
Stage = Literal["appended", "durable", "committed", "applied"]
"""How far an entry has come on one node: appended to its log by its leader; on this disk, as are all before
it; known to be on a quorum's; in this node's state."""


class RaftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound and timer of the consensus part."""

    election_timeout_min_ms: int = 500
    """Shortest silence of a leader after which a follower asks for an election. At least 4 x heartbeat_ms."""
    election_timeout_max_ms: int = 1000
    """Longest such silence, and the time after which a leader without a quorum steps down. Above the
    minimum."""
    heartbeat_ms: int = 100
    """Period in which a leader proves itself to followers that get nothing else from it."""
    snapshot_entries: int = 10_000
    """Applied log entries after which a snapshot is made and the log is compacted."""
    snapshot_bytes: int = 64 << 20
    """Bytes of applied log entries after which a snapshot is made, whatever their number."""
    entry_bytes_max: int = 1 << 20
    """Largest log entry, and so the largest single command (less a few bytes of framing)."""
    entry_commands_max: int = 1024
    """Most commands in one log entry, which is applied in one go and holds the event loop meanwhile."""
    queue_max: int = 20_000
    """Proposals that may wait for their entry to be formed."""
    journal_segment_bytes: int = 16 << 20
    """Size of one preallocated journal segment; holds at least one entry of entry_bytes_max."""
    transfer_window_bytes: int = 4 << 20
    """Bytes of entries or snapshot sent to one peer and not yet answered."""
    frame_bytes_max: int = 8 << 20
    """Largest frame accepted from a peer; above transfer messages, which stay near entry_bytes_max."""


class StateMachine(Protocol):
    """The replicated state. Every call comes from the event loop, never two at once."""

    @property
    def time_ms(self) -> int:
        """Greatest stamp applied so far; restored by `restore`."""

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        """Apply one committed entry, made of (stamp in ms, command) pairs, and return one result for each.

        Must give the same results and the same state on every node. Raising means that the state can no
        longer be trusted: the node stops before it answers anything.
        """

    def snapshot(self) -> Iterator[bytes]:
        """The state as of this call, in chunks that are produced lazily while later entries are applied."""

    def restore(self, chunks: Iterable[bytes], index: int) -> None:
        """Replace the whole state by a snapshot, which is of after the entry at `index`. Raising stops the
        node."""


class Applied(msgspec.Struct, frozen=True):
    """The command was committed and applied at `index`; `result` is what the state machine answered."""

    result: object
    index: int


class NotExecuted(msgspec.Struct, frozen=True):
    """The command is in no log and never will be; it is safe to propose it elsewhere."""

    reason: RefusalReason
    leader_id: str | None = None


class Unknown(msgspec.Struct, frozen=True):
    """The command was appended here, and leadership was lost before it was seen committed: it may yet be."""


Outcome = Applied | NotExecuted | Unknown


class RaftStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A view of one node for people and metrics; decides nothing."""

    node_id: str
    role: Role
    leader_id: str | None
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    match_index: Mapping[str, int]
    connected: Sequence[str]
    quorum: bool
    """A leader: a majority has followed it within the maximum election timeout. Else: its leader has spoken
    within that time."""
    caught_up: bool
    """Has applied what was committed when this process first heard from a leader, or has led since."""
    queued: int
    snapshot_index: int
    journal_bytes: int
    journal_syncs: int


class RaftError(Exception):
    """A request to the consensus part that could not be served."""


class NotLeader(RaftError):
    """This node does not lead; `leader_id` is the leader it knows of, if any."""

    def __init__(self, leader_id: str | None) -> None:
        super().__init__(f"not the leader; known leader: {leader_id or 'none'}")
        self.leader_id = leader_id


class NoQuorum(RaftError):
    """Leadership could not be confirmed by a quorum in time."""
