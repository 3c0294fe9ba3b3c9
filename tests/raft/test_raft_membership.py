"""Members are added, promoted, removed and readdressed, one at a time."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from raft_handkit import OPTIONS, HandNet
from raft_testkit import QUICK, Cluster, Member, cluster_of, eventually

from tenure_cluster.raft import NotLeader, RaftError
from tenure_cluster.raft.changes import CAUGHT_UP_ENTRIES, Changed, ChangeRefused
from tenure_cluster.raft.members_file import NodeRemoved
from tenure_cluster.raft.membership import (
    Add,
    Change,
    MemberInfo,
    Members,
    Membership,
    Promote,
    Readdress,
    Remove,
    bootstrap,
    changed,
    decode_members,
    encode_members,
    for_snapshot,
    of_snapshot,
)
from tenure_cluster.raft.types import RaftStatus
from tenure_cluster.raft.vouching import Vouching

CALM = msgspec.structs.replace(
    QUICK, election_timeout_min_ms=600, election_timeout_max_ms=1_200, heartbeat_ms=60
)
"""So that a loaded machine has no more elections than the test asks for."""

THREE = bootstrap(["n1", "n2", "n3"])
FOUR = changed(THREE, Add("n4", "h4:1", "http://h4"), 10)

# -- the members along a log


def test_an_entry_says_all_members_as_they_are_from_it_on() -> None:
    assert decode_members(encode_members(FOUR)) == FOUR
    assert decode_members(b"\x01") is None
    assert FOUR.names == ["n1", "n2", "n3", "n4"]
    assert (FOUR.voters, FOUR.learners) == (["n1", "n2", "n3"], ["n4"])
    promoted = changed(FOUR, Promote("n4"), 12)
    assert promoted.voters == ["n1", "n2", "n3", "n4"]
    assert promoted.get("n4") == MemberInfo("n4", "h4:1", "http://h4", True)
    moved = changed(promoted, Readdress("n1", "h1:2", "http://h1"), 13)
    assert moved.get("n1") == MemberInfo("n1", "h1:2", "http://h1", True)
    less = changed(moved, Remove("n2"), 14)
    assert (less.names, less.removed, less.index) == (["n1", "n3", "n4"], ("n2",), 14)


def test_an_entry_counts_at_once_and_one_that_is_cut_off_never_did() -> None:
    members = Members("n4", THREE)
    assert not members.votes
    members.added(encode_members(FOUR), 10)
    members.added(encode_members(changed(FOUR, Promote("n4"), 12)), 12)
    assert members.votes
    assert members.other_voters == ["n1", "n2", "n3"]
    members.cut(11)
    assert members.current == FOUR
    assert not members.votes
    members.cut(9)
    assert members.current == THREE
    members.cut(0)
    assert members.current == THREE


def test_what_counted_at_an_earlier_entry_is_told_until_it_is_forgotten() -> None:
    members = Members("n1", THREE)
    members.added(encode_members(FOUR), 10)
    assert members.at(9) == THREE
    assert members.at(10) == members.at(100) == FOUR
    members.forget(50)
    assert members.base == members.current == FOUR


def test_a_log_is_read_back_behind_what_its_snapshot_has() -> None:
    after = changed(FOUR, Remove("n1"), 20)
    log = [(encode_members(FOUR), 10, 1), (b"\x01", 11, 2), (encode_members(after), 20, 2)]
    whole, behind = Members("n2", THREE), Members("n2", FOUR)
    whole.replay(log)
    behind.replay(log)
    assert whole.current == behind.current == after
    assert behind.base == FOUR


def test_a_snapshot_carries_the_members_and_one_of_before_any_change_carries_none() -> None:
    assert of_snapshot(for_snapshot(FOUR)) == FOUR
    assert for_snapshot(THREE) == ()
    assert of_snapshot(()) is None
    with pytest.raises(msgspec.DecodeError):
        of_snapshot(("n1",))


# -- without sockets and time


def test_a_leader_counts_a_voter_from_the_entry_on_and_a_learner_never() -> None:
    net = HandNet(3)
    net.elect("n1", "n2")
    net.pump()
    core = net["n1"].core
    core.append(encode_members(changed(core.members.current, Add("n4", "", ""), net["n1"].last + 1)))
    assert core.voter_count == 3
    net.pump("n1", "n2", rounds=3)
    assert net["n1"].commit == net["n1"].last, "two of three, and the learner is not missed"
    core.append(encode_members(changed(core.members.current, Promote("n4"), net["n1"].last + 1)))
    assert core.voter_count == 4
    before = net["n1"].commit
    net.pump("n1", "n2", rounds=3)
    assert net["n1"].commit == before, "two of four are no majority"
    net.pump()
    assert net["n1"].commit == net["n1"].last


def test_a_member_that_is_cut_off_with_its_entry_is_none() -> None:
    net = HandNet(3)
    net.elect("n1", "n2")
    net.pump()
    net.isolate("n1")
    core = net["n1"].core
    core.append(encode_members(changed(core.members.current, Remove("n3"), net["n1"].last + 1)))
    net["n1"].round(tick=True)
    assert core.members.current.names == ["n1", "n2"]
    net.elect("n2", "n3")
    net.connect_all()
    net.pump(rounds=12)
    assert not net["n1"].leads
    assert core.members.current.names == ["n1", "n2", "n3"]
    assert {node.id for node in core.replica.otherNodes} == {"n2", "n3"}


def test_who_is_no_voter_does_not_campaign_and_votes_all_the_same() -> None:
    net = HandNet(3)
    net.elect("n1", "n2")
    net.pump()
    core = net["n1"].core
    core.append(encode_members(changed(core.members.current, Remove("n3"), net["n1"].last + 1)))
    net.pump()
    third = net["n3"]
    third.core.members.restart(bootstrap(["n1", "n2"]))
    third.core._note_members()
    term = third.term
    third.campaign()
    assert third.term == term
    assert third.core.due_s() == float("inf")


def test_members_survive_a_restart_and_a_snapshot() -> None:
    options = msgspec.structs.replace(OPTIONS, snapshot_entries=5)
    net = HandNet(3, options=options)
    net.elect("n1", "n2")
    core = net["n1"].core
    core.append(encode_members(changed(core.members.current, Readdress("n3", "h:1", ""), net["n1"].last + 1)))
    net.pump()
    for _ in range(4):
        net["n1"].propose(*(b"%d" % n for n in range(4)))
        net.pump()
    assert net["n2"].core.members.current.get("n3") == MemberInfo("n3", "h:1", "")
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    carried = of_snapshot(info.members)
    assert carried is not None
    assert carried.get("n3") == MemberInfo("n3", "h:1", "")


# -- clusters on real sockets


async def ask(member: Member, wanted: Change) -> Changed | RaftError:
    told: asyncio.Future[Changed | RaftError] = asyncio.get_running_loop().create_future()
    member.node.change_members(wanted, told.set_result)
    async with asyncio.timeout(40):
        return await told


async def change(cluster: Cluster, wanted: Change) -> Changed:
    """Ask the leader, and again as long as the answer may be another one later."""
    last: Changed | RaftError | None = None
    deadline_s = asyncio.get_running_loop().time() + 40
    while asyncio.get_running_loop().time() < deadline_s:
        last = await ask(await cluster.leader(), wanted)
        if isinstance(last, Changed):
            return last
        await asyncio.sleep(0.02)
    raise AssertionError(f"{wanted}: {last!r}")


async def settled(cluster: Cluster) -> Member:
    """The leader, when it has links to all that are up and they have answered."""
    leader = await cluster.leader()
    others = [member.node_id for member in cluster.up if member is not leader]
    await eventually(lambda: set(status(leader).connected) >= set(others), "links to all that are up")
    await leader.node.read_barrier()
    return leader


def status(member: Member) -> RaftStatus:
    return member.node.status()


def add(member: Member) -> Add:
    return Add(member.node_id, f"127.0.0.1:{member.port}", f"http://{member.node_id}")


async def joined(cluster: Cluster, name: str, directory: Path) -> Member:
    """A new node that has become a voter."""
    member = await cluster.joining(name, directory)
    await change(cluster, add(member))
    await eventually(
        lambda: any(name in leader.node.membership.voters for leader in cluster.serving()),
        f"{name} to be a voter",
    )
    return member


async def test_a_new_node_catches_up_and_becomes_a_voter(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        for n in range(30):
            await cluster.put(b"%d" % n)
        new = await cluster.joining("n4", tmp_path)
        outcome = await change(cluster, add(new))
        assert "n4" in outcome.membership.names
        leader = await cluster.leader()
        await eventually(lambda: "n4" in leader.node.membership.voters)
        await cluster.put(b"last")
        await cluster.agree()
        assert new.machine.values()[-1] == b"last"
        assert len(new.machine.values()) == 31
        assert new.node.membership == leader.node.membership


async def test_a_new_node_is_brought_up_by_a_snapshot(tmp_path: Path) -> None:
    options = msgspec.structs.replace(CALM, snapshot_entries=20, transfer_window_bytes=2000)
    async with cluster_of(tmp_path, 3, options) as cluster:
        for n in range(3 * CAUGHT_UP_ENTRIES):
            await cluster.put(b"%d" % n + bytes(100))
        leader = await cluster.leader()
        await eventually(lambda: leader.node._journal is not None and leader.node._journal[0][1] > 1)
        new = await joined(cluster, "n4", tmp_path)
        await cluster.agree()
        assert new.machine.restored == 1


async def test_every_node_of_three_is_replaced_while_commands_go_on(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        written = []
        for n, (old, new) in enumerate([("n1", "n4"), ("n2", "n5"), ("n3", "n6")]):
            for part in range(10):
                written.append(b"%d/%d" % (n, part))
                await cluster.put(written[-1])
            await joined(cluster, new, tmp_path)
            leader = await cluster.leader()
            leaving = cluster.members[old]
            if leader is leaving:
                assert await leader.node.hand_over(10.0)
            await change(cluster, Remove(old))
            await eventually(lambda leaving=leaving: leaving.removed, f"{old} to know that it is removed")
            await leaving.kill()
        await cluster.put(b"last")
        await cluster.agree()
        assert sorted(member.node_id for member in cluster.up) == ["n4", "n5", "n6"]
        for member in cluster.up:
            assert member.node.membership.names == ["n4", "n5", "n6"]
            assert set(member.machine.values()) == {*written, b"last"}
        # They find one another again by the addresses that the log has.
        for member in list(cluster.up):
            await member.kill()
        for name in ("n4", "n5", "n6"):
            await cluster.members[name].start()
        await cluster.put(b"after")
        await cluster.agree()


def test_a_stranger_is_taken_for_a_member_on_the_word_of_a_known_one() -> None:
    vouching = Vouching()
    assert not vouching.vouches("n9", 0)
    vouching.told("n1", ["n1", "n2", "n9"], 20)
    assert vouching.vouches("n9", 10)
    assert not vouching.vouches("n9", 20), "this node has that entry itself, and knows better"
    vouching.keep({"n2"})
    assert not vouching.vouches("n9", 10)


def test_strangers_make_a_node_ask_its_members_in_turn_and_not_too_often() -> None:
    vouching = Vouching()
    assert [vouching.whom_to_ask(["n2", "n1"], float(second)) for second in range(4)] == [
        *("n1", "n2", "n1", "n2")
    ]
    assert vouching.whom_to_ask(["n1", "n2"], 3.5) is None
    assert Vouching().whom_to_ask([], 0.0) is None


async def test_a_node_that_is_behind_lets_a_new_leader_in_by_the_word_of_another(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        for member in cluster.up:
            member.node._transport.admission.strangers_need_a_word = True
        leader = await settled(cluster)
        behind, third = [member for member in cluster.up if member is not leader]
        for source in (leader, third):
            cluster.proxies[source.node_id, behind.node_id].clog()
        new = await cluster.joining("n4", tmp_path)
        await change(cluster, add(new))
        await eventually(lambda: "n4" in leader.node.membership.voters)
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        leader.node.transfer("n4", told.set_result)
        await told
        await eventually(new.node.serving, "the new node to lead")
        cluster.heal()
        await cluster.put(b"x")
        await cluster.agree()
        assert behind.node.membership.names == ["n1", "n2", "n3", "n4"]


async def test_a_voter_that_has_lost_its_data_is_not_let_in_as_a_node_that_joins(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        new = await joined(cluster, "n4", tmp_path)
        await new.kill()
        shutil.rmtree(new.directory)
        await new.start()
        leader = await cluster.leader(member for member in cluster.up if member is not new)
        await cluster.put(b"x")
        await asyncio.sleep(0.3)
        assert new.node.membership.names == []
        assert not new.node.status().connected
        await change(cluster, Remove("n4"))
        assert "n4" not in leader.node.membership.names


async def test_one_node_becomes_three(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, CALM) as cluster:
        await cluster.put(b"alone")
        await joined(cluster, "n2", tmp_path)
        await joined(cluster, "n3", tmp_path)
        first = await settled(cluster)
        await cluster.put(b"together")
        await cluster.agree()
        await first.kill()
        await cluster.put(b"without the first")
        await cluster.agree()
        assert all(member.node.membership.voters == ["n1", "n2", "n3"] for member in cluster.up)


async def test_a_removed_node_disturbs_nobody_and_does_not_start_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        await cluster.put(b"x")
        leader = await cluster.leader()
        out = next(member for member in cluster.up if member is not leader)
        term = status(leader).term
        await out.kill()
        await eventually(lambda: out.node_id not in status(leader).connected)
        await change(cluster, Remove(out.node_id))
        # It has heard nothing of that; its log says that it is a member.
        await out.start()
        await eventually(lambda: out.removed, "it is told")
        assert out.node.membership.names == ["n1", "n2", "n3"]
        await cluster.put(b"y")
        assert status(leader).term == term
        out.node.remember_removal(out.removed[0])
        await out.kill()
        with pytest.raises(NodeRemoved, match="removed from the cluster"):
            await out.start()
        out.raft = None


async def test_what_would_lose_the_living_majority_is_refused(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        await cluster.put(b"x")
        leader = await settled(cluster)
        dead, alive = [member for member in cluster.up if member is not leader]
        await dead.kill()
        await eventually(lambda: dead.node_id not in status(leader).connected)
        refused = await ask(leader, Remove(alive.node_id))
        assert isinstance(refused, ChangeRefused)
        assert leader.node.membership.names == ["n1", "n2", "n3"]
        await change(cluster, Remove(dead.node_id))
        await cluster.put(b"y")


async def test_what_can_not_be_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        await cluster.put(b"x")
        leader = await settled(cluster)
        other, third = [member for member in cluster.up if member is not leader]
        assert isinstance(await ask(other, Remove("n1")), NotLeader)
        unknown = await ask(leader, Remove("n9"))
        assert isinstance(unknown, ChangeRefused)
        assert unknown.code == "no_member"
        again = await ask(leader, Add(other.node_id, "h:1", "http://h"))
        assert isinstance(again, ChangeRefused)
        assert again.code == "member_exists"
        itself = await ask(leader, Remove(leader.node_id))
        assert isinstance(itself, ChangeRefused)
        assert "leads" in str(itself)
        first = await change(cluster, Remove(third.node_id))
        assert await change(cluster, Remove(third.node_id)) == first, "asked again, it is so already"
        back = await ask(await cluster.leader(), Add(third.node_id, "h:1", "http://h"))
        assert isinstance(back, ChangeRefused)
        assert "not given again" in str(back)


async def test_one_change_at_a_time(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 5, CALM) as cluster:
        await cluster.put(b"x")
        leader = await settled(cluster)
        followers = [member for member in cluster.up if member is not leader]
        told: list[Changed | RaftError] = []
        for member in followers[:2]:
            leader.node.change_members(Remove(member.node_id), told.append)
        await eventually(lambda: len(told) == 2)
        assert sorted(isinstance(outcome, Changed) for outcome in told) == [False, True]
        assert len(leader.node.membership.names) == 4


async def test_a_dead_learner_holds_nothing_up_and_can_be_taken_out(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, CALM) as cluster:
        await cluster.put(b"x")
        await change(cluster, Add("n4", "127.0.0.1:9", "http://n4"))
        await cluster.put(b"y")
        leader = await cluster.leader()
        assert leader.node.membership.learners == ["n4"]
        await change(cluster, Remove("n4"))
        assert (await cluster.leader()).node.membership.names == ["n1", "n2", "n3"]


def test_a_node_that_joins_knows_of_no_members_to_begin_with() -> None:
    nobody = Membership(())
    members = Members("n4", nobody)
    assert not members.votes
    assert members.others == []
