"""The office of a real leader is handed over under load, by an order and by SIGTERM: no renewal fails, not
even once.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_nodes import nodes
from deploy_renewing import Renewing, leader_of, view

TRANSFERS = 4


@pytest.mark.process
@pytest.mark.slow
def test_a_transfer_under_load_fails_no_renewal(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as cluster, Renewing(cluster) as renewing:
        renewing.await_more()
        for number in range(TRANSFERS):
            # Any node takes the order, the leader and those that hand it on.
            asked = cluster[number % 3]
            before = view(leader_of(cluster))
            status, answer = asked.call("cluster/transfer")
            assert status == 200, answer
            assert answer["leader"] not in (None, before["leader"])
            assert answer["term"] > before["term"]
            renewing.await_more()
        assert renewing.failed == []
        named = next(node for node in cluster if view(node)["role"] != "leader")
        told = subprocess.run(
            [
                *(sys.executable, "-m", "tenure.cli", "--endpoints", f"http://127.0.0.1:{cluster[0].port}"),
                *("transfer", str(view(named)["node"]), "-o", "json"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(told.stdout)["leader"] == view(named)["node"]
        status, answer = cluster[0].call("cluster/transfer", to="n9")
        assert (status, answer["code"]) == (404, "no_member")
        renewing.await_more()

        leaving = leader_of(cluster)
        term = view(leaving)["term"]
        renewing.cluster = [node for node in cluster if node is not leaving]
        renewing.await_more()
        assert leaving.stop() == 0
        assert "has handed its office over" in leaving.log
        renewing.await_more()
        assert view(leader_of(renewing.cluster))["term"] > term
        assert renewing.failed == []
