"""Once a call may have been executed, no later refusal is taken for its outcome."""

from pathlib import Path

import pytest
from service_cluster import TENANT, acquired, asking, cluster, refused, until

from tenure_cluster.settings import Quotas


@pytest.mark.parametrize("operation", ["commit", "acquire"])
async def test_a_quota_that_is_used_up_when_a_call_is_asked_again_does_not_say_that_it_was_refused(
    tmp_path: Path, operation: str
) -> None:
    """Two operations may be done at once; the second one's answer is lost."""
    async with cluster(tmp_path, 3, quotas=Quotas(operations_per_s=1)) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(node, "k")
        line = running.links[leader.node_id, node.node_id]
        line.clog()
        if operation == "commit":
            ref = {"lease_id": lease.lease_id, "token": lease.token, "mode": "once", "op_id": "1"}
            asked = asking(node, "commit", key="k", value="v", **ref)
            await until(lambda: leader.replica.table.record(TENANT, "k"), "its execution")
        else:
            asked = asking(node, "acquire", key="other", owner="a", ttl_ms=30_000, request_id="r")
            await until(lambda: leader.replica.table.holders(TENANT, "other"), "its execution")
        line.cut()
        line.heal()
        assert (await refused(asked)).code == "outcome_unknown"
