"""A node that joins a cluster that was restored has to know it by the name that the restore gave."""

import logging

from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.raft.joining import ask_origin, has_nothing
from tenure_cluster.raft.origin_file import write_origin
from tenure_cluster.raft.peer_tls import PeerTls
from tenure_cluster.settings import Config

_log = logging.getLogger("tenure.node")


async def take_over_origin(config: Config, disk: SystemDisk, tls: PeerTls | None) -> None:
    """At the first start, before anything is in the data directory, ask the members for it. Raises
    MembersDiffer."""
    if not config.join or not has_nothing(disk.names()):
        return
    origin = await ask_origin(
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        members={name: member.peer for name, member in config.members.items()},
        tls=tls,
    )
    if origin is not None:
        write_origin(disk, origin)
        _log.info("cluster %s was restored from a backup, as %s", config.cluster_id, origin)
