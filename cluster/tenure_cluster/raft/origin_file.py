"""What a data directory began with, where that was not nothing: the name of a restore.

A cluster that is put back to a backup is another cluster, even under the name of the old one: they agree on
nothing that came after the backup. A node of the old one that was forgotten in some corner may not talk to
it, and least of all lead it: its log is longer. So the name by which nodes know their cluster, in every
greeting, journal and snapshot, is the configured one with that of the restore behind it. Nodes that were
restored from the same file in the same way have the same name, and no others do.
"""

import re
from typing import Final

from tenure_cluster.raft.codec import Malformed, pack, unpack
from tenure_cluster.raft.disk import Disk

NAME: Final = "origin"
BYTES_MAX: Final = 256
SEPARATOR: Final = "+"
"""In no cluster_id."""

FORM: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class OriginDamaged(Exception):
    """The file says nothing that could be told."""


def known_as(cluster_id: str, disk: Disk) -> str:
    """The name by which the nodes of this data directory's cluster know it. Raises OriginDamaged."""
    if NAME not in disk.names():
        return cluster_id
    try:
        origin = unpack(disk.read(NAME), bytes_max=BYTES_MAX)
    except Malformed as error:
        raise OriginDamaged(f"the file {NAME!r} is damaged: {error}") from error
    if not isinstance(origin, str) or not FORM.fullmatch(origin):
        raise OriginDamaged(f"the file {NAME!r} is damaged: it holds no name of a restore")
    return with_origin(cluster_id, origin)


def with_origin(cluster_id: str, origin: str) -> str:
    return f"{cluster_id}{SEPARATOR}{origin}"


def configured_name(known: str) -> str:
    """The cluster's name as configurations have it."""
    return known.partition(SEPARATOR)[0]


def is_named(known: str, name: str) -> bool:
    """Whether a cluster that is known so has that name in its configurations."""
    return configured_name(known) == name


def write_origin(disk: Disk, origin: str) -> None:
    """Durably."""
    if not FORM.fullmatch(origin):
        raise ValueError(f"{origin!r} is no name of a restore")
    file = disk.create(f"{NAME}.new", 0)
    file.write_at(0, pack(origin))
    file.sync()
    file.close()
    disk.rename(f"{NAME}.new", NAME)
    disk.sync_directory()
