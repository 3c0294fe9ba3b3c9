"""What a leader is ordered besides proposals: to hand its office over, and to change the members. And what a
change of members means to the links and to snapshots under way.

Links are kept to all members of the entry that counts and of the latest that is committed: an entry that is
cut off again may have been the one that removed the node which leads now.
"""

from collections.abc import Callable

from tenure_cluster.raft.changes import Changes
from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.snapshots import Snapshots
from tenure_cluster.raft.transfer import Transfers
from tenure_cluster.raft.transport import Transport
from tenure_cluster.raft.types import RaftError


class Orders:
    """Part of the pump."""

    def __init__(
        self,
        timeout_s: float,
        snapshots: Snapshots,
        tell: Callable[..., None],
        on_removed: Callable[[int], None],
    ) -> None:
        """`on_removed` is told of which entry has removed this node, when that is committed."""
        self.transfers = Transfers(timeout_s, tell)
        self.changes = Changes(timeout_s, tell)
        self._snapshots = snapshots
        self._on_removed = on_removed
        self._transport: Transport | None = None
        self._seen: tuple[int, int] | None = None
        self._learners = False

    def begin(self, consensus: Consensus, transport: Transport) -> None:
        """What has been read from the disk is known."""
        self._transport = transport
        self.settle(consensus)

    def settle(self, consensus: Consensus) -> None:
        """Have the links and snapshots be those of the members. Cheap if nothing has changed."""
        members, transport = consensus.members, self._transport
        assert transport is not None
        committed = members.at(consensus.replica.applied_index)
        seen = (members.version, committed.index)
        if seen == self._seen:
            return
        self._seen = seen
        self._learners = bool(members.other_learners)
        transport.set_members(members.current, committed)
        if consensus.office is not None:
            self._snapshots.keep_only(consensus.office.followers)

    def advance(self, consensus: Consensus, now_s: float) -> bool:
        """In every round; answers whether an entry was added."""
        self.transfers.advance(consensus, now_s)
        if consensus.office is None or not (self.changes.waits or self._learners):
            return False
        assert self._transport is not None
        outdated = self._transport.admission.outdated(consensus.members.current.names)
        return self.changes.advance(consensus, now_s, outdated, held=self.transfers.holds)

    def applied(self, consensus: Consensus, index: int, term: int) -> None:
        """An entry that says who the members are has been applied."""
        self.changes.applied(consensus, index, term)
        if consensus.node_id in consensus.members.at(index).removed:
            self._on_removed(index)

    def installed(self, consensus: Consensus) -> None:
        """A snapshot has taken the place of the log."""
        index = consensus.replica.applied_index
        if consensus.node_id in consensus.members.at(index).removed:
            self._on_removed(index)

    def end_office(self, leader_id: str | None) -> None:
        self.changes.end_office(leader_id)

    def end(self, error: RaftError) -> None:
        """This node stops."""
        self.transfers.fail(error)
        self.changes.end_office(None)
