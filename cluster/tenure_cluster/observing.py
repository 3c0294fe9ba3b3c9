"""Composition of what a node tells about itself: it puts the counts behind the hooks of the parts, and reads
the parts when somebody asks for the metrics.

The parts know nothing of metrics: they have hooks, which stay empty where `metrics.enabled` is false. Then
nothing is counted, and /metrics isn't served.
"""

from collections.abc import Callable, Iterator

from tenure_cluster import __version__
from tenure_cluster.api.app import HttpFront
from tenure_cluster.auth.tls import NodeTls
from tenure_cluster.observe.exposition import Sample, exposition, of_leases, of_raft
from tenure_cluster.observe.lease_counts import LeaseCounts
from tenure_cluster.observe.loop_holds import LoopHolds
from tenure_cluster.observe.raft_counts import RaftCounts
from tenure_cluster.raft import Raft
from tenure_cluster.raft.clock import Clock
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.replica import Replica
from tenure_cluster.settings import Config

ROLES = ("leader", "follower", "candidate")


class Observing:
    """Everything that is counted in one node. Make it before consensus starts, so that it follows the state
    from the beginning."""

    def __init__(
        self,
        *,
        config: Config,
        raft: Raft,
        service: LeaseService,
        replica: Replica,
        clock: Clock,
        free_bytes: Callable[[], int],
        tls: NodeTls | None,
        cpu_s: Callable[[], float],
    ) -> None:
        """`cpu_s` tells the processor time of the calling thread."""
        self.front: HttpFront | None = None
        """Put here when it is open."""
        self._config = config
        self._raft = raft
        self._service = service
        self._replica = replica
        self._free_bytes = free_bytes
        self._tls = tls
        self.leases = LeaseCounts(config.metrics.tenants_max, raft.serving)
        self.consensus = RaftCounts(clock.monotonic, clock.wall_ms)
        self.holds = LoopHolds(cpu_s)
        self.metrics = exposition(self._samples)
        replica.on_applied = self.leases.on_applied
        replica.on_restored = _both(replica.on_restored, lambda: self.leases.on_restored(replica.table))
        raft.on_sync = self.consensus.on_sync
        raft.on_snapshot = self.consensus.on_snapshot
        leadership = service.leadership
        leadership.listeners.append(
            lambda: self.consensus.on_role(leadership.role, leadership.leader_id, leadership.term)
        )

    def stop(self) -> None:
        """Nothing is measured any more."""
        self.holds.stop()

    def _samples(self) -> Iterator[Sample]:
        yield from of_leases(self.leases)
        yield "tenure_sessions", (), len(self._replica.table.sessions)
        yield from of_raft(self.consensus)
        yield from self._of_raft_now()
        yield from self._of_node()

    def _of_raft_now(self) -> Iterator[Sample]:
        status = self._raft.status()
        yield "tenure_raft_term", (), status.term
        for role in ROLES:
            yield "tenure_raft_role", (role,), role == status.role
        yield "tenure_raft_has_leader", (), status.leader_id is not None
        yield "tenure_raft_quorum", (), status.quorum and status.leader_id is not None
        yield "tenure_raft_commit_index", (), status.commit_index
        yield "tenure_raft_applied_index", (), status.applied_index
        yield "tenure_raft_last_index", (), status.last_index
        yield "tenure_raft_apply_lag_entries", (), status.commit_index - status.applied_index
        for peer, index in status.match_index.items():
            yield "tenure_raft_peer_lag_entries", (peer,), max(0, status.last_index - index)
        # A node that waits to be made a member has the configuration's in view, and is none of them.
        members = self._service.members.all() if self._raft.membership.members else {}
        for peer in members:
            if peer != status.node_id:
                yield "tenure_raft_peer_connected", (peer,), peer in status.connected
        is_voter = self._service.members.is_voter
        yield "tenure_raft_members", (), len(members)
        yield "tenure_raft_voters", (), sum(is_voter(name) for name in members)
        yield "tenure_raft_votes", (), is_voter(status.node_id)
        yield "tenure_raft_queued", (), status.queued
        yield "tenure_raft_journal_written_bytes", (), status.journal_bytes
        yield "tenure_raft_snapshot_index", (), status.snapshot_index

    def _of_node(self) -> Iterator[Sample]:
        config, service, front = self._config, self._service, self.front
        what = (config.cluster_id, config.node_id, __version__, config.durability)
        yield "tenure_node", what, 1
        yield "tenure_ready", (), service.ready().ready
        yield "tenure_disk_free_bytes", (), self._free_bytes()
        yield "tenure_disk_reserve_bytes", (), config.admission.disk_reserve_bytes
        if self._tls is not None:
            yield "tenure_tls_expiry_timestamp_seconds", (), self._tls.expires_at.timestamp()
        yield "tenure_loop_held_seconds", (), self.holds.longest_s
        yield "tenure_loop_held_cpu_seconds", (), self.holds.longest_cpu_s
        if front is not None:
            yield "tenure_http_connections", (), front.connections
            yield "tenure_http_connections_max", (), front.connections_max
            for status, number in front.answered.items():
                yield "tenure_http_answers", (str(status),), number
        yield "tenure_polls", (), len(service.polls)
        yield "tenure_watches", (), len(service.watches)
        yield "tenure_operations_pending", (), service.proposer.pending
        yield "tenure_operations_pending_max", (), config.admission.pending_max
        yield "tenure_operations_shed", (), service.admission.refused


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        if first is not None:
            first()
        second()

    return call
