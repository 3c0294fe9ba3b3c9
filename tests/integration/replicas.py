"""Compare the replicas of a stopped cluster: same log, same state."""

from live_cluster import LiveCluster

from tenure_cluster.inspection import Contents, read_contents
from tenure_cluster.lease.machine import LeaseMachine


def compare_replicas(cluster: LiveCluster) -> list[str]:
    """What differs between the nodes' data directories, all stopped: empty if they agree.

    Compared at the last index that every log reaches. After a quiet stop that is the end of each.
    """
    contents = [
        read_contents(node.data_dir, cluster.cluster_id, node.node_id) for node in cluster.nodes.values()
    ]
    index = min(each.last_index for each in contents)
    if any(each.snapshot_index > index for each in contents):
        return [f"a snapshot is ahead of a log: {summary(contents)}"]
    faults = [
        f"{each.node_id} has a torn end after a quiet stop: {each.torn}" for each in contents if each.torn
    ]
    if len({each.term_at(index) for each in contents}) != 1:
        faults.append(f"entry {index} has different terms: {summary(contents)}")
    digests = {}
    for each in contents:
        replica = each.replica_at(index)
        LeaseMachine(replica.table).check()
        digests[each.node_id] = replica.digest()
    if len(set(digests.values())) != 1:
        faults.append(f"the states at index {index} differ: {digests}; {summary(contents)}")
    return faults


def summary(contents: list[Contents]) -> str:
    return ", ".join(
        f"{each.node_id}: snapshot {each.snapshot_index}, log to {each.last_index}, term {each.term}"
        for each in contents
    )
