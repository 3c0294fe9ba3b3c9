"""Holders that renew their leases under whatever happens to the nodes, and views of the cluster."""

import json
import threading

from deploy_nodes import NodeProcess, await_that

LEASES = 8
TTL_MS = 60_000


class Renewing:
    """Renews leases one after the other, each time at the next of the nodes, and keeps every answer that is
    not the one that a holder wants."""

    def __init__(self, cluster: list[NodeProcess]) -> None:
        self.cluster = list(cluster)
        self.renewed = 0
        self.failed: list[object] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever)
        self.shortest_ms = TTL_MS
        """The shortest time that an answer to a renewal has left."""
        self._leases: list[dict[str, object]] = []

    def __enter__(self) -> "Renewing":
        for number in range(LEASES):
            status, answer = self.cluster[0].call("acquire", key=f"k{number}", owner="holder", ttl_ms=TTL_MS)
            assert status == 200
            self._leases.append(answer["lease"])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _renew_for_ever(self) -> None:
        number = 0
        while not self._stopping.is_set():
            cluster, lease = self.cluster, self._leases[number % LEASES]
            node = cluster[number % len(cluster)]
            number += 1
            try:
                status, answer = node.call("renew", lease_id=lease["lease_id"])
            except Exception as error:  # whatever it is, the test names it
                self.failed.append(error)
                continue
            if status == 200 and answer["lease"]["token"] == lease["token"]:
                self.renewed += 1
                self.shortest_ms = min(self.shortest_ms, answer["lease"]["expires_in_ms"])
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
