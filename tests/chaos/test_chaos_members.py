"""Stories of members that come and go, in the simulation, where every rule is held against every step."""

import asyncio
from dataclasses import replace
from typing import Any

from tenure_chaos.report import Tally, in_brief
from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed
from tenure_chaos.sim.stage import Stage, perform, play
from tenure_cluster.raft import RaftError
from tenure_cluster.raft.changes import Changed, ChangeRefused
from tenure_cluster.raft.membership import Add, Change, Remove, changed, encode_members


async def ask(stage: Stage, leader: SimNode, change: Change) -> Changed | RaftError:
    raft, told = leader.raft, stage.world.loop.create_future()
    assert raft is not None
    stage.world.loop.spawn(leader.process, lambda: raft.change_members(change, told.set_result))
    outcome: Changed | RaftError = await stage.within(15.0, told, f"an answer to {change}")
    return outcome


async def change(stage: Stage, wanted: Change) -> SimNode:
    """Have it changed by whoever leads, and again as long as that may help; the leader who did it."""
    for _ in range(100):
        leader = await stage.leader()
        outcome = await ask(stage, leader, wanted)
        if isinstance(outcome, Changed):
            return leader
        await asyncio.sleep(0.2)
    raise AssertionError(f"{wanted}: {outcome!r}")


def add(node: SimNode) -> Add:
    return Add(node.name, node.peer_address, f"http://{node.name}")


async def join(stage: Stage, name: str) -> SimNode:
    """A new node has become a voter."""
    node = stage.world.hosts[name]
    stage.world.start_node(node)
    await change(stage, add(node))
    await stage.until(lambda: name in stage.world.membership.voters, f"{name} votes")
    return node


async def leave(stage: Stage, node: SimNode) -> None:
    """A member is removed, and has learned of it."""
    leader = await stage.leader()
    if leader is node:
        raft = leader.raft
        assert raft is not None
        stage.world.loop.spawn(leader.process, lambda: raft.transfer(None, lambda outcome: None))
        await stage.leader(not_in=(node,))
    await change(stage, Remove(node.name))
    if node.process.alive:
        await stage.until(lambda: node.knows_removal and not node.process.alive, f"{node.name} has ended")


def test_a_lease_is_kept_while_every_node_is_replaced() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        actor = stage.actor("A")
        held = await actor.acquire("job", ttl_ms=10_000)
        for old, new in (("n1", "n4"), ("n2", "n5"), ("n3", "n6")):
            await join(stage, new)
            assert (await held.renew()).ok
            await leave(stage, stage.world.hosts[old])
            assert (await held.renew()).ok
        assert list(stage.world.nodes) == ["n4", "n5", "n6"]
        await stage.alike()
        assert stage.granted_at("job", held.token) < stage.now
        assert stage.events("expired", "job") == []
        assert held.held
        assert (await held.release()).ok

    world = play(story, spares=3, snapshot_entries=20)
    assert world.counts["member promoted"] == 3
    assert world.counts["removed node told so"] == 3


def test_a_node_that_was_removed_while_it_was_away_comes_back_and_disturbs_nobody() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.start()
        away = stage.others(leader)[0]
        stage.kill(away)
        await asyncio.sleep(1.0)
        await change(stage, Remove(away.name))
        leader = await stage.leader()
        assert leader.raft is not None
        term = leader.raft.status().term
        stage.world.start_node(away)
        await stage.until(lambda: away.knows_removal, "it is told")
        await asyncio.sleep(5.0)
        assert leader.raft.status().term == term
        assert not away.process.alive

    perform(story)


def test_a_change_whose_leader_is_cut_off_before_anybody_has_it_never_was() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.start()
        new = stage.world.hosts["n4"]
        stage.world.start_node(new)
        stage.cut_off(leader)
        raft, told = leader.raft, []
        assert raft is not None
        stage.world.loop.spawn(leader.process, lambda: raft.change_members(add(new), told.append))
        await stage.until(lambda: raft.membership.learners == ["n4"], "it counts for the leader at once")
        await stage.leader(not_in=(leader,))
        stage.mend()
        await stage.until(lambda: told, "the leader knows that it is none")
        await stage.until(lambda: raft.membership.learners == [], "the entry is cut off")
        assert raft.membership.names == ["n1", "n2", "n3"]
        # Asked again it comes about, with whatever of the log the node had by then.
        await join(stage, "n4")
        await stage.alike()

    perform(story, spares=1)


def test_a_learner_that_never_comes_is_no_matter() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await change(stage, add(stage.world.hosts["n4"]))
        leader = await stage.leader()
        stage.kill(stage.others(leader)[0])
        held = await stage.actor("A").acquire("job", ttl_ms=5_000)
        assert (await held.release()).ok
        assert stage.world.membership.learners == ["n4"]
        del stage.world.nodes["n4"]  # which was never started, and is not to be looked for at the end

    perform(story, spares=1)


def test_two_changes_at_once_are_not_made() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.start()
        await asyncio.sleep(1.0)
        raft, told = leader.raft, []
        assert raft is not None

        def both() -> None:
            for other in stage.others(leader)[:2]:
                raft.change_members(Remove(other.name), told.append)

        stage.world.loop.spawn(leader.process, both)
        await stage.until(lambda: len(told) == 2, "both are answered")
        kinds: list[Any] = [type(outcome) for outcome in told]
        assert sorted(kinds, key=str) == sorted([Changed, ChangeRefused], key=str)
        assert len(stage.world.membership.names) == 4

    perform(story, nodes=5)


def test_a_seed_with_changes_of_members_is_the_same_every_time() -> None:
    options = Options.for_seed(
        1, {"faults": "change members,kill one,jitter", "safety_s": "20", "fault_gap_s": "1"}
    )
    one, other = run_seed(1, options), run_seed(1, options)
    assert one.violations == other.violations == []
    assert one.trace_hash == other.trace_hash
    assert one.counts["fault change members"] > 0


EVERY_MEMBER = "every member replaced, from 3 to 5 to 3"


def test_a_cluster_of_three_becomes_one_of_five_and_three_others_are_left() -> None:
    report = run_seed(
        2, Options.for_seed(2, {"faults": "replace all members", "safety_s": "60", "nodes": "3"})
    )
    assert report.violations == []
    counts = report.counts
    assert counts[EVERY_MEMBER] == 1
    assert counts["member added"] == counts["member promoted"] == counts["member removed"] == 3
    assert counts["name of a removed member refused"] == 3
    assert (
        dict(in_brief(Tally(counts=counts)))["clusters of 3 that became 5 and 3 again, every member another"]
        == "1"
    )


def test_a_name_that_is_given_again_breaks_a_rule() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.start()
        gone = stage.others(leader)[0]
        await leave(stage, gone)
        leader = await stage.leader()
        assert leader.raft is not None
        assert leader.raft._consensus is not None
        rules, consensus = stage.world.rules.members, leader.raft._consensus
        again = changed(rules.of(consensus), add(gone), consensus.replica.last_index + 1)
        rules.appending(leader.name, encode_members(again), consensus)
        assert [found.rule for found in stage.world.violations] == ["names are not given again"]
        stage.world.violations.clear()

    play(story)


def test_faults_can_be_asked_for_besides_those_that_a_seed_draws() -> None:
    drawn = [Options.for_seed(seed) for seed in range(50)]
    also = [Options.for_seed(seed, {"also": "change members,replace all members"}) for seed in range(50)]
    for plain, more in zip(drawn, also, strict=True):
        assert set(more.faults) == {*plain.faults, "change members", "replace all members"}
        assert more.spares > more.nodes == plain.nodes
        assert replace(more, faults=plain.faults, also=(), spares=plain.spares) == plain
    assert len({options.spares for options in also}) > 4
