"""What a node says about its durability, and the data directories that it must refuse to start on."""

import json
import re
from pathlib import Path

import pytest
from history import History
from live_cluster import LiveCluster, LiveNode
from raw_http import fetch
from workload import Client, acquire_body

pytestmark = pytest.mark.process


async def acquire_some(node: LiveNode, count: int) -> list[int]:
    """Acquire so many keys; returns their tokens."""
    client = Client("c", [(node.node_id, node.url)], History())
    tokens = []
    for i in range(count):
        call = await client.until_definite("acquire", acquire_body(f"r{i}", f"key/{i}", 60_000))
        assert call.outcome == "ok", call
        tokens.append(call.answer["lease"]["token"])
    client.close()
    return tokens


def newest_segment(node: LiveNode) -> Path:
    """The journal segment that holds the node's last records."""
    segments = sorted(node.data_dir.glob("journal-*.seg"))
    written = [path for path in segments if len(path.read_bytes().rstrip(b"\0")) > 4096]
    assert written, f"no segment with records among {segments}"
    return written[-1]


def flip_a_byte(path: Path) -> int:
    """Change one bit in the middle of what was written; returns where."""
    data = bytearray(path.read_bytes())
    at = len(data.rstrip(b"\0")) // 2
    while data[at] == 0:
        at += 1
    data[at] ^= 0x10
    path.write_bytes(data)
    return at


async def test_a_node_that_does_not_sync_says_so_when_it_starts(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path / "os", nodes=1, durability="os") as relaxed:
        text = relaxed.nodes["n1"].log_text()
        assert re.search(r"durability.*os\b.*power|power.*durability.*os\b", text, re.DOTALL), text
    async with LiveCluster(tmp_path / "fsync", nodes=1) as durable:
        assert "power" not in durable.nodes["n1"].log_text()
        view = await durable.view(durable.nodes["n1"])
        assert view is not None
        assert view["durability"] == "fsync"


async def test_a_node_with_a_damaged_journal_refuses_to_start_and_the_others_go_on(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        leader = await cluster.leader()
        tokens = await acquire_some(leader, 100)
        victim = next(node for node in cluster.nodes.values() if node is not leader)
        await cluster.caught_up()
        await cluster.stop(victim)
        segment = newest_segment(victim)
        offset = flip_a_byte(segment)
        before = segment.read_bytes()

        seen = len(victim.log_text())
        cluster.start(victim)
        assert await cluster.exit_code(victim) != 0
        said = victim.log_text()[seen:]
        assert segment.name in said
        named = [int(number) for number in re.findall(r"(?:offset|byte)\D{0,3}(\d+)", said)]
        assert any(at <= offset for at in named), f"the damage at {offset} is not located in: {said}"
        assert segment.read_bytes() == before, "a damaged journal was changed"

        await cluster.ready(*(node for node in cluster.nodes.values() if node is not victim))
        answer = await fetch(leader.url, "GET", "/v1/leases/key/0")
        assert (answer.status, json.loads(answer.body)["token"]) == (200, tokens[0])


async def test_a_node_refuses_the_data_directory_of_another_node_or_cluster(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path, nodes=1) as cluster:
        node = cluster.nodes["n1"]
        tokens = await acquire_some(node, 3)
        await cluster.stop(node)

        cluster.cluster_id = "other"
        cluster.write_config(node)
        await refused(cluster, node, "live", "other")
        cluster.cluster_id = "live"

        other = LiveNode("n9", node.http_port, node.peer_port, node.directory)
        cluster.nodes = {"n9": other}
        cluster.write_config(other)
        await refused(cluster, other, "n1", "n9")

        cluster.nodes = {"n1": node}
        cluster.write_config(node)
        cluster.start(node)
        await cluster.ready()
        assert await acquire_some(node, 3) == tokens, "asking again must find the grants of before"


async def refused(cluster: LiveCluster, node: LiveNode, *named: str) -> None:
    """The node does not start, and says which identities differ."""
    seen = len(node.log_text())
    cluster.start(node)
    assert await cluster.exit_code(node) != 0
    said = node.log_text()[seen:]
    assert all(name in said for name in named), said


async def test_a_second_process_is_refused_the_data_directory_of_a_running_one(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path, nodes=1) as cluster:
        node = cluster.nodes["n1"]
        ports = (node.http_port + 1, node.peer_port + 1)
        second = LiveNode("n1", *ports, tmp_path / "second")
        cluster.nodes = {"n1": second}
        try:
            cluster.write_config(second, data_dir=str(node.data_dir))
            cluster.start(second)
            assert await cluster.exit_code(second) != 0
            assert "in use" in second.log_text()
        finally:
            cluster.kill_everything()
            cluster.nodes = {"n1": node}
        await cluster.ready()
