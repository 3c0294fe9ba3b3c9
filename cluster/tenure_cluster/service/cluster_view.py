"""This node's view of the cluster: who leads, who the members are, and whether this node can serve."""

from collections.abc import Callable
from typing import Literal

import msgspec

from tenure_cluster import __version__
from tenure_cluster.raft import Raft, Role
from tenure_cluster.service.members import MembersView
from tenure_cluster.service.replies import ClusterReply, MemberBody, OwnBody
from tenure_cluster.settings import Config


class Readiness(msgspec.Struct, frozen=True):
    """Whether this node can serve, and if not, why: one sentence. True iff ready."""

    ready: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ready


class ClusterView:
    """What this node knows by itself, without asking anyone."""

    def __init__(
        self, config: Config, raft: Raft, members: MembersView, free_bytes: Callable[[], int]
    ) -> None:
        self._config = config
        self._raft = raft
        self._members = members
        self._free_bytes = free_bytes
        self.closing = False
        """Whether the node is shutting down."""

    def cluster(self) -> ClusterReply:
        """This node's view of the cluster."""
        status = self._raft.status()
        leads = status.role == "leader"
        members = []
        for member_id, member in self._members.all().items():
            match: int | None = None
            if leads:
                match = (
                    status.last_index if member_id == status.node_id else status.match_index.get(member_id)
                )
            role: Role | Literal["unknown"] = "unknown"
            if member_id == status.node_id:
                role = status.role
            elif member_id in status.connected and status.leader_id is not None:
                role = "leader" if member_id == status.leader_id else "follower"
            members.append(
                MemberBody(
                    id=member_id,
                    role=role,
                    http=member.http,
                    peer=member.peer,
                    match_index=match,
                    lag=None if match is None else max(0, status.last_index - match),
                    voter=self._members.is_voter(member_id),
                )
            )
        return ClusterReply(
            cluster_id=self._config.cluster_id,
            node=status.node_id,
            role=status.role,
            leader=status.leader_id,
            leader_url=self._members.http(status.leader_id),
            term=status.term,
            commit_index=status.commit_index,
            applied_index=status.applied_index,
            last_index=status.last_index,
            cluster_time_ms=self._raft.now_ms(),
            durability=self._config.durability,
            version=__version__,
            members=members,
        )

    def describe(self, wall_ms: int) -> OwnBody:
        status, readiness = self._raft.status(), self.ready()
        return OwnBody(
            role=status.role,
            term=status.term,
            last_index=status.last_index,
            applied_index=status.applied_index,
            ready=readiness.ready,
            reason=readiness.reason,
            version=__version__,
            disk_free_bytes=self._free_bytes(),
            disk_reserve_bytes=self._config.admission.disk_reserve_bytes,
            wall_ms=wall_ms,
        )

    def ready(self) -> Readiness:
        """Whether this node serves: a leader in office with a quorum, or a follower in contact with its
        leader, which has caught up with where the cluster was when it began."""
        if self.closing:
            return Readiness(ready=False, reason="the node is shutting down")
        if not self._raft.membership.members:
            return Readiness(ready=False, reason="the node waits to be made a member of the cluster")
        status = self._raft.status()
        if status.role == "leader":
            if not self._raft.serving():
                return Readiness(ready=False, reason="the leader has not taken office yet")
            if not status.quorum:
                return Readiness(ready=False, reason="the leader is out of contact with a quorum")
        elif status.leader_id is None:
            return Readiness(ready=False, reason="no leader is known")
        elif not status.quorum or status.leader_id not in status.connected:
            return Readiness(ready=False, reason="the node is out of contact with its leader")
        elif not status.caught_up:
            return Readiness(ready=False, reason="the node has not caught up with its leader yet")
        return Readiness(ready=True, reason="serving")
