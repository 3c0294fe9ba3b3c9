"""What members say to one another: typed, tagged MessagePack arrays.

Decoding is by schema, so a frame is one of the types below with fields of the declared types, or it is
refused. There is no type that could carry code, no extension type, no dictionary and no nesting deeper than
an entry list. The stock protocol's pickled forms (multi-part entries, membership changes, forwarded
commands) have no counterpart.

Numbers: every Append and Snapshot that a leader sends carries a number that only rises while its process
lives. The answer echoes it. So an answer says not only what a follower has, but which question it heard:
this orders the answers of one flight, and tells the leader that a quorum has followed it since a moment
that it knows.
"""

from typing import Annotated

import msgspec

from tenure_cluster.raft.membership import ENTRY_TYPE

Natural = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]

PROTOCOL_VERSION = 1

FEATURES = 1
"""What this version says in its Hello."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# -- link control


class Hello(_Message, frozen=True, tag=1):
    """First frame on a dialled connection: who dials whom, of which cluster, in which life and on which
    attempt."""

    version: Natural
    cluster_id: Name
    node_id: Name
    to: Name
    incarnation: Natural
    epoch: Natural
    members: Annotated[list[Name], msgspec.Meta(max_length=64)]
    """All members that the dialling node knows of, itself among them, in the order of names."""
    knows: Natural = 0
    """The highest number of what its state machine can apply, which only its user understands; 0 if it does
    not say."""
    software: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The version of its program, for people."""
    members_index: Natural = 0
    """Of the entry that says so; 0 if the log has had none, and these are the bootstrap's."""
    address: Annotated[str, msgspec.Meta(max_length=512)] = ""
    """Where the dialling node is dialled."""
    joining: bool = False
    """It knows of no members yet."""
    features: Natural = 0
    """1: it knows entries that say who the members are."""


class Welcome(_Message, frozen=True, tag=2):
    """The only answer that opens a link. `members`: whom the answering node counts, by the entry at
    `members_index`."""

    incarnation: Natural
    members: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    members_index: Natural = 0


class Refused(_Message, frozen=True, tag=3):
    """Why the link is not opened; the connection is closed after it."""

    reason: Annotated[str, msgspec.Meta(max_length=256)]
    removed: bool = False
    """The dialling node has been removed from the cluster, by an entry that is committed."""
    cluster_id: Annotated[str, msgspec.Meta(max_length=512)] = ""
    """For one that joins a cluster of this configured name: how its nodes know it."""


class Ping(_Message, frozen=True, tag=4):
    """From the dialler; a Pong with the same count comes back on the same connection."""

    count: Natural


class Pong(_Message, frozen=True, tag=5):
    """From the acceptor: the only thing that flows against the direction of a link once it is open."""

    count: Natural


PAYLOAD_OVERHEAD_BYTES = 16
"""A payload's frame is at most this much longer than its body."""


class Payload(_Message, frozen=True, tag=6):
    """Opaque bytes of the layer above."""

    body: bytes


# -- consensus


class Append(_Message, frozen=True, tag=16):
    """Entries after (prev_index, prev_term), or none: then it is a heartbeat. `entries` holds (term,
    command) pairs."""

    term: Natural
    number: Natural
    prev_index: Natural
    prev_term: Natural
    commit_index: Natural
    entries: list[tuple[Natural, bytes]]


class AppendReply(_Message, frozen=True, tag=17):
    """`ok`: the log matches the leader's up to next_index - 1, durably. Otherwise next_index says where to
    try next."""

    term: Natural
    number: Natural
    ok: bool
    next_index: Natural


class Snapshot(_Message, frozen=True, tag=18):
    """A piece of the file of the snapshot at (index, snapshot_term); without data it is a heartbeat during
    the transfer."""

    term: Natural
    number: Natural
    index: Natural
    snapshot_term: Natural
    size: Natural
    offset: Natural
    data: bytes


class SnapshotReply(_Message, frozen=True, tag=19):
    """`offset`: bytes that arrived in order. `done`: the follower's log now reaches at least the snapshot's
    index, durably."""

    term: Natural
    number: Natural
    index: Natural
    offset: Natural
    done: bool


class VoteRequest(_Message, frozen=True, tag=20):
    """`handed_over`: the leader of the term before has asked for this election (TimeoutNow)."""

    term: Natural
    last_index: Natural
    last_term: Natural
    handed_over: bool = False


class Vote(_Message, frozen=True, tag=21):
    """Granted; a vote that is not granted is not answered."""

    term: Natural


class PreVoteRequest(_Message, frozen=True, tag=22):
    """Would you vote for me in a term after `term`? Changes nothing at either side."""

    term: Natural
    last_index: Natural
    last_term: Natural


class PreVote(_Message, frozen=True, tag=23):
    """Answer to a PreVoteRequest of `asked_term`; `term` is the answering node's own."""

    asked_term: Natural
    granted: bool
    term: Natural


class HigherTerm(_Message, frozen=True, tag=24):
    """Answer to a message of a leader of an earlier term, so that it steps down at once."""

    term: Natural


class TimeoutNow(_Message, frozen=True, tag=25):
    """From the leader of `term`: hold an election at once, you shall lead (transfer.py)."""

    term: Natural


Consensus = (
    Append
    | AppendReply
    | Snapshot
    | SnapshotReply
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | HigherTerm
    | TimeoutNow
)
Greeting = Hello
Answer = Welcome | Refused | Pong
Inbound = Ping | Payload | Consensus

encode = msgspec.msgpack.Encoder().encode
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_inbound: msgspec.msgpack.Decoder[Inbound] = msgspec.msgpack.Decoder(Inbound)
decode_greeting = msgspec.msgpack.Decoder(Hello).decode
decode_answer = _answers.decode
decode_inbound = _inbound.decode


# -- log entries

NO_OP = b"\x01"
"""The command of a new leader's first entry (PySyncObj's own encoding: one type byte)."""

_REGULAR = b"\x00"
_encode_pairs = msgspec.msgpack.Encoder().encode
_decode_pairs = msgspec.msgpack.Decoder(list[tuple[Natural, bytes]]).decode


def encode_entry(pairs: list[tuple[int, bytes]]) -> bytes:
    """One log entry's command out of (stamp, command) pairs."""
    return _REGULAR + _encode_pairs(pairs)


def decode_entry(command: bytes) -> list[tuple[int, bytes]]:
    """The pairs of an entry; none for a no-op, and for one that says who the members are. Raises
    msgspec.DecodeError for anything else."""
    if command == NO_OP or command[:1] == ENTRY_TYPE:
        return []
    if command[:1] != _REGULAR:
        raise msgspec.DecodeError(f"entry of unknown type {command[:1]!r}")
    try:
        return _decode_pairs(memoryview(command)[1:])
    except RecursionError as error:
        raise msgspec.DecodeError("an entry that is nested too deeply") from error


def is_entry(command: bytes) -> bool:
    """Whether the type byte is one that this protocol knows; the others belong to features that are not
    used."""
    return command == NO_OP or command[:1] in (_REGULAR, ENTRY_TYPE)
