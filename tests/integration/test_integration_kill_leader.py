"""Issue: SIGKILL of the leader under load, again and again, loses nothing that was acknowledged, and costs
an instant.
"""

from pathlib import Path

import pytest
from conclusion import conclude, new_load, progress
from live_cluster import LiveCluster
from recovery import first_acquire, report

KILLS = 20
MEDIAN_S_MAX = 0.15
WORST_S_MAX = 2.0


@pytest.mark.process
@pytest.mark.slow
async def test_twenty_leaders_killed_under_load_lose_nothing_and_are_replaced_at_once(tmp_path: Path) -> None:
    gaps: list[float] = []
    async with LiveCluster(tmp_path) as cluster:
        load = new_load(cluster)
        load.start()
        try:
            for _ in range(KILLS):
                await progress(load, 400)
                leader = await cluster.leader()
                since_s = cluster.kill(leader)
                survivors = [node for node in cluster.nodes.values() if node is not leader]
                gaps.append(
                    await first_acquire(
                        survivors, load.history, since_s=since_s, within_s=20.0, seed=load.seed
                    )
                )
                cluster.start(leader)
                await cluster.ready()
            outcome = await conclude(cluster, load)
        finally:
            load.close()
    figures = report("leader_sigkill_to_next_acquire", gaps, **outcome)
    assert figures["median_s"] <= MEDIAN_S_MAX, figures
    assert figures["worst_s"] <= WORST_S_MAX, figures
