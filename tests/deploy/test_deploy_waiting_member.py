"""A node that waits to be made a member is none: nobody counts it, and it says why it does not serve."""

import json
import time
from pathlib import Path

from deploy_kit import free_port
from deploy_nodes import await_that, nodes
from test_deploy_members import ended, joining, tenure, view


def test_a_node_that_waits_to_be_made_a_member_counts_for_nothing(tmp_path: Path) -> None:
    """Else three nodes of four would be the least that makes a quorum, and TenureQuorumAtRisk would fire."""
    with nodes(tmp_path, 3) as cluster:
        ports = {
            member["id"]: tuple(int(member[key].rpartition(":")[2]) for key in ("http", "peer"))
            for member in view(cluster[0])["members"]
        }
        new = joining(tmp_path, "n4", {**ports, "n4": (free_port(), free_port())})
        with ended([new]):
            new.start()

            def refused_by_all() -> bool:
                return new.log.count("refused: 'n4' is not another member of this cluster") >= 3

            await_that(refused_by_all, "all three to have refused it")
            began = time.monotonic()
            told = new.samples()
            for name in ("tenure_raft_members", "tenure_raft_voters", "tenure_raft_votes", "tenure_ready"):
                assert told[name] == 0, name
            assert not [sample for sample in told if sample.startswith("tenure_raft_peer_connected")]
            status, body = new.ask("GET", "/readyz")
            assert (status, json.loads(body)["detail"]) == (
                503,
                "the node waits to be made a member of the cluster",
            )
            listed = tenure(new, "members", "list").stdout.splitlines()
            assert all("not yet" in line for line in listed if line.startswith("n")), listed
            assert len([line for line in listed if line.startswith("n4 ")]) == 1, listed
            assert "n4 doesn't serve: the node waits" in tenure(new, "top", "--once").stdout
            # It has tried again and again meanwhile, each of them once a second or more often.
            await_that(lambda: time.monotonic() - began > 4, "some more refusals")
            assert new.log.count("refused: 'n4' is not another member of this cluster") == 3
            assert cluster[0].samples()["tenure_raft_voters"] == 3
