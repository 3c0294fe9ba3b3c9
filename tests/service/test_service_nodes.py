"""Every node describes itself to the one that is asked."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from service_cluster import Part, cluster

from tenure_cluster import __version__
from tenure_cluster.service import peer_messages
from tenure_cluster.service.peer_messages import BadMessage, Describe, Described
from tenure_cluster.service.replies import NodesReply, OwnBody

OWN = OwnBody(
    role="leader",
    term=3,
    last_index=9,
    applied_index=8,
    ready=True,
    reason="serving",
    version="1",
    disk_free_bytes=1 << 40,
    disk_reserve_bytes=1 << 20,
)


async def settled(node: Part, size: int = 3) -> NodesReply:
    """What `node` says once it has reached so many nodes, the leader among them."""
    async with asyncio.timeout(20):
        while True:
            reply = await node.service.nodes()
            reached = {each.id for each in reply.nodes if each.reached}
            if len(reached) == size and reply.leader in reached:
                return reply
            await asyncio.sleep(0.01)


async def test_any_node_tells_role_lag_disk_and_version_of_all(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=3) as three:
        leader = await three.leader()
        for name, node in three.parts.items():
            reply = await settled(node)
            assert (reply.node, reply.leader) == (name, leader.node_id)
            assert [each.id for each in reply.nodes] == three.ids
            for each in reply.nodes:
                assert isinstance(each.about, OwnBody)
                assert (each.about.role == "leader") is (each.id == leader.node_id)
                assert each.about.version == __version__
                assert each.about.disk_free_bytes > 0
                assert each.lag is not None
                assert each.voter


async def test_a_node_that_is_cut_off_is_told_as_not_reached(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=3) as three:
        follower = await three.follower()
        three.isolate(follower)
        leader = await three.leader(but=follower)
        reply = await settled(leader, size=2)
        [lost] = [each for each in reply.nodes if not each.reached]
        assert (lost.id, lost.lag, lost.about) == (follower.node_id, None, msgspec.UNSET)


async def test_a_node_that_is_silent_holds_up_nobody_for_long(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=3) as three:
        follower = await three.follower()
        await settled(follower)
        for link in three.around(follower):
            link.clog()
        reply = await settled(await three.leader(but=follower), size=2)
        assert [each.id for each in reply.nodes if not each.reached] == [follower.node_id]


async def test_those_who_ask_at_the_same_time_share_the_questions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as one:
        node = one.parts["n1"]
        replies = await asyncio.gather(*(node.service.nodes() for _ in range(20)))
        assert all(reply is replies[0] for reply in replies)
        assert await node.service.nodes() is not replies[0]


async def test_who_waits_gets_an_answer_when_the_node_stops(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=3) as three:
        follower = await three.follower()
        await settled(follower)
        for link in three.around(follower):
            link.clog()
        waits = asyncio.create_task(follower.service.nodes())
        await asyncio.sleep(0)  # so that the question is asked before the end begins
        await follower.stop()
        assert [each.id for each in (await waits).nodes if each.reached] == [follower.node_id]


async def test_one_who_leaves_takes_the_answer_from_nobody_else(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=3) as three:
        leader = await three.leader()
        left, stays = (asyncio.create_task(leader.service.nodes()) for _ in range(2))
        await asyncio.sleep(0)
        left.cancel()
        assert len((await stays).nodes) == 3
        assert left.cancelled()


def test_a_description_survives_the_link_and_may_grow() -> None:
    assert peer_messages.decode(peer_messages.encode_describe(4)) == Describe(4)
    described = peer_messages.decode(peer_messages.encode_described(4, OWN))
    assert isinstance(described, Described)
    assert peer_messages.own_of(described) == OWN
    grown = msgspec.msgpack.encode({**msgspec.to_builtins(OWN), "of_a_later_version": 1})
    assert peer_messages.own_of(Described(4, grown)) == OWN


def test_what_is_no_description_is_refused() -> None:
    with pytest.raises(BadMessage):
        peer_messages.own_of(Described(4, b"\xc1"))
