"""Random faults on a live cluster whose segments and snapshots are so small that both are made all the
time.
"""

import os
import random
from pathlib import Path

import pytest
from conclusion import conclude, new_load
from live_cluster import LiveCluster, Settings
from nemesis import trouble

FAULTS = 60 if os.environ.get("TENURE_TEST_FULL") else 12
SETTINGS: Settings = {
    "raft": {"snapshot_entries": 150, "journal_segment_bytes": 128 << 10, "entry_bytes_max": 128 << 10}
}


@pytest.mark.process
@pytest.mark.slow
async def test_killed_and_stopped_nodes_lose_nothing_while_the_log_is_compacted(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed of the faults: {seed}")  # noqa: T201
    async with LiveCluster(tmp_path, settings=SETTINGS) as cluster:
        load = new_load(cluster)
        load.start()
        try:
            done = await trouble(cluster, load, faults=FAULTS, seed=seed)
            print(f"faults: {done}")  # noqa: T201
            await conclude(cluster, load)
        finally:
            load.close()
        assert all(node.snapshot_index > 0 for node in cluster.nodes.values()), "the run was too tame"
