"""The alerts on the metrics of real nodes, evaluated by a real Prometheus, as things go wrong one by one.

The rules are the shipped ones but for their `for:`, which is 1 s here: a test can't wait for five minutes.
"""

import re
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from deploy_kit import DEPLOY, alerts, rules
from deploy_nodes import NodeProcess, await_that, nodes
from deploy_prometheus import Prometheus, hurried_rules, prometheus

FROM_THE_START = {"TenureDurabilityOff", "TenureDiskLow", "TenureSyncSlow"}
"""What the settings of two of the nodes provoke."""

ON_REAL_METRICS = FROM_THE_START | {
    "TenureLeasesExpiring",
    "TenureNoLeader",
    "TenureNodeDown",
    "TenureNotReady",
    "TenurePeerDisconnected",
    "TenureQuorumAtRisk",
    "TenureRenewalsFailing",
    "TenureRestarting",
    "TenureServerErrors",
    "TenureShedding",
    "TenureStaleWrites",
}

OF_A_BUSY_MACHINE = {"TenureNoLeader", "TenureNotReady", "TenurePeerDisconnected", "TenureQuorumAtRisk"}

SYNC_DELAY_MS = 150
SETTINGS = {"TENURE_ADMISSION_POLLS_MAX": "1", "TENURE_CALLS_LEADER_WAIT_MS": "100"}
LEADS = 'tenure_raft_role{role="leader"}'


def leads(node: NodeProcess) -> bool:
    return node.samples()[LEADS] == 1


def test_the_rules_are_the_shipped_ones_but_for_how_long_they_wait() -> None:
    hurried = [rule for group in hurried_rules()["groups"] for rule in group["rules"]]
    assert [{**rule, "for": ""} for rule in hurried] == [{**rule, "for": ""} for rule in rules()]


def test_the_drills_page_says_which_alerts_were_only_seen_in_tests_of_rules() -> None:
    drill = (DEPLOY / "DRILL.md").read_text(encoding="utf-8")
    seen, _, unseen = drill.partition("The other alerts were seen in promtool's tests alone: ")
    unseen = unseen.partition("\n\n")[0]
    assert sorted(re.findall(r"`(Tenure\w+)`", unseen)) == sorted(set(alerts()) - ON_REAL_METRICS)
    assert set(re.findall(r"`(Tenure\w+)`", seen.partition("## On every run")[2])) == ON_REAL_METRICS


@pytest.mark.process
@pytest.mark.slow
def test_alerts_fire_on_what_real_nodes_tell_and_end_with_their_causes(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    own = {
        "n2": {"TENURE_FAULTS": f"journal.before_sync=delay:{SYNC_DELAY_MS}"},
        # Far from its reserve, and below four times of it.
        "n3": {"TENURE_DURABILITY": "os", "TENURE_ADMISSION_DISK_RESERVE_BYTES": str(free // 3)},
    }
    with (
        nodes(tmp_path / "nodes", 3, own=own, **SETTINGS) as cluster,
        prometheus(tmp_path / "prometheus", cluster) as watching,
    ):
        from_the_start(cluster, watching)
        assert watching.faults_of_rules() == []
        await_that(lambda: set(alerts()) <= watching.evaluated(), "all rules to be evaluated")
        what_holders_do(cluster, watching)
        one_node_lost(cluster, watching)
        the_majority_lost(cluster, watching)
        assert sorted(ON_REAL_METRICS - watching.seen) == []


def from_the_start(cluster: list[NodeProcess], watching: Prometheus) -> None:
    """A node that is slow, one without durability and with a full disk; the rest is quiet."""
    [first, *_] = cluster
    for number in range(20):
        assert acquire(first, f"quiet/{number}", ttl_ms=300_000)[0] == 200
    for alert in FROM_THE_START:
        watching.await_alert(alert)
    firing = watching.firing()
    assert f"127.0.0.1:{cluster[1].port}" in {labels["instance"] for labels in firing["TenureSyncSlow"]}
    [full] = firing["TenureDiskLow"]
    assert full["instance"] == f"127.0.0.1:{cluster[2].port}"
    # What nobody has provoked yet is quiet, save for what a machine that is busy brings about by itself.
    assert sorted(set(firing) & (ON_REAL_METRICS - FROM_THE_START - OF_A_BUSY_MACHINE)) == []


def what_holders_do(cluster: list[NodeProcess], watching: Prometheus) -> None:
    """Leases that end unreleased, renewals and writes that come too late, more waiters than are taken in."""
    node = cluster[0]
    # They end one after the other, so that Prometheus sees the counter rise.
    lost = [acquire(node, f"lost/{number}", ttl_ms=3_000 + 500 * number)[1]["lease"] for number in range(8)]
    watching.await_alert("TenureLeasesExpiring")

    def too_late() -> bool:
        for lease in lost:
            node.call("renew", lease_id=lease["lease_id"])
        return "TenureRenewalsFailing" in watching.firing()

    await_that(too_late, "TenureRenewalsFailing")
    stale = {"key": lost[0]["key"], "lease_id": lost[0]["lease_id"], "token": lost[0]["token"]}
    acquire(node, lost[0]["key"], ttl_ms=300_000)
    assert node.call("commit", mode="once", value="late", **stale)[0] == 412
    watching.await_alert("TenureStaleWrites")

    [_, granted] = acquire(node, "occupied", ttl_ms=300_000)

    def too_many() -> bool:
        for _ in range(3):
            acquire(node, "quiet/0", ttl_ms=30_000, wait_ms=1)
        return "TenureShedding" in watching.firing()

    def wait_in_line() -> None:
        while acquire(node, "occupied", ttl_ms=30_000, wait_ms=25_000)[1].get("status") != "granted":
            pass

    waiter = threading.Thread(target=wait_in_line)
    waiter.start()
    await_that(too_many, "TenureShedding")
    node.call("release", lease_id=granted["lease"]["lease_id"])
    waiter.join()


def one_node_lost(cluster: list[NodeProcess], watching: Prometheus) -> None:
    """A follower dies, comes back, and dies again and again."""
    lost = next(node for node in cluster if not leads(node))
    lost.stop(signal.SIGKILL)
    for alert in ("TenureNodeDown", "TenurePeerDisconnected", "TenureQuorumAtRisk"):
        watching.await_alert(alert)
    watching.await_silence("TenureNoLeader")
    for _ in range(2):
        lost.start()
        await_that(lambda: lost.ready, "the node that was lost")
        watching.await_silence("TenureNodeDown")
        lost.stop(signal.SIGKILL)
        watching.await_alert("TenureNodeDown")
    lost.start()
    await_that(lambda: lost.ready, "the node that was lost")
    watching.await_alert("TenureRestarting")
    for alert in ("TenureNodeDown", "TenurePeerDisconnected", "TenureQuorumAtRisk"):
        watching.await_silence(alert)


def the_majority_lost(cluster: list[NodeProcess], watching: Prometheus) -> None:
    """The leader and a follower are gone, and the third refuses; then they are back."""
    followers = [node for node in cluster if not leads(node)]
    gone = [node for node in cluster if node is not followers[0]]
    left = followers[0]
    for node in gone:
        node.stop(signal.SIGKILL)
    watching.await_alert("TenureNoLeader")
    watching.await_alert("TenureNotReady")

    def refuses() -> bool:
        assert acquire(left, "nobody/leads", ttl_ms=30_000)[0] in (503, 504)
        return "TenureServerErrors" in watching.firing()

    await_that(refuses, "TenureServerErrors")
    for node in gone:
        node.start()
    await_that(lambda: all(node.ready for node in cluster), "the cluster")
    for alert in ("TenureNoLeader", "TenureNotReady", "TenureNodeDown"):
        watching.await_silence(alert)
    assert "TenureTwoLeaders" not in watching.firing()


def acquire(node: NodeProcess, key: str, **fields: Any) -> tuple[int, Any]:
    return node.call("acquire", key=key, owner="drill", **fields)
