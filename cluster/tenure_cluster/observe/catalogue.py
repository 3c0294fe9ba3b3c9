"""Every metric of a node: its name, kind, labels and meaning. What is told is made from this table alone, and
deploy/METRICS.md is the same table for people.

Counters of leases are counted by the node that leads, while it serves; the sum over all nodes is the
cluster's. They begin at 0 when a node starts, and what is read again from the journal is not counted again.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(msgspec.Struct, frozen=True):
    """One metric. A counter's samples are told with `_total` behind the name, as Prometheus has it."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def told_as(self) -> str:
        """The name that queries use; of a histogram the stem of `_bucket`, `_sum` and `_count`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_NODE: Final = (
    Metric(
        "tenure_node",
        "gauge",
        "Always 1; what this node is stands in the labels.",
        ("cluster", "node", "version", "durability"),
    ),
    Metric("tenure_ready", "gauge", "1 while the node serves with a quorum, as /readyz says."),
    Metric(
        "tenure_disk_free_bytes",
        "gauge",
        "Free space of the data directory's file system.",
    ),
    Metric(
        "tenure_disk_reserve_bytes",
        "gauge",
        "Free space below which acquires are refused (admission.disk_reserve_bytes).",
    ),
    Metric(
        "tenure_tls_expiry_timestamp_seconds",
        "gauge",
        "Unix time at which the certificates in use end; none without TLS.",
    ),
    Metric(
        "tenure_loop_held_seconds",
        "gauge",
        "Longest time of the last 15 s in which the event loop came to nothing else, to 10 ms.",
    ),
    Metric(
        "tenure_loop_held_cpu_seconds",
        "gauge",
        "The most of such a time that the node itself ran; the rest of it the machine had no time for it.",
    ),
    Metric("tenure_http_connections", "gauge", "Open client connections."),
    Metric(
        "tenure_http_connections_max",
        "gauge",
        "Client connections that may be open (http.connections_max, or what the limit of open files allows).",
    ),
    Metric(
        "tenure_http_answers",
        "counter",
        "Answers to HTTP requests, by status; operations of a stream are not among them.",
        ("status",),
    ),
    Metric("tenure_polls", "gauge", "Waiting acquires that are connected to this node."),
    Metric("tenure_watches", "gauge", "Watches that are open on this node."),
    Metric("tenure_operations_pending", "gauge", "Operations proposed by this node and not yet answered."),
    Metric(
        "tenure_operations_pending_max",
        "gauge",
        "Pending operations from which load is shed (admission.pending_max).",
    ),
    Metric(
        "tenure_operations_shed",
        "counter",
        "Operations refused as overloaded before anything of them existed.",
    ),
)

_RAFT: Final = (
    Metric("tenure_raft_term", "gauge", "The current term."),
    Metric("tenure_raft_role", "gauge", "1 for the role that the node has, 0 for the other ones.", ("role",)),
    Metric("tenure_raft_has_leader", "gauge", "1 while the node knows a leader, itself included."),
    Metric(
        "tenure_raft_quorum",
        "gauge",
        "1 while the leader is followed by a quorum, or a follower hears its leader.",
    ),
    Metric("tenure_raft_commit_index", "gauge", "Index of the last entry known to be committed."),
    Metric("tenure_raft_applied_index", "gauge", "Index of the last entry applied to the state."),
    Metric("tenure_raft_last_index", "gauge", "Index of the last entry of the log."),
    Metric("tenure_raft_apply_lag_entries", "gauge", "Entries that are committed and not yet applied."),
    Metric(
        "tenure_raft_peer_lag_entries",
        "gauge",
        "Entries of the leader's log that a member is not known to have; told by the leader alone.",
        ("peer",),
    ),
    Metric("tenure_raft_peer_connected", "gauge", "1 while there is a link to the member.", ("peer",)),
    Metric("tenure_raft_members", "gauge", "Members of the cluster, this node and learners included."),
    Metric("tenure_raft_voters", "gauge", "Members that count in majorities: all but learners."),
    Metric("tenure_raft_votes", "gauge", "1 while this node is one of them."),
    Metric("tenure_raft_queued", "gauge", "Proposals that wait for their log entry to be formed."),
    Metric(
        "tenure_raft_elections_started",
        "counter",
        "Terms in which this node asked for votes.",
    ),
    Metric("tenure_raft_elections_won", "counter", "Terms in which this node became the leader."),
    Metric(
        "tenure_raft_leader_changes",
        "counter",
        "Times that this node learned of another leader than it knew before, its first one included.",
    ),
    Metric(
        "tenure_raft_sync_seconds",
        "histogram",
        "Time from the start of a journal's sync to the node's knowing that it has ended.",
    ),
    Metric("tenure_raft_journal_written_bytes", "counter", "Bytes written to the journal."),
    Metric("tenure_raft_snapshot_index", "gauge", "Index of the newest snapshot; 0 if there is none."),
    Metric("tenure_raft_snapshots_made", "counter", "Snapshots that this node made."),
    Metric("tenure_raft_snapshots_installed", "counter", "Snapshots that came from a leader."),
    Metric("tenure_raft_snapshot_seconds", "histogram", "Time that making a snapshot took."),
    Metric(
        "tenure_raft_snapshot_timestamp_seconds",
        "gauge",
        "Unix time of the newest snapshot made or installed since the start; 0 if there is none.",
    ),
)

_LEASES: Final = (
    Metric(
        "tenure_leases_held",
        "gauge",
        "Leases in this node's copy of the state, also expired ones that no entry has met yet.",
        ("tenant",),
    ),
    Metric("tenure_leases_waiting", "gauge", "Acquires that are queued, likewise.", ("tenant",)),
    Metric("tenure_sessions", "gauge", "Sessions in this node's copy of the state."),
    Metric("tenure_leases_granted", "counter", "Leases that began, at once or from a queue.", ("tenant",)),
    Metric(
        "tenure_acquires_denied",
        "counter",
        "Acquires that were refused, by the code of the refusal.",
        ("tenant", "reason"),
    ),
    Metric(
        "tenure_acquires_blocked",
        "counter",
        "Acquires that met somebody before them: refused as held, or queued.",
        ("tenant",),
    ),
    Metric("tenure_renewals", "counter", "Renewals of a lease or a session that succeeded.", ("tenant",)),
    Metric(
        "tenure_renewals_failed",
        "counter",
        "Renewals that came too late or named what is not there, by the code of the refusal.",
        ("tenant", "reason"),
    ),
    Metric(
        "tenure_leases_ended",
        "counter",
        "Leases that ended: released, expired, broken or handed_over.",
        ("tenant", "reason"),
    ),
    Metric(
        "tenure_queue_left",
        "counter",
        "Acquires that left the queue without a grant.",
        ("tenant",),
    ),
    Metric("tenure_commits_accepted", "counter", "Guarded writes that passed.", ("tenant",)),
    Metric(
        "tenure_commits_refused",
        "counter",
        "Guarded writes that did not pass, by the code of the refusal.",
        ("tenant", "cause"),
    ),
    Metric(
        "tenure_stale_writes",
        "counter",
        "Guarded writes of a former holder: refused as stale_token or not_live.",
        ("tenant",),
    ),
    Metric(
        "tenure_wait_seconds",
        "histogram",
        "Time from joining a queue to the grant, of the acquires that were granted from one.",
        ("tenant",),
    ),
    Metric(
        "tenure_hold_seconds",
        "histogram",
        "Time from the grant of a lease to its end, whatever ended it.",
        ("tenant",),
    ),
)

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = {"Leases": _LEASES, "Raft": _RAFT, "Node": _NODE}
"""By subject, in the order of METRICS.md."""

METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metrics in SECTIONS.values() for metric in metrics
}
