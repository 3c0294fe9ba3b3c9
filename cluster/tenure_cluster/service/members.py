"""The members as the service and its callers see them: with the addresses that count for this node."""

from collections.abc import Mapping

from tenure_cluster.raft import Raft
from tenure_cluster.raft.membership import Membership
from tenure_cluster.settings import Member

UNKNOWN = Member(peer="", http="")


class MembersView:
    """Where each member is: as an entry of the log says, else as the configuration does. A node that knows of
    no members yet goes by its configuration.
    """

    def __init__(self, raft: Raft, node_id: str, configured: Mapping[str, Member]) -> None:
        self._raft = raft
        self._node_id = node_id
        self._configured = configured
        self._seen: Membership | None = None
        self._all: dict[str, Member] = {}

    def all(self) -> Mapping[str, Member]:
        """By name, in the order of names."""
        membership = self._raft.membership
        if membership is not self._seen:
            self._seen = membership
            if membership.members:
                self._all = {info.id: self._of(info.id, info.peer, info.http) for info in membership.members}
            else:
                self._all = dict(self._configured)
        return self._all

    def is_voter(self, name: str) -> bool:
        """Whether it counts in majorities; a node that waits to be made a member knows of nobody who does."""
        info = self._raft.membership.get(name)
        return info is not None and info.voter

    def http(self, name: str | None) -> str | None:
        """URL of a member's front, if it is known."""
        member = self.all().get(name or "")
        return None if member is None else member.http or None

    def others(self) -> list[str]:
        """URLs of all others' fronts."""
        return [member.http for name, member in self.all().items() if name != self._node_id and member.http]

    def _of(self, name: str, peer: str, http: str) -> Member:
        configured = self._configured.get(name, UNKNOWN)
        return Member(peer=peer or configured.peer, http=http or configured.http)
