"""The office of a real leader is handed over under load, by an order and by SIGTERM: no renewal fails, not
even once.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from deploy_nodes import NodeProcess, await_that, nodes

LEASES = 8
TRANSFERS = 4


class Renewing:
    """Renews leases one after the other, each time at the next of the nodes, and keeps every answer that is
    not the one that a holder wants."""

    def __init__(self, cluster: list[NodeProcess]) -> None:
        self.cluster = list(cluster)
        self.renewed = 0
        self.failed: list[object] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever)
        self._lease_ids: list[str] = []

    def __enter__(self) -> "Renewing":
        for number in range(LEASES):
            status, answer = self.cluster[0].call("acquire", key=f"k{number}", owner="holder", ttl_ms=60_000)
            assert status == 200
            self._lease_ids.append(answer["lease"]["lease_id"])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _renew_for_ever(self) -> None:
        number = 0
        while not self._stopping.is_set():
            node, lease_id = self.cluster[number % len(self.cluster)], self._lease_ids[number % LEASES]
            number += 1
            try:
                status, answer = node.call("renew", lease_id=lease_id)
            except Exception as error:  # whatever it is, the test names it
                self.failed.append(error)
                continue
            if status == 200:
                self.renewed += 1
            else:
                self.failed.append((status, answer))

    def await_more(self) -> None:
        before = self.renewed
        await_that(lambda: self.renewed > before + 3 * LEASES or bool(self.failed), "more renewals")


def view(node: NodeProcess) -> dict[str, object]:
    status, body = node.ask("GET", "/v1/cluster")
    assert status == 200
    told: dict[str, object] = json.loads(body)
    return told


def leader_of(cluster: list[NodeProcess]) -> NodeProcess:
    leading = [node for node in cluster if view(node)["role"] == "leader"]
    return leading[-1]


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
