"""A node says that it is ready only when it has what the cluster had when it began."""

import asyncio

from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.stage import Stage, play

WRITES = 400
LOOK_S = 0.0005


async def _ready_before_it_has(stage: Stage, node: SimNode, index: int) -> list[int]:
    """How far a node was whenever it said that it was ready, until it has that entry."""
    early = []
    while node.raft is None or node.raft.status().applied_index < index:
        if node.up and node.service is not None and node.service.ready() and node.raft is not None:
            early.append(node.raft.status().applied_index)
        await asyncio.sleep(LOOK_S)
        assert stage.now < 600.0, "it never catches up"
    return early


async def _comes_back(stage: Stage) -> SimNode:
    """A follower that was down while much was written; it is not ready before it has that."""
    leader = await stage.start()
    behind = stage.others(leader)[0]
    stage.kill(behind)
    held = await stage.actor("A").acquire("k", ttl_ms=600_000)
    for number in range(WRITES):
        await held.commit(f"{number}-{'x' * 1_000}")
    assert leader.raft is not None
    index = leader.raft.status().commit_index
    stage.restart(behind)
    assert await _ready_before_it_has(stage, behind, index) == []
    return behind


def test_a_node_that_starts_is_not_ready_before_it_has_caught_up() -> None:
    """By its log, piece by piece, over lines that take their time."""

    async def story(stage: Stage) -> None:
        behind = await _comes_back(stage)
        await stage.until(lambda: behind.service is not None and behind.service.ready(), "it is ready")

    play(story, link_delay_s=(0.02, 0.05))


def test_a_node_that_gets_a_snapshot_is_not_ready_before_it_has_it_and_what_followed() -> None:
    async def story(stage: Stage) -> None:
        behind = await _comes_back(stage)
        assert stage.world.counts["snapshot installed"] > 0
        await stage.until(lambda: behind.service is not None and behind.service.ready(), "it is ready")

    play(story, link_delay_s=(0.02, 0.05), snapshot_entries=50, tail_entries=10, piece_bytes=512)


def test_a_node_that_has_caught_up_stays_ready_while_others_write() -> None:
    """Being an entry behind is what a follower is."""

    async def story(stage: Stage) -> None:
        leader = await stage.start()
        held = await stage.actor("A").acquire("k", ttl_ms=600_000)
        await stage.until(lambda: all(_is_ready(node) for node in stage.others(leader)), "all are ready")
        for number in range(20):
            await held.commit(f"{number}")
            assert all(_is_ready(node) for node in stage.others(leader))

    play(story)


def _is_ready(node: SimNode) -> bool:
    return node.service is not None and bool(node.service.ready())
