"""All nodes killed at once under load and started again: nothing that was acknowledged is lost."""

from pathlib import Path

import pytest
from conclusion import conclude, new_load, progress
from live_cluster import LiveCluster
from recovery import first_acquire, report

KILLS = 6


@pytest.mark.process
@pytest.mark.slow
async def test_all_nodes_killed_at_once_and_started_again_lose_nothing(tmp_path: Path) -> None:
    gaps: list[float] = []
    async with LiveCluster(tmp_path) as cluster:
        load = new_load(cluster)
        load.start()
        try:
            for _ in range(KILLS):
                await progress(load, 500)
                nodes = list(cluster.nodes.values())
                since_s = cluster.kill(*nodes)
                for node in nodes:
                    cluster.start(node)
                gaps.append(
                    await first_acquire(nodes, load.history, since_s=since_s, within_s=30.0, seed=load.seed)
                )
                await cluster.ready()
            outcome = await conclude(cluster, load)
        finally:
            load.close()
    report("all_sigkill_to_next_acquire", gaps, **outcome)
