"""A real node that has lost its data says that it is not ready until it has what the others have."""

import json
import shutil
from pathlib import Path

import pytest
from any_node import AnyNode
from live_cluster import LiveCluster, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOOKS = 40
LEASES = 20


async def test_an_emptied_node_is_not_ready_until_it_has_caught_up(tmp_path: Path) -> None:
    """Under the leader that believes that it has its old log it is sent nothing; the next leader asks it."""
    async with LiveCluster(tmp_path, durability="os") as cluster:
        leader = await cluster.leader()
        emptied = (await cluster.followers())[0]
        nodes = AnyNode([leader.url])
        for number in range(LEASES):
            await nodes.acquired(f"k{number}", "holder")
        await cluster.stop(emptied)
        shutil.rmtree(emptied.data_dir)
        cluster.start(emptied)

        async def says_why() -> bool:
            answer = await cluster.get(emptied, "/readyz", timeout_s=30.0)
            if answer is None:
                return False
            assert answer.status == 503, answer.body
            return "has not caught up" in json.loads(answer.body)["detail"]

        await until(says_why, 300.0, "it to say that it has not caught up", 0.05)
        for _ in range(LOOKS):
            answer = await cluster.get(emptied, "/readyz", timeout_s=30.0)
            assert answer is None or answer.status == 503
        await cluster.stop(leader)
        cluster.start(leader)
        await cluster.ready(timeout_s=300.0)
        assert await cluster.caught_up(timeout_s=120.0) > LEASES
