"""Who the members were at first, remembered beside the journal.

Two nodes that count different members count different majorities, and each may be right by its own. So the
members of a data directory are fixed at its first start, and a configuration that names others is refused;
between nodes the same list is compared when a link is opened (transport.py). From then on they are changed by
entries of the log alone (membership.py). A node that joins a cluster begins with no members at all, and one
that has been removed remembers that.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tenure_cluster.raft.codec import Malformed, pack, unpack
from tenure_cluster.raft.disk import Disk

NAME: Final = "members"
REMOVED: Final = "removed"
BYTES_MAX: Final = 65_536


class MembersDiffer(Exception):
    """The configuration names other members than the data directory was made for, or that can't be told."""


class NodeRemoved(Exception):
    """This node has been removed from its cluster, and knows it."""


def first_members(disk: Disk, members: Iterable[str], *, joins: bool) -> list[str]:
    """Those of the first start, none if this node joined then; at the first start they are remembered. Raises
    MembersDiffer, NodeRemoved."""
    names = disk.names()
    if REMOVED in names:
        raise NodeRemoved(
            "it has been removed from the cluster: it has no part in it any more, and its name is not given "
            "again. A new node takes another node_id and an empty data_dir"
        )
    if NAME not in names:
        _write(disk, NAME, [] if joins else sorted(members))
    return _read(disk)


def check_members(remembered: Sequence[str], members: Iterable[str]) -> None:
    """Compare the configuration with what is remembered, as long as no entry of the log has said who the
    members are. Raises MembersDiffer."""
    named = sorted(members)
    if remembered and list(remembered) != named:
        raise MembersDiffer(
            f"the data is of a cluster of {', '.join(remembered)}, and the configuration names "
            f"{', '.join(named)} as members: members are changed by `tenure members`, not there"
        )


def remember_removal(disk: Disk, how: str) -> None:
    """Durably: this node starts no more. Blocks."""
    if REMOVED not in disk.names():
        _write(disk, REMOVED, [how])


def _write(disk: Disk, name: str, content: list[str]) -> None:
    file = disk.create(f"{name}.new", 0)
    file.write_at(0, pack(content))
    file.sync()
    file.close()
    disk.rename(f"{name}.new", name)
    disk.sync_directory()


def _read(disk: Disk) -> list[str]:
    try:
        names = unpack(disk.read(NAME), bytes_max=BYTES_MAX)
    except Malformed as error:
        raise MembersDiffer(f"the file {NAME!r} is damaged: {error}") from error
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise MembersDiffer(f"the file {NAME!r} is damaged: it holds no list of names")
    return list(names)
