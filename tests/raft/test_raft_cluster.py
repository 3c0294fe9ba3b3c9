"""Clusters on real sockets and real disks: what a caller is promised."""

import asyncio
from pathlib import Path

from raft_testkit import cluster_of


async def test_three_nodes_elect_a_leader_and_replicate(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        outcomes = [await cluster.put(b"%d" % n) for n in range(20)]
        assert [outcome.result for outcome in outcomes] == list(range(20))
        await cluster.agree()
