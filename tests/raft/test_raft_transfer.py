"""The office of a leader is handed over: nothing is lost by it, and it fails without harm."""

import asyncio
from pathlib import Path

import pytest
from raft_handkit import HandNet
from raft_testkit import Cluster, Member, cluster_of, eventually

from tenure_cluster.raft import Applied, NotExecuted, NotLeader, Outcome, RaftError
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.election import Election, Move
from tenure_cluster.raft.transfer import TransferFailed, Transferred, Transfers

# -- the rules of the election, without time or sockets


def election() -> Election:
    return Election(peers=("n2", "n3"), timeout_min_s=0.5, now_s=-1.0, random=lambda: 0.5)


def test_a_node_that_is_ordered_to_campaigns_without_asking_and_only_in_that_term() -> None:
    ordered = election()
    ordered.order(7)
    assert ordered.next_move(0.0, 7) is Move.CAMPAIGN
    assert ordered.is_ordered(8)
    assert not ordered.is_ordered(7)
    assert not ordered.is_ordered(9)
    assert ordered.next_move(0.0, 8) is Move.ASK, "if it lost, the next election is one as any other"


def led_by_n1() -> HandNet:
    """n1 has just been heard by both others, and its no-op is committed."""
    net = HandNet(3)
    net.elect("n1", "n2", "n3")
    net.pump()
    assert net["n1"].leads
    return net


def hand_over(net: HandNet, source: str, target: str) -> None:
    net[source].core.hand_over(target)
    net[source].round()
    net.deliver(source, target)


def test_those_who_hear_their_leader_vote_for_whom_it_has_ordered_to_campaign() -> None:
    net = led_by_n1()
    hand_over(net, "n1", "n2")
    [request] = [m for m in net.sent("n2", "n3") if isinstance(m, wire.VoteRequest)]
    assert request.handed_over
    net.deliver("n2", "n3")
    net.deliver("n3", "n2")
    assert net["n2"].leads
    assert net["n2"].term == net["n1"].term + 1


def test_without_the_order_they_vote_for_nobody_else() -> None:
    net = led_by_n1()
    net["n2"].campaign()
    net.deliver("n2", "n3")
    assert [m for m in net.sent("n3", "n2") if isinstance(m, wire.Vote)] == []


def test_a_log_that_is_behind_is_not_elected_by_an_order_either() -> None:
    net = led_by_n1()
    net["n1"].propose(b"x")
    net["n1"].round()
    net.deliver("n1", "n3")
    net.deliver("n3", "n1")
    net.queues["n1", "n2"].clear()
    net.inject("n1", "n2", wire.TimeoutNow(net["n1"].term))
    net.deliver("n2", "n3")
    net.deliver("n2", "n1")
    net.deliver("n3", "n2")
    net.deliver("n1", "n2")
    assert not net["n2"].leads


@pytest.mark.parametrize("of_term", [-1, 1])
def test_an_order_of_another_term_is_ignored(of_term: int) -> None:
    net = led_by_n1()
    term = net["n1"].term
    net.inject("n1", "n2", wire.TimeoutNow(term + of_term))
    assert net["n2"].term == term


def test_an_order_of_anybody_but_the_leader_is_ignored() -> None:
    net = led_by_n1()
    term = net["n1"].term
    net.inject("n3", "n2", wire.TimeoutNow(term))
    net.inject("n3", "n1", wire.TimeoutNow(term))
    assert net["n1"].leads
    assert net["n2"].term == term


def test_a_node_that_is_elected_again_has_handed_nothing_over() -> None:
    net = led_by_n1()
    told: list[Transferred | RaftError] = []
    transfers = Transfers(1.0, lambda done, outcome: done(outcome))
    core = net["n1"].core
    transfers.begin(core, ["n2", "n3"], "n2", net.clock.now_s, told.append)
    transfers.advance(core, net.clock.now_s)
    net["n1"].round()
    net.deliver("n1", "n2")
    net.queues["n2", "n3"].clear()
    net.deliver("n2", "n1")
    assert not net["n1"].leads, "the one whom it asked campaigns"
    net.crash("n2")
    transfers.standing_changed(core, office_ended=True)
    net.elect("n1", "n3")
    transfers.standing_changed(core, office_ended=False)
    assert [type(outcome) for outcome in told] == [TransferFailed]


# -- clusters on real sockets


async def transfer(member: Member, to: str | None = None) -> Transferred | RaftError:
    told: asyncio.Future[Transferred | RaftError] = asyncio.get_running_loop().create_future()
    member.node.transfer(to, told.set_result)
    async with asyncio.timeout(10):
        return await told


def follower_of(cluster: Cluster, leader: Member) -> Member:
    return next(member for member in cluster.up if member is not leader)


async def all_linked(cluster: Cluster) -> Member:
    leader = await cluster.leader()
    others = len(cluster.members) - 1
    await eventually(lambda: len(leader.node.status().connected) == others, "a link to every follower")
    return leader


async def test_the_member_that_was_named_leads_in_the_next_term(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = await all_linked(cluster)
        term, target = leader.node.status().term, follower_of(cluster, leader)
        assert await transfer(leader, target.node_id) == Transferred(target.node_id, term + 1)
        assert await cluster.leader() is target
        await cluster.put(b"after")
        await cluster.agree()
        assert target.machine.values() == [b"before", b"after"]


async def test_without_a_name_it_goes_to_a_follower_that_is_up_to_date(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await all_linked(cluster)
        down = follower_of(cluster, leader)
        await down.kill()
        await cluster.put(b"x")
        [up] = [member for member in cluster.up if member is not leader]
        await eventually(lambda: leader.node.status().connected == [up.node_id], "the dead node's link ends")
        outcome = await transfer(leader)
        assert isinstance(outcome, Transferred)
        assert outcome.leader_id == up.node_id


async def test_under_load_every_command_is_applied_once_or_refused_as_not_executed(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await all_linked(cluster)
        outcomes: dict[bytes, Outcome] = {}
        stopping = False

        async def load(worker: int) -> None:
            number = 0
            while not stopping:
                command = b"%d/%d" % (worker, number)
                number += 1
                for member in sorted(cluster.up, key=lambda member: not member.node.is_leader()):
                    outcomes[command] = await member.propose(command)
                    if isinstance(outcomes[command], Applied):
                        break
                await asyncio.sleep(0)

        workers = [asyncio.create_task(load(worker)) for worker in range(16)]
        for _ in range(4):
            applied = len(outcomes)
            await eventually(lambda applied=applied: len(outcomes) > applied + 50, "load")
            leader = await all_linked(cluster)
            assert isinstance(await transfer(leader), Transferred)
        stopping = True
        await asyncio.gather(*workers)
        await cluster.agree()
        unknown = [outcome for outcome in outcomes.values() if not isinstance(outcome, Applied | NotExecuted)]
        assert unknown == []
        applied_commands = {command for command, outcome in outcomes.items() if isinstance(outcome, Applied)}
        values = cluster.up[0].machine.values()
        assert sorted(values) == sorted(applied_commands)


async def test_a_target_that_can_not_be_reached_is_given_up_and_what_waited_goes_on(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = await all_linked(cluster)
        target = follower_of(cluster, leader)
        cluster.proxies[leader.node_id, target.node_id].clog()
        term = leader.node.status().term
        told = asyncio.create_task(transfer(leader, target.node_id))
        await asyncio.sleep(0)
        # It may be level by what the leader knows, and then is told by what never arrives.
        waited = leader.propose(b"waited")
        failed = await told
        assert isinstance(failed, TransferFailed)
        assert isinstance(await waited, Applied)
        assert leader.node.serving()
        assert leader.node.status().term == term
        cluster.heal()
        await cluster.agree()


async def test_what_can_not_be_is_refused_at_once(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await all_linked(cluster)
        other = follower_of(cluster, leader)
        assert isinstance(await transfer(other, leader.node_id), NotLeader)
        assert "not another member" in str(await transfer(leader, "n9"))
        assert await transfer(leader, leader.node_id) == Transferred(
            leader.node_id, leader.node.status().term
        )
        told: list[Transferred | RaftError] = []
        leader.node.transfer(other.node_id, told.append)
        leader.node.transfer(None, told.append)
        assert "is being handed over" in str(told[0])
        await eventually(lambda: len(told) == 2)
        assert isinstance(told[1], Transferred)


async def test_a_lone_node_has_nobody_to_hand_over_to(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        assert isinstance(await transfer(leader), TransferFailed)
        assert not await leader.node.hand_over(1.0)
        await cluster.put(b"x")


async def test_a_node_that_is_about_to_stop_lets_another_one_lead_first(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await all_linked(cluster)
        term = leader.node.status().term
        assert await leader.node.hand_over(5.0)
        await leader.stop()
        successor = await cluster.leader()
        assert successor.node.status().term == term + 1, "there was no other election"


async def test_the_clock_of_the_cluster_goes_on_from_the_last_stamp(tmp_path: Path) -> None:
    """Deadlines are stamps and a time: were the new leader's clock ahead of what the log has seen by more
    than the time that has passed, leases would be shortened."""
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"x")
        leader = await all_linked(cluster)
        before_s, stamp_ms = asyncio.get_running_loop().time(), leader.machine.time_ms
        assert isinstance(await transfer(leader), Transferred)
        successor = await cluster.leader()
        now_ms = successor.node.now_ms()
        assert stamp_ms <= now_ms
        assert now_ms - stamp_ms <= (asyncio.get_running_loop().time() - before_s) * 1000 + 1
