"""What /metrics tells of real nodes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_kit import passes, tool
from deploy_nodes import NodeProcess, await_that, nodes

from tenure_cluster.observe.catalogue import METRICS

pytestmark = pytest.mark.process

T = 'tenant="default"'
LEADS = 'tenure_raft_role{role="leader"}'

CALM = {
    "TENURE_RAFT_ELECTION_TIMEOUT_MIN_MS": "2000",
    "TENURE_RAFT_ELECTION_TIMEOUT_MAX_MS": "4000",
    "TENURE_LEASES_TTL_MIN_MS": "12000",
}
"""A loaded machine shall not change the leader; one that stops is followed at once all the same."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A cluster of one, with a story behind it."""
    with nodes(tmp_path_factory.mktemp("metrics"), 1) as [only]:
        _tell_a_story(only)
        yield only


def _tell_a_story(node: NodeProcess) -> None:
    """A holder, one who is refused, one who waits, one who comes too late."""
    status, answer = node.call("acquire", key="k", owner="a", ttl_ms=600_000)
    lease = answer["lease"]
    assert status == 200
    assert node.call("acquire", key="k", owner="b", ttl_ms=600_000)[0] == 409
    assert node.call("renew", lease_id=lease["lease_id"])[0] == 200
    waiter = {"key": "k", "owner": "b", "ttl_ms": 600_000, "request_id": "r"}
    assert node.call("acquire", **waiter, wait_ms=100)[0] == 202
    assert node.call("release", lease_id=lease["lease_id"])[0] == 200
    assert node.call("acquire", **waiter, wait_ms=20_000)[0] == 200
    assert node.call("renew", lease_id=lease["lease_id"])[0] == 410
    write = {"key": "k", "lease_id": lease["lease_id"], "token": lease["token"], "mode": "once", "value": "v"}
    assert node.call("commit", **write)[0] == 412


def test_every_metric_is_told_with_its_kind_and_meaning(node: NodeProcess) -> None:
    text = node.ask("GET", "/metrics")[1].decode()
    for metric in METRICS.values():
        assert f"# TYPE {metric.told_as} {metric.kind}\n" in text
        assert f"# HELP {metric.told_as} {metric.help}\n" in text


def test_promtool_finds_nothing_in_what_is_told(node: NodeProcess) -> None:
    told = node.ask("GET", "/metrics")[1].decode()
    # process_* are the client library's, whose help texts promtool lets pass.
    passes(tool("promtool"), "check", "metrics", stdin=told)


def test_leases_are_counted(node: NodeProcess) -> None:
    told = node.samples()
    assert told[f"tenure_leases_held{{{T}}}"] == 1
    assert told[f"tenure_leases_waiting{{{T}}}"] == 0
    assert told[f"tenure_leases_granted_total{{{T}}}"] == 2
    assert told[f'tenure_acquires_denied_total{{reason="held",{T}}}'] == 1
    assert told[f"tenure_acquires_blocked_total{{{T}}}"] == 2
    assert told[f"tenure_renewals_total{{{T}}}"] == 1
    assert told[f'tenure_renewals_failed_total{{reason="lost",{T}}}'] == 1
    assert told[f'tenure_leases_ended_total{{reason="released",{T}}}'] == 1
    assert told[f'tenure_commits_refused_total{{cause="stale_token",{T}}}'] == 1
    assert told[f"tenure_stale_writes_total{{{T}}}"] == 1
    assert told[f"tenure_wait_seconds_count{{{T}}}"] == 1
    assert 0.1 <= told[f"tenure_wait_seconds_sum{{{T}}}"] <= told[f"tenure_hold_seconds_sum{{{T}}}"]
    assert told[f"tenure_hold_seconds_count{{{T}}}"] == 1
    assert told["tenure_sessions"] == 1


def test_consensus_is_counted(node: NodeProcess) -> None:
    told = node.samples()
    assert told[LEADS] == 1
    assert told['tenure_raft_role{role="follower"}'] == 0
    assert told["tenure_raft_elections_started_total"] == told["tenure_raft_elections_won_total"] == 1
    assert told["tenure_raft_leader_changes_total"] == 1
    assert told["tenure_raft_commit_index"] == told["tenure_raft_applied_index"] > 5
    assert told["tenure_raft_sync_seconds_count"] >= 5
    assert told["tenure_raft_sync_seconds_sum"] > 0
    assert told["tenure_raft_members"] == told["tenure_raft_voters"] == told["tenure_raft_votes"] == 1


def test_the_node_is_counted(node: NodeProcess) -> None:
    told = node.samples()
    assert told["tenure_ready"] == 1
    assert told["tenure_disk_free_bytes"] > told["tenure_disk_reserve_bytes"] > 0
    assert told['tenure_http_answers_total{status="409"}'] == 1
    assert told['tenure_http_answers_total{status="410"}'] == 1
    assert told["tenure_http_connections"] >= 1
    assert told["process_start_time_seconds"] > 0


def test_snapshots_are_counted_with_their_time(tmp_path: Path) -> None:
    with nodes(tmp_path, 1, TENURE_RAFT_SNAPSHOT_ENTRIES="20") as [node]:

        def made() -> bool:
            node.call("acquire", key="k", owner="a", ttl_ms=600_000)
            return node.samples()["tenure_raft_snapshots_made_total"] > 0

        await_that(made, "a snapshot")
        told = node.samples()
        assert told["tenure_raft_snapshot_seconds_count"] == told["tenure_raft_snapshots_made_total"]
        assert told["tenure_raft_snapshot_index"] > 0
        assert told["tenure_raft_snapshot_timestamp_seconds"] > told["process_start_time_seconds"]


def test_a_grant_is_counted_by_one_node_and_seen_by_all(tmp_path: Path) -> None:
    with nodes(tmp_path, 3, **CALM) as cluster:
        for number in range(5):
            assert cluster[number % 3].call("acquire", key=f"k{number}", owner="a", ttl_ms=600_000)[0] == 200
        await_that(
            lambda: all(node.samples().get(f"tenure_leases_held{{{T}}}") == 5 for node in cluster),
            "every node to hold five leases",
        )
        granted = [node.samples()[f"tenure_leases_granted_total{{{T}}}"] for node in cluster]
        assert sorted(granted) == [0, 0, 5]
        leader = cluster[granted.index(5)]
        assert leader.samples()[LEADS] == 1
        lags = [name for name in leader.samples() if name.startswith("tenure_raft_peer_lag_entries")]
        assert len(lags) == 2

        # Who takes over counts what comes from then on, and knows since when the others' leases are held.
        assert leader.stop() == 0
        left = [node for node in cluster if node is not leader]
        await_that(lambda: any(node.samples()[LEADS] for node in left), "a leader")
        await_that(lambda: all(node.ready for node in left), "two nodes that serve")
        assert left[0].call("break", key="k0", reason="test")[0] == 200
        new = next(node for node in left if node.samples()[LEADS])
        told = new.samples()
        assert told[f"tenure_leases_granted_total{{{T}}}"] == 0
        assert told[f'tenure_leases_ended_total{{reason="broken",{T}}}'] == 1
        assert told[f"tenure_hold_seconds_count{{{T}}}"] == 1
        assert told["tenure_raft_peer_connected" + _peer_of(cluster.index(leader))] == 0


def _peer_of(index: int) -> str:
    return f'{{peer="n{index + 1}"}}'


def test_what_is_read_again_at_a_start_is_not_counted_again(tmp_path: Path) -> None:
    with nodes(tmp_path, 1) as [node]:
        for number in range(3):
            assert node.call("acquire", key=f"k{number}", owner="a", ttl_ms=600_000)[0] == 200
        assert node.stop() == 0
        node.start()
        await_that(lambda: node.ready, "the node to be back")
        told = node.samples()
        assert told[f"tenure_leases_held{{{T}}}"] == 3
        assert told[f"tenure_leases_granted_total{{{T}}}"] == 0


def test_without_certificates_no_end_of_them_is_told(node: NodeProcess) -> None:
    assert "tenure_tls_expiry_timestamp_seconds" not in node.samples()


def test_metrics_can_be_left_out(tmp_path: Path) -> None:
    with nodes(tmp_path, 1, TENURE_METRICS_ENABLED="false") as [node]:
        assert node.ask("GET", "/metrics")[0] == 404
        assert node.call("acquire", key="k", owner="a", ttl_ms=600_000)[0] == 200


def test_the_end_of_the_certificates_is_told(tmp_path: Path) -> None:
    passes(tool("tenured"), "tls", "init", tmp_path / "certs", "--node", "n1=127.0.0.1", "--days", "30")
    own = tmp_path / "certs/n1"
    files = {
        "TENURE_TLS_CERT": str(own / "cert.pem"),
        "TENURE_TLS_KEY": str(own / "key.pem"),
        "TENURE_TLS_CA": str(own / "ca.pem"),
    }
    with nodes(tmp_path, 1, **files) as [node]:
        left_s = node.samples()["tenure_tls_expiry_timestamp_seconds"] - time.time()
        assert 29 * 86_400 < left_s <= 30 * 86_400
