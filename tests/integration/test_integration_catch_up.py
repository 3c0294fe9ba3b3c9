"""A follower that was down while the log was compacted past its end comes back by a snapshot, and is equal.

By default a smaller log with proportionally earlier snapshots; with TENURE_TEST_FULL=1 the full 200,000
entries with the default settings.
"""

import asyncio
import os
from pathlib import Path

import pytest
from conclusion import agree_by_stale_reads
from history import History
from live_cluster import LiveCluster, LiveNode, Settings
from recovery import report
from replicas import compare_replicas
from workload import Client, acquire_body

FULL = bool(os.environ.get("TENURE_TEST_FULL"))
ENTRIES = 200_000 if FULL else 8_000
SETTINGS: Settings = {} if FULL else {"raft": {"snapshot_entries": 1_000, "journal_segment_bytes": 1 << 20}}
CLIENTS = 2
"""Few, since commands that wait together share an entry, and entries are what is counted."""


async def commit_entries(cluster: LiveCluster, node: LiveNode, count: int) -> History:
    """Commit so many log entries by acquires and releases; every tenth lease is kept for an hour."""
    history = History()
    view = await cluster.view(node)
    assert view is not None
    target = view["last_index"] + count

    async def work(name: str) -> None:
        client = Client(name, [(node.node_id, node.url)], history)
        number = 0
        while True:
            number += 1
            request = f"{name}-{number}"
            body = acquire_body(request, f"{name}/{number % 5_000}", 3_600_000)
            call = await client.until_definite("acquire", body)
            if call.outcome == "ok" and number % 10:
                await client.until_definite("release", {"lease_id": call.answer["lease"]["lease_id"]})
            if number % 50 == 0:
                history.calls.clear()
                view = await cluster.view(node)
                if view is not None and view["last_index"] >= target:
                    break
        client.close()

    await asyncio.gather(*(work(f"c{i}") for i in range(CLIENTS)))
    return history


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_follower_behind_a_compacted_log_catches_up_by_snapshot_and_is_equal(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path, settings=SETTINGS) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        await commit_entries(cluster, leader, 100)
        cluster.kill(follower)
        before = (await cluster.view(leader) or {})["last_index"]
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await commit_entries(cluster, leader, ENTRIES)
        took_s = loop.time() - started_s

        assert leader.snapshot_index > before, (
            "the leader has not compacted past the end of the follower's log"
        )
        restarted_s = loop.time()
        cluster.start(follower)
        await cluster.ready(follower)
        index = await cluster.caught_up(timeout_s=60.0)
        caught_up_s = loop.time() - restarted_s
        assert index >= before + ENTRIES
        assert "installed the snapshot at" in follower.log_text()
        await agree_by_stale_reads(cluster)
        cluster.assert_all_run()
        await cluster.stop(*cluster.nodes.values())
        assert compare_replicas(cluster) == []
    report("catch_up_by_snapshot", [caught_up_s], entries=ENTRIES, entries_per_s=round(ENTRIES / took_s))
