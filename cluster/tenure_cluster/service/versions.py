"""Which commands every member knows, so that none gets into the log that a member would have to stop at.

Theory of operation. In a rolling upgrade nodes of two versions serve side by side, and all apply one log. A
node can't apply a command that came after its version. So a leader proposes such a command only once every
member is known to know it, and until then refuses what needs it, by `mixed_versions`, which says who holds it
up. Tags of commands only rise, so one number says all that a node knows: the highest tag that it can decode.

Every node says its number in the greeting of each connection that it opens to a peer (raft/transport.py), and
so again whenever it has been started. Versions that say none know the commands up to BASE.

What counts for a member is its last word, which is kept in the data directory, because a member that is down
comes back with the same version rather than with a newer one. A member that was never heard of counts

    on a node that started empty   as this node: a new cluster is of one version, and a member that is not up
                                   yet must not hold up the first administrator
    on a node with data, or one    as BASE: the data, or the cluster, may be older than this module, and so
    that joined a cluster          may be that member; a new one counts from when it has greeted

Members are those of the moment (raft/membership.py). What is asked about the cluster itself is no command of
the log: there it is enough that the leader knows the question, so that a member of whom nothing is known can
be removed.

Going back to an older version once a newer command is in the log is not possible.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, get_args

import msgspec

from tenure_cluster import __version__
from tenure_cluster.lease.commands import AnyCommand
from tenure_cluster.lease.rules import PRESENT
from tenure_cluster.service.errors import Problem

BASE: Final = 15
"""The highest tag of the versions that don't say what they know."""

RETRY_S: Final = 5.0

FILE_NAME: Final = "versions.json"

_log = logging.getLogger("tenure.node")


def tag_of(command: type[msgspec.Struct]) -> int:
    """The number that says when a command came."""
    tag = command.__struct_config__.tag
    assert isinstance(tag, int)
    return tag


NEWER: Final[Mapping[type, int]] = {
    command: tag_of(command) for command in get_args(AnyCommand) if tag_of(command) > BASE
}
"""The commands that not every node that may run beside this one knows."""


class Knows(msgspec.Struct, frozen=True):
    """What a node can apply, and the version of its software, for people."""

    tag: int
    software: str


OWN: Final = Knows(max(PRESENT, *map(tag_of, get_args(AnyCommand))), __version__)
OLD: Final = Knows(BASE, "")
"""A node that does not say what it knows, or has not been heard of yet."""


class Peers(Protocol):
    """What of consensus is needed: see raft.Raft."""

    started_empty: bool

    def told_by(self, peer: str) -> tuple[int, str] | None: ...


class Kept(Protocol):
    """Where last words outlive the process."""

    def load(self) -> dict[str, Knows]: ...

    def save(self, words: dict[str, Knows]) -> None: ...


class VersionFile:
    """A small file. If it is lost or damaged, members count as never heard of: commands are held up for
    longer than they must be, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Knows]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Knows])
        except (OSError, msgspec.MsgspecError):
            return {}

    def save(self, words: dict[str, Knows]) -> None:
        draft = self._path.with_name(f".{self._path.name}.new")
        try:
            draft.write_bytes(msgspec.json.encode(words))
            draft.replace(self._path)
        except OSError as error:
            _log.warning("%s could not be written: %s", self._path, error)


class Versions:
    """What each member knows, as this node has heard."""

    def __init__(
        self,
        raft: Peers,
        node_id: str,
        members: Callable[[], Iterable[str]],
        kept: Kept | None = None,
        own: Knows = OWN,
    ) -> None:
        self._raft = raft
        self._node_id = node_id
        self._members = members
        self._kept = kept
        self._own = own
        self._words: dict[str, Knows] = kept.load() if kept is not None else {}

    def refresh(self) -> None:
        """Take up what has been said since, and keep it."""
        members = list(self._members())
        words = {member: known for member, known in self._words.items() if member in members}
        for member in members:
            said = self._raft.told_by(member) if member != self._node_id else None
            if said is not None:
                words[member] = Knows(*said) if said[0] else OLD
        if words != self._words:
            self._words = words
            if self._kept is not None:
                self._kept.save(words)

    def of(self, member: str) -> Knows:
        """What a member counts for."""
        if member == self._node_id:
            return self._own
        return self._words.get(member, self._own if self._raft.started_empty else OLD)

    def refusal(self, tag: int, of: Collection[str] | None = None) -> Problem | None:
        """None if every member knows the command of this tag; `of`: only these matter."""
        if tag <= BASE:
            return None
        self.refresh()
        asked = self._members() if of is None else of
        behind = [member for member in asked if self.of(member).tag < tag]
        if not behind:
            return None
        member = min(behind)
        known = self.of(member)
        if known.software:
            detail = f"node {member} runs version {known.software}, which does not know this: upgrade it"
        elif member in self._words:
            detail = f"node {member} runs an older version, which does not know this: upgrade it"
        else:
            detail = f"node {member} has not said yet which version it runs, and may not know this: "
            detail += "start it, or remove it"
        return Problem("mixed_versions", detail, {"node": member, "nodes": sorted(behind)}, RETRY_S)
