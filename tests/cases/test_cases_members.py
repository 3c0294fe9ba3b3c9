"""What a change of members is to those who hold."""

import asyncio

import pytest
from cases_sabotage import offices_begin_with_a_leap

from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.stage import Stage, play
from tenure_cluster.raft.changes import Changed
from tenure_cluster.raft.membership import Add, Change, Remove

TTL_MS = 20_000
WRITES = 60
"""So many that a new node gets a snapshot."""

REPLACED = (("n1", "n4"), ("n2", "n5"), ("n3", "n6"))


async def ordered(stage: Stage, change: Change) -> None:
    """Have whoever leads make the change, and ask again while it can't."""
    for _ in range(100):
        leader = await stage.leader()
        raft, told = leader.raft, stage.world.loop.create_future()
        assert raft is not None
        stage.world.loop.spawn(leader.process, raft.change_members, change, told.set_result)
        if isinstance(await stage.within(15.0, told, f"an answer to {change}"), Changed):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{change} was never made")


async def replaced(stage: Stage, old: SimNode, new: SimNode) -> None:
    """The new node votes, and the old one is gone; a leader hands its office over first."""
    stage.world.start_node(new)
    await ordered(stage, Add(new.name, new.peer_address, f"http://{new.name}"))
    await stage.until(lambda: new.name in stage.world.membership.voters, f"{new.name} votes")
    leader = await stage.leader()
    if leader is old:
        raft = leader.raft
        assert raft is not None
        stage.world.loop.spawn(leader.process, raft.transfer, None, lambda outcome: None)
        await stage.leader(not_in=(old,))
    await ordered(stage, Remove(old.name))


def deadlines(stage: Stage, session_id: str) -> dict[str, int]:
    """By node: when the session ends, as that node has it."""
    tables = {
        node.name: node.replica.table for node in stage.world.nodes.values() if node.up and node.replica
    }
    return {
        name: session.deadline_ms
        for name, table in tables.items()
        for session in table.sessions.values()
        if session.session_id == session_id
    }


async def every_node_is_replaced(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    renewed = await a.acquire("renewed", ttl_ms=TTL_MS)
    renewed.keep()
    for number in range(WRITES):
        await renewed.commit(str(number))
    left_alone = await b.acquire("left alone", ttl_ms=TTL_MS)
    promised_ms = max(deadlines(stage, left_alone.session_id).values())
    for old, new in REPLACED:
        await replaced(stage, stage.world.hosts[old], stage.world.hosts[new])
        await asyncio.sleep(1.0)
        ended = [kind for kind in ("expired", "broken") if stage.events(kind, "left alone")]
        assert ended == [], f"the lease that nobody renews has ended early, {old} was replaced"
        assert set(deadlines(stage, left_alone.session_id).values()) == {promised_ms}
        assert renewed.held, f"the lease that is renewed is lost, {old} was replaced"
    assert list(stage.world.nodes) == [new for _, new in REPLACED]
    assert stage.now < TTL_MS / 1000, "the replacing took longer than the lease, and shows nothing"
    [(expiry, _)] = await stage.until(lambda: stage.events("expired", "left alone"), "it ends in the end")
    assert expiry.at_ms >= promised_ms
    assert stage.events("expired", "renewed") == []
    assert renewed.held
    await stage.alike()


def test_a_change_of_members_shortens_no_deadline() -> None:
    """T6: every node is replaced by a new one. A lease that is renewed lives on, and one that is not has the
    deadline that it had, on the new nodes as on the old ones.
    """
    world = play(every_node_is_replaced, spares=3, snapshot_entries=20, tail_entries=5)
    assert world.counts["member promoted"] == 3
    assert world.counts["snapshot installed"] > 0


def test_new_leaders_that_are_ahead_of_the_time_end_leases_early(monkeypatch: pytest.MonkeyPatch) -> None:
    offices_begin_with_a_leap(monkeypatch)
    with pytest.raises(AssertionError, match="ended early"):
        play(every_node_is_replaced, spares=3, snapshot_entries=20, tail_entries=5)
