"""The harness must catch a cluster that loses what it has acknowledged, and a node that ends by itself."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from check_history import check_history
from conclusion import new_load, progress
from live_cluster import LiveCluster, until
from replicas import compare_replicas

pytestmark = pytest.mark.process


async def test_a_cluster_that_forgets_everything_is_caught(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        load = new_load(cluster)
        load.start(writers=8, keys=16, holders=0)
        try:
            await progress(load, 300)
            nodes = list(cluster.nodes.values())
            cluster.kill(*nodes)
            for node in nodes:
                shutil.rmtree(node.data_dir)
                cluster.start(node)
            await cluster.ready()
            await progress(load, 300)
            await load.stop()
        finally:
            load.close()
        caught = {violation.split(":")[0] for violation in check_history(load.history)}
    assert "no_impossible_answers" in caught, "nobody noticed that tokens were issued twice"
    assert len(caught) > 1, caught


async def test_replicas_that_differ_are_caught(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        load = new_load(cluster)
        load.start(writers=4, keys=8, holders=0)
        try:
            await progress(load, 50)
            await load.stop()
        finally:
            load.close()
        await cluster.caught_up()
        nodes = list(cluster.nodes.values())
        await cluster.stop(*nodes)
        assert compare_replicas(cluster) == []

    async with LiveCluster(tmp_path / "other") as other:
        load = new_load(other)
        load.start(writers=4, keys=8, holders=0)
        try:
            await progress(load, 50)
            await load.stop()
        finally:
            load.close()
        await other.caught_up()
        await other.stop(*other.nodes.values())
        shutil.rmtree(cluster.nodes["n2"].data_dir)
        shutil.copytree(other.nodes["n2"].data_dir, cluster.nodes["n2"].data_dir)
        assert any("differ" in fault for fault in compare_replicas(cluster))


async def test_a_node_that_ends_by_itself_is_caught(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        cluster.assert_all_run()
        node = cluster.nodes["n2"]
        os.kill(node.pid, signal.SIGABRT)

        async def ended() -> bool:
            return not node.running

        await until(ended, 5.0, "the node to end")
        with pytest.raises(AssertionError, match="n2"):
            cluster.assert_all_run()
