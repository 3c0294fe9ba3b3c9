"""Streams on three real nodes: through a follower, through the death of the leader, and handed over."""

import asyncio
import sys
from pathlib import Path

import pytest
from live_cluster import LiveCluster, LiveNode, until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))

from api_stream import StreamClient, stream

NOT_EXECUTED = {"no_leader", "no_quorum", "overloaded", "shutting_down"}
FRAMES_AFTER_KILL = 20
WIDTH = 32


def acquires(frame: int) -> list[tuple[str, dict[str, object]]]:
    return [
        (
            "acquire",
            {"key": f"s/{frame}/{n}", "owner": "o", "ttl_ms": 30_000, "request_id": f"s-{frame}-{n}"},
        )
        for n in range(WIDTH)
    ]


async def answered(client: StreamClient, frame: int) -> list[str]:
    """What became of a frame of acquires: `granted`, or a code."""
    answers = await client.ask_all(*acquires(frame))
    return ["granted" if status == 200 else body["code"] for status, body in answers]


async def follower_of(cluster: LiveCluster) -> LiveNode:
    return (await cluster.followers())[0]


@pytest.mark.process
async def test_a_stream_through_a_follower_outlives_the_leader(tmp_path: Path) -> None:
    """Every operation gets exactly one answer. Acquires with a request_id are tried again behind the stream
    until a new leader answers them, so the caller notices nothing but the time."""
    async with LiveCluster(tmp_path) as cluster:
        follower = await follower_of(cluster)
        async with stream(follower.http_port) as client:
            assert await answered(client, 0) == ["granted"] * WIDTH
            [watch] = await client.send(("watch", {"prefix": "s/", "from": 0}))
            running = asyncio.ensure_future(
                asyncio.gather(*(client.send(*acquires(frame)) for frame in range(1, 4)))
            )
            cluster.kill(await cluster.leader())
            frames = await running
            codes = []
            for ids in frames:
                for number in ids:
                    status, body = await client.answer(number)
                    codes.append("granted" if status == 200 else body["code"])
            assert set(codes) <= {"granted", *NOT_EXECUTED}, set(codes)

            async def serves() -> bool:
                return (await client.ask("get_lease", key="s/0/0"))[0] == 200

            await until(serves, 20.0, "a new leader to answer")
            for frame in range(10, 10 + FRAMES_AFTER_KILL):
                assert await answered(client, frame) == ["granted"] * WIDTH
            granted = 1 + FRAMES_AFTER_KILL
            told = await client.events(watch, WIDTH * granted)
            revisions = [event["revision"] for event in told]
            assert revisions == sorted(set(revisions))
            assert len(client.answers) > WIDTH * granted


@pytest.mark.process
async def test_a_node_that_is_told_to_stop_sends_its_streams_to_another(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path) as cluster:
        leader = await cluster.leader()
        async with stream(leader.http_port) as client:
            assert await answered(client, 0) == ["granted"] * WIDTH
            stopping = asyncio.ensure_future(cluster.stop(leader))
            code, reason = await client.closed()
            await stopping
        assert code == 1001
        others = [node for node in cluster.nodes.values() if node is not leader]
        [named] = [node for node in others if node.url in reason]
        async with stream(named.http_port) as client:
            replayed = await client.ask_all(*acquires(0))
            assert all(body.get("replayed") for _, body in replayed), replayed[0]
