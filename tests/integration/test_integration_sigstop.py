"""A leader that is stopped by SIGSTOP, as a frozen machine would be, is replaced, and comes back without
doing harm.
"""

import os
from pathlib import Path

import pytest
from conclusion import conclude, new_load, progress
from live_cluster import LiveCluster, paused
from recovery import first_acquire, report

STOPS = 20 if os.environ.get("TENURE_TEST_FULL") else 10
MEDIAN_S_MAX = 1.2


@pytest.mark.process
@pytest.mark.slow
async def test_leaders_stopped_under_load_are_replaced_and_nothing_is_lost_when_they_wake(
    tmp_path: Path,
) -> None:
    gaps: list[float] = []
    async with LiveCluster(tmp_path) as cluster:
        load = new_load(cluster)
        load.start()
        try:
            for turn in range(STOPS):
                await progress(load, 400)
                leader = await cluster.leader()
                async with paused(cluster, leader) as since_s:
                    survivors = [node for node in cluster.nodes.values() if node is not leader]
                    gaps.append(
                        await first_acquire(
                            survivors, load.history, since_s=since_s, within_s=20.0, seed=load.seed
                        )
                    )
                    if turn % 2:  # the others go on for a while, so that the old leader wakes far behind
                        await progress(load, 400)
                await cluster.ready()
            outcome = await conclude(cluster, load)
        finally:
            load.close()
    figures = report("leader_sigstop_to_next_acquire", gaps, **outcome)
    assert figures["median_s"] <= MEDIAN_S_MAX, figures
