"""Consensus: opaque commands in, the same sequence of applied entries on every node. Knows nothing of
leases."""

from tenure_cluster.raft.member import Raft
from tenure_cluster.raft.transfer import NoSuchMember, TransferFailed, Transferred
from tenure_cluster.raft.types import (
    Applied,
    NoQuorum,
    NotExecuted,
    NotLeader,
    Outcome,
    RaftError,
    RaftOptions,
    RaftStatus,
    Role,
    Stage,
    StateMachine,
    Unknown,
)

__all__ = [
    "Applied",
    "NoQuorum",
    "NoSuchMember",
    "NotExecuted",
    "NotLeader",
    "Outcome",
    "Raft",
    "RaftError",
    "RaftOptions",
    "RaftStatus",
    "Role",
    "Stage",
    "StateMachine",
    "TransferFailed",
    "Transferred",
    "Unknown",
]
