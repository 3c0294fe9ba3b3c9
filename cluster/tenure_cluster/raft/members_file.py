"""Who the members are, remembered beside the journal.

Two nodes that count different members count different majorities, and each may be right by its own. So the
members of a data directory are fixed at its first start, and a configuration that names others is refused;
between nodes the same list is compared when a link is opened (transport.py). Addresses may change, names
may not.
"""

from collections.abc import Iterable
from typing import Final

from tenure_cluster.raft.codec import Malformed, pack, unpack
from tenure_cluster.raft.disk import Disk

NAME: Final = "members"
BYTES_MAX: Final = 65_536


class MembersDiffer(Exception):
    """The configuration names other members than the data directory was made for, or that can't be told."""


def check_members(disk: Disk, members: Iterable[str]) -> None:
    """Compare with what is remembered; at the first start, remember it durably. Raises MembersDiffer."""
    named = sorted(members)
    if NAME in disk.names():
        remembered = _read(disk)
        if remembered != named:
            raise MembersDiffer(
                f"the data is of a cluster of {', '.join(remembered)}, and the configuration names "
                f"{', '.join(named)} as members: members can't be changed yet"
            )
        return
    file = disk.create(f"{NAME}.new", 0)
    file.write_at(0, pack(named))
    file.sync()
    file.close()
    disk.rename(f"{NAME}.new", NAME)
    disk.sync_directory()


def _read(disk: Disk) -> list[str]:
    try:
        names = unpack(disk.read(NAME), bytes_max=BYTES_MAX)
    except Malformed as error:
        raise MembersDiffer(f"the file {NAME!r} is damaged: {error}") from error
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise MembersDiffer(f"the file {NAME!r} is damaged: it holds no list of names")
    return list(names)
