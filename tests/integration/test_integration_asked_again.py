"""A caller that gave up on one node and asked again at another must not lose what the other one gave it."""

import asyncio
from pathlib import Path

import pytest
from history import History
from live_cluster import LiveCluster, until
from raw_http import HttpConnection, NoAnswer
from workload import Client, acquire_body, wire

pytestmark = pytest.mark.process


@pytest.mark.parametrize("wait_ms", [0, 2_000])
async def test_the_first_node_waking_up_does_not_give_up_what_the_second_has_granted(
    tmp_path: Path, wait_ms: int
) -> None:
    """The first node has the request in its buffers when it is stopped, and finds the caller gone when it
    wakes.
    """
    async with LiveCluster(tmp_path) as cluster:
        leader = await cluster.leader()
        first = next(node for node in cluster.nodes.values() if node is not leader)
        client = Client("c", [(leader.node_id, leader.url)], History())
        body = acquire_body("asked-twice", "key", 30_000, wait_ms=wait_ms)

        connection = await HttpConnection.open(first.url)
        await cluster.pause(first)
        with pytest.raises(NoAnswer):
            await connection.send(wire("acquire", body), 0.2)
        granted = await client.until_definite("acquire", body)
        assert granted.answer["status"] == "granted", granted
        lease = granted.answer["lease"]

        cluster.resume(first)
        await still_held(cluster, client, lease)
        client.close()


async def test_a_waiter_that_moved_to_another_node_keeps_its_place_and_its_grant(tmp_path: Path) -> None:
    """The poll at the first node is under way when that is stopped; the caller goes on polling at the
    leader.
    """
    async with LiveCluster(tmp_path) as cluster:
        leader = await cluster.leader()
        first = next(node for node in cluster.nodes.values() if node is not leader)
        client = Client("c", [(leader.node_id, leader.url)], History())
        held = await client.until_definite("acquire", acquire_body("holder", "key", 30_000))
        body = acquire_body("waiter", "key", 30_000, wait_ms=20_000)

        connection = await HttpConnection.open(first.url)
        poll = connection.send(wire("acquire", body), 30.0)

        async def queued() -> bool:
            call = await client.until_definite("queue", {"key": "key"})
            return bool(call.answer["waiters_total"])

        await until(queued, 5.0, "the waiter to be in the queue")
        await cluster.pause(first)
        connection.close()
        with pytest.raises(NoAnswer):
            await poll

        again = asyncio.ensure_future(client.until_definite("acquire", body, 10.0))
        other = Client("r", [(leader.node_id, leader.url)], History())
        await other.until_definite("release", {"lease_id": held.answer["lease"]["lease_id"]})
        granted = await again
        assert granted.answer["status"] == "granted", granted

        cluster.resume(first)
        await still_held(cluster, client, granted.answer["lease"])
        other.close()
        client.close()


async def still_held(cluster: LiveCluster, client: Client, lease: dict[str, object]) -> None:
    """The lease is the same when all nodes have caught up with each other and a second of entries has
    passed.
    """
    await cluster.ready()
    index = await cluster.caught_up()

    async def later() -> bool:
        renewed = await client.until_definite("renew", {"lease_id": lease["lease_id"]})
        assert renewed.outcome == "ok", f"the acknowledged lease was lost: {renewed.answer}"
        assert renewed.answer["lease"]["token"] == lease["token"]
        return await cluster.caught_up() >= index + 20

    await until(later, 20.0, "twenty more entries", 0.05)
