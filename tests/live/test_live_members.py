"""Members of a real cluster change under load: nobody of the first is left, and what the lines do to the new
ones is seen. What nodes that have gone left behind is looked at, too."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tenure_chaos.live import folder
from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import CLUSTER_ID, EXIT_REMOVED, LiveCluster, LiveNode
from tenure_chaos.live.collect import Observations
from tenure_chaos.live.faults.isolate import IsolateLeader
from tenure_chaos.live.faults.members import ChangeMembers
from tenure_chaos.live.members import compare_gone
from tenure_chaos.live.node.routing import routed
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.run import run
from tenure_cluster.inspection import read_contents

PATIENCE_S = 60.0
FIRST = {"n1", "n2", "n3"}


A = TypeVar("A")


async def until(look: Callable[[], Awaitable[A | None]]) -> A:
    """What is looked for, once it is there."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (found := await look()) is not None:
                return found
            await asyncio.sleep(0.1)


async def strikes(bench: Bench) -> bool:
    """Until nobody of the first is left and three have been five; then the leader, a newcomer, is cut off."""
    while FIRST & set(bench.cluster.nodes) or not any("become 5" in struck.target for struck in bench.faults):
        await bench.end(await until(lambda: bench.begin(ChangeMembers)))
    before = await until(bench.leader)
    fault = await until(lambda: bench.begin(IsolateLeader))

    async def another() -> LiveNode | None:
        leader = await bench.leader()
        return None if leader is before else leader

    after = await until(another)
    await bench.end(fault)
    bench.note(f"{before.name} led, and {after.name} leads")
    return True


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_member_is_replaced_under_load_and_nothing_is_broken(tmp_path: Path) -> None:
    options = LiveOptions(
        clients=2, programs=3, ttl_ms=(3_000,), seconds=8 * PATIENCE_S, leader_bound_s=60.0, proxies="any"
    )
    said: list[str] = []
    report = asyncio.run(run(options, tmp_path, strikes, title="members", say=said.append))
    folder.write(report)
    print(*said, *report.violations, sep="\n")  # noqa: T201
    assert report.violations == []
    assert report.history.complete

    left = [state.node for state in report.history.final]
    assert len(left) == 3
    assert not FIRST & set(left)
    gone = [name for name in report.nodes if name not in left]
    removed = {name for name, _, code in report.endings if code == EXIT_REMOVED}
    assert set(gone) == removed >= FIRST
    assert {entry.node for entry in report.history.applied} == {*left, *gone}
    assert all((tmp_path / name / "log").stat().st_size for name in report.nodes)
    calls = report.history.calls
    assert sum(call.outcome == "ok" for call in calls) > len(calls) / 2


# -- parts


def test_a_node_dials_where_it_is_told_whatever_the_log_says(tmp_path: Path) -> None:
    said = {"n2": ("10.0.0.2", 7), "n3": ("10.0.0.3", 7)}
    assert routed(said, tmp_path / "none") == said
    (tmp_path / "routes").write_text(json.dumps({"n3": "127.0.0.1:1", "n9": "127.0.0.1:2"}))
    assert routed(said, tmp_path / "routes") == {"n2": ("10.0.0.2", 7), "n3": ("127.0.0.1", 1)}


def test_names_are_not_given_again(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, nodes=3, sockets=tmp_path)
    new = cluster.new_node(None)
    assert (new.name, new.joins, cluster.majority) == ("n4", True, 3)
    cluster.leave(cluster.nodes["n1"])
    cluster.leave(new)
    assert cluster.next_name() == "n5"
    assert [node.name for node in cluster.everyone] == ["n1", "n2", "n3", "n4"]
    assert list(cluster.nodes) == ["n2", "n3"]


@pytest.mark.process
@pytest.mark.slow
def test_the_disk_of_a_node_that_has_gone_is_held_against_what_was_written_down(tmp_path: Path) -> None:
    """A run whose only node has gone in the end, for that matter."""

    async def some_time(bench: Bench) -> bool:
        async def applied() -> bool | None:
            states = [state for state in (await bench.cluster.states()).values() if state is not None]
            return True if len(states) == 3 and min(state["raft_applied"] for state in states) > 120 else None

        return await until(applied)

    options = LiveOptions(clients=1, programs=4, ttl_ms=(3_000,), seconds=PATIENCE_S, leader_bound_s=60.0)
    report = asyncio.run(run(options, tmp_path, some_time, title="disks"))
    assert report.violations == []
    node = LiveNode("n1", 1, 2, tmp_path / "n1", control=tmp_path / "none")
    seen = Observations(0.0)
    seen.read("n1", node.observed_path)
    assert read_contents(node.data_dir, CLUSTER_ID, "n1").last_index >= 120
    assert compare_gone([node], seen) == []
    seen.digests = [(name, index, "another") for name, index, _ in seen.digests]
    [wrong] = compare_gone([node], seen)
    assert "n1, which has gone, differs" in wrong
    never = replace(node, directory=tmp_path / "never")
    (tmp_path / "never/data").mkdir(parents=True)
    assert compare_gone([never], seen) == []


async def test_nodes_may_go_while_all_are_asked_where_they_stand(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, nodes=3, sockets=tmp_path)
    asked = asyncio.ensure_future(cluster.states())
    await asyncio.sleep(0)
    cluster.leave(cluster.nodes["n2"])
    assert await asked == {"n1": None, "n2": None, "n3": None}
    assert await cluster.states() == {"n1": None, "n3": None}
