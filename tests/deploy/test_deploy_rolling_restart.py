"""A rolling restart as the runbook has it, under load: no lease is lost, and no renewal comes too late."""

import http.client
import threading
from pathlib import Path

import pytest
from deploy_nodes import NodeProcess, await_that, nodes

LEASES = 20
LEADS = 'tenure_raft_role{role="leader"}'
LAG_MAX = 10


class Holders:
    """Renew leases again and again, at whatever node answers, as clients do."""

    def __init__(self, cluster: list[NodeProcess]) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever)
        self.lease_ids: list[str] = []
        self.rounds = 0
        self.refusals: list[object] = []
        """What a holder could not have lived with."""

    def __enter__(self) -> "Holders":
        for number in range(LEASES):
            status, answer = self._cluster[0].call(
                "acquire", key=f"k{number}", owner="holder", ttl_ms=120_000
            )
            assert status == 200
            self.lease_ids.append(answer["lease"]["lease_id"])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _renew_for_ever(self) -> None:
        while not self._stopping.is_set():
            for lease_id in self.lease_ids:
                self._renew(lease_id)
            self.rounds += 1

    def _renew(self, lease_id: str) -> None:
        while not self._stopping.is_set():
            for node in self._cluster:
                try:
                    status, answer = node.call("renew", lease_id=lease_id)
                except (OSError, http.client.HTTPException):
                    continue
                if status == 200:
                    return
                if status < 500:
                    self.refusals.append(answer)
                    return


def _caught_up(cluster: list[NodeProcess]) -> bool:
    told = [node.samples() for node in cluster]
    leading = [samples for samples in told if samples[LEADS]]
    lags = [
        lag
        for samples in leading
        for name, lag in samples.items()
        if name.startswith("tenure_raft_peer_lag_entries")
    ]
    return len(lags) == len(cluster) - 1 and max(lags) <= LAG_MAX


@pytest.mark.process
@pytest.mark.slow
def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as cluster, Holders(cluster) as holders:
        await_that(lambda: holders.rounds >= 1, "a round of renewals")
        # The leader last, so there is one hand-over.
        for node in sorted(cluster, key=lambda node: node.samples()[LEADS]):
            assert node.stop() == 0
            node.start()
            await_that(lambda node=node: node.ready, "the node to serve again")
            await_that(lambda: _caught_up(cluster), "all to have caught up")
        rounds = holders.rounds
        await_that(lambda: holders.rounds > rounds + 1, "every lease to be renewed once more")
        told = [node.samples() for node in cluster]
        assert holders.refusals == []
        assert [samples['tenure_leases_held{tenant="default"}'] for samples in told] == [LEASES] * 3
        failed = [name for samples in told for name in samples if name.startswith("tenure_renewals_failed")]
        assert failed == []
