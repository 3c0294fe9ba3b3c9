"""Clusters on real sockets and real disks: what a caller is promised."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from raft_testkit import QUICK, Cluster, ListMachine, Member, cluster_of, eventually, is_refused

from tenure_cluster.raft import Applied, NoQuorum, NotExecuted, NotLeader, Outcome, Raft, Unknown
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import SystemDisk

SMALL_SNAPSHOTS = msgspec.structs.replace(QUICK, snapshot_entries=20, transfer_window_bytes=2000)


async def test_three_nodes_elect_a_leader_and_replicate(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        outcomes = [await cluster.put(b"%d" % n) for n in range(20)]
        assert [outcome.result for outcome in outcomes] == list(range(20))
        await cluster.agree()
        assert cluster.members["n1"].machine.values() == [b"%d" % n for n in range(20)]


async def test_five_nodes_work_with_two_of_them_down(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 5) as cluster:
        await cluster.put(b"all up")
        leader = await cluster.leader()
        await leader.kill()
        await next(member for member in cluster.up).kill()
        await cluster.put(b"two down")
        await cluster.agree()
        assert len(cluster.up) == 3


async def test_a_single_node_leads_at_once_and_keeps_what_it_answered(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1) as cluster:
        member = cluster.members["n1"]
        await eventually(lambda: member.node.serving(), timeout_s=QUICK.election_timeout_min_ms / 1000)
        for n in range(50):
            await cluster.put(b"%d" % n)
        await member.node.read_barrier()
        await member.kill()
        await member.start()
        await cluster.put(b"after")
        assert member.machine.values() == [b"%d" % n for n in range(50)] + [b"after"]


async def test_all_that_is_queued_becomes_one_entry(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        before = leader.node.status()
        futures = [leader.propose(b"%d" % n) for n in range(500)]
        outcomes = await asyncio.gather(*futures)
        assert {outcome.index for outcome in outcomes if isinstance(outcome, Applied)} == {
            before.last_index + 1
        }
        assert [outcome.result for outcome in outcomes if isinstance(outcome, Applied)] == list(range(500))
        assert leader.node.status().journal_syncs == before.journal_syncs + 1


async def test_an_entry_is_cut_where_the_limits_say(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, entry_bytes_max=4096, entry_commands_max=10)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader()
        many = await asyncio.gather(*[leader.propose(b"x") for _ in range(25)])
        assert len({outcome.index for outcome in many if isinstance(outcome, Applied)}) == 3
        large = await asyncio.gather(*[leader.propose(bytes(1500)) for _ in range(4)])
        assert len({outcome.index for outcome in large if isinstance(outcome, Applied)}) == 2
        assert is_refused(await leader.propose(bytes(4096)), "too_large")
        assert isinstance(await leader.propose(bytes(4096 - 32)), Applied)
        await cluster.agree()


async def test_proposals_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, queue_max=10)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader()
        outcomes = await asyncio.gather(*[leader.propose(b"x") for _ in range(15)])
        assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 10
        assert sum(is_refused(outcome, "queue_full") for outcome in outcomes) == 5


async def test_a_follower_refuses_and_names_the_leader(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await cluster.agree()
        follower = next(member for member in cluster.up if member is not leader)
        assert await follower.propose(b"x") == NotExecuted("not_leader", leader.node_id)
        with pytest.raises(NotLeader) as refused:
            await follower.node.read_barrier()
        assert refused.value.leader_id == leader.node_id


async def test_followers_apply_soon_after_the_leader_though_nothing_follows(tmp_path: Path) -> None:
    options = msgspec.structs.replace(
        QUICK, heartbeat_ms=300, election_timeout_min_ms=1000, election_timeout_max_ms=1100
    )
    async with cluster_of(tmp_path, 3, options) as cluster:
        await cluster.leader()
        loop = asyncio.get_running_loop()
        lags_s = []
        for n in range(5):
            await cluster.put(b"%d" % n)
            done_s = loop.time()
            await eventually(lambda n=n: all(len(m.machine.commands) == n + 1 for m in cluster.up))
            lags_s.append(loop.time() - done_s)
        assert sum(lags_s) / len(lags_s) < 0.1, "heartbeats alone would take 150 ms on average"


async def test_a_killed_leader_is_replaced_much_faster_than_by_a_timer(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, election_timeout_min_ms=1200, election_timeout_max_ms=1400)
    async with cluster_of(tmp_path, 3, options) as cluster:
        # The first election has to wait for the timers.
        first = await cluster.leader(timeout_s=30)
        await cluster.put(b"before")
        await cluster.agree()
        loop = asyncio.get_running_loop()
        killed_s = loop.time()
        await first.kill()
        await cluster.put(b"after")
        assert loop.time() - killed_s < 0.8
        assert (await cluster.leader()) is not first


async def test_a_leader_that_stops_in_order_hands_over_and_answers_everybody(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, election_timeout_min_ms=1200, election_timeout_max_ms=1400)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader(timeout_s=30)
        futures = [leader.propose(b"%d" % n) for n in range(100)]
        node = leader.node
        stopped_s = asyncio.get_running_loop().time()
        await leader.stop()
        assert all(isinstance(future.result(), Applied) for future in futures)
        late: list[Outcome] = []
        node.propose(0, b"late", late.append)
        await eventually(lambda: late)
        assert is_refused(late[0], "shutting_down")
        await cluster.put(b"after")
        assert asyncio.get_running_loop().time() - stopped_s < 0.8
        await cluster.agree()
        assert set(cluster.up[0].machine.values()) >= {b"%d" % n for n in range(100)}


async def test_a_cut_off_leader_steps_down_and_its_callers_learn_that_the_outcome_is_unknown(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        old = await cluster.leader()
        cluster.isolate(old.node_id)
        appended = old.propose(b"appended by the old leader")
        await eventually(lambda: old.node.status().last_index > old.node.status().commit_index)
        queued = old.propose(b"only queued at the old leader")
        read = asyncio.create_task(old.node.read_barrier())
        others = [member for member in cluster.up if member is not old]
        new = await cluster.leader(others)
        assert isinstance(await new.propose(b"by the new leader"), Applied)
        assert isinstance(await appended, Unknown)
        assert isinstance(await queued, NotExecuted)
        with pytest.raises(Exception, match=r"leader|quorum"):
            await read
        await eventually(lambda: not old.node.is_leader(), "the old leader steps down")
        cluster.heal()
        await cluster.agree()
        values = old.machine.values()
        assert b"by the new leader" in values
        assert b"only queued at the old leader" not in values


async def test_a_cut_off_follower_does_not_disturb_when_it_comes_back(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = await cluster.leader()
        term = leader.node.status().term
        follower = next(member for member in cluster.up if member is not leader)
        cluster.isolate(follower.node_id)
        await eventually(
            lambda: follower.node.status().role == "follower" and follower.node.status().term == term
        )
        await asyncio.sleep(3 * QUICK.election_timeout_max_ms / 1000)  # the fault lasts this long
        cluster.heal()
        await cluster.put(b"after")
        await cluster.agree()
        assert leader.node.is_leader()
        assert leader.node.status().term == term


async def test_late_data_of_a_clogged_link_does_no_harm(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        for n in range(10):
            follower = cluster.up[n % 3]
            if follower is leader:
                continue
            proxy = cluster.proxies[leader.node_id, follower.node_id]
            proxy.clog()
            await asyncio.gather(*[leader.propose(b"%d.%d" % (n, k)) for k in range(5)])
            proxy.unclog()
        await cluster.put(b"end")
        await cluster.agree()


async def test_a_follower_far_behind_gets_a_snapshot(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, SMALL_SNAPSHOTS) as cluster:
        await cluster.put(b"first")
        leader = await cluster.leader()
        lagging = next(member for member in cluster.up if member is not leader)
        await lagging.kill()
        for n in range(300):
            await cluster.put(b"%d" % n + bytes(200))
        await eventually(lambda: leader.node.status().snapshot_index > 200, "the leader has compacted")
        await lagging.start()
        await cluster.put(b"last")
        await cluster.agree()
        assert lagging.machine.restored
        assert len(lagging.machine.commands) == 302
        # It is whole again: what it got is durable, and it can lead.
        await lagging.kill()
        await lagging.start()
        await cluster.agree()


async def test_snapshots_are_taken_over_a_slow_and_breaking_link(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, SMALL_SNAPSHOTS) as cluster:
        leader = await cluster.leader()
        lagging = next(member for member in cluster.up if member is not leader)
        await lagging.kill()
        for n in range(150):
            await cluster.put(b"%d" % n + bytes(3000))
        await lagging.start()
        proxy = cluster.proxies[leader.node_id, lagging.node_id]
        for _ in range(5):
            await asyncio.sleep(0.05)  # the link works for this long, then breaks
            proxy.break_connections()
        await cluster.put(b"last")
        await cluster.agree()


async def test_every_node_restarts_from_its_snapshot_and_log(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, SMALL_SNAPSHOTS) as cluster:
        for n in range(150):
            await cluster.put(b"%d" % n)
        time_ms = max(member.machine.time_ms for member in cluster.up)
        for member in cluster.members.values():
            await member.kill()
        for member in cluster.members.values():
            await member.start()
        await cluster.put(b"after")
        await cluster.agree()
        member = cluster.members["n1"]
        assert member.machine.values() == [b"%d" % n for n in range(150)] + [b"after"]
        assert member.machine.time_ms >= time_ms, "cluster time went back"


@pytest.mark.parametrize("size", [3, 5])
async def test_nothing_acknowledged_is_lost_over_abrupt_restarts(tmp_path: Path, size: int) -> None:
    async with cluster_of(tmp_path, size, SMALL_SNAPSHOTS) as cluster:
        acknowledged: list[bytes] = []
        stop = asyncio.Event()

        async def client(name: int) -> None:
            count = 0
            while not stop.is_set():
                leaders = cluster.serving()
                if not leaders:
                    await asyncio.sleep(0.002)
                    continue
                count += 1
                command = b"%d.%d" % (name, count)
                outcome = await leaders[-1].propose(command)
                if isinstance(outcome, Applied):
                    acknowledged.append(command)

        clients = [asyncio.create_task(client(name)) for name in range(8)]
        await cluster.leader()
        members = list(cluster.members.values())
        for round_ in range(8):
            enough = len(acknowledged) + 40
            await eventually(lambda enough=enough: len(acknowledged) >= enough, "progress")
            victims = [members[round_ % size]]
            if (leader := next(iter(cluster.serving()), None)) is not None and leader not in victims:
                victims.append(leader)
            if round_ == 5:
                victims = members
            for victim in victims:
                await victim.kill()
            for victim in victims:
                await victim.start()
        stop.set()
        await asyncio.gather(*clients)
        await cluster.put(b"last")
        await cluster.agree()
        assert set(acknowledged) <= set(members[0].machine.values())
        assert len(acknowledged) >= 300


async def test_a_state_machine_that_raises_stops_its_node_before_it_answers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    await cluster.start()
    try:
        member = await cluster.leader()
        good, bad = member.propose(b"good"), member.propose(b"raise")
        await eventually(lambda: member.fatal)
        assert isinstance(member.fatal[0], RuntimeError)
        assert isinstance(await good, Unknown)
        assert isinstance(await bad, Unknown)
        assert not member.node.is_leader()
    finally:
        await cluster.stop()


async def test_payloads_arrive_with_the_epoch_of_their_link(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.agree()
        source, target = cluster.members["n1"], cluster.members["n2"]
        got: list[tuple[str, int, bytes]] = []
        target.node.on_peer_message = lambda peer, epoch, body: got.append((peer, epoch, body))
        await eventually(lambda: "n2" in source.node.status().connected)
        epochs = [source.node.send("n2", b"%d" % n) for n in range(3)]
        assert None not in epochs
        await eventually(lambda: len(got) == 3)
        assert got == [("n1", epochs[0], b"%d" % n) for n in range(3)]
        assert source.node.send("n2", bytes(QUICK.frame_bytes_max)) is None
        assert source.node.send("nobody", b"") is None
        links: list[tuple[str, bool]] = []
        source.node.on_link = lambda peer, up: links.append((peer, up))
        await target.kill()
        await eventually(lambda: ("n2", False) in links)
        assert source.node.send("n2", b"") is None
        await target.start()
        await eventually(lambda: ("n2", True) in links)
        await cluster.agree()


async def test_roles_are_told_as_they_change(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3)
    told: list[tuple[str, str, str | None, int]] = []

    def listen(member: Member) -> None:
        member.node.on_role = lambda role, leader, term: told.append((member.node_id, role, leader, term))

    await cluster.start()
    for member in cluster.members.values():
        listen(member)
    try:
        leader = await cluster.leader()
        await cluster.agree()
        term = leader.node.status().term
        assert (leader.node_id, "leader", leader.node_id, term) in told
        followers = {node for node, role, known, _ in told if role == "follower" and known == leader.node_id}
        assert followers == set(cluster.members) - {leader.node_id}
    finally:
        await cluster.stop()


async def test_a_linearizable_read_sees_what_was_completed_before(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        for n in range(20):
            await cluster.put(b"%d" % n)
            leader = await cluster.leader()
            await asyncio.gather(*[leader.node.read_barrier() for _ in range(5)])
            assert len(leader.machine.commands) >= n + 1


# -- disks


async def test_a_leader_keeps_its_office_during_a_slow_sync(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = await cluster.leader()
        term = leader.node.status().term
        leader.disk.slow_s = 0.75 * QUICK.election_timeout_max_ms / 1000
        slow = [await leader.propose(b"slow%d" % n) for n in range(3)]
        assert all(isinstance(outcome, Applied) for outcome in slow)
        assert leader.node.status().term == term
        leader.disk.slow_s = 0.0


async def test_a_leader_whose_disk_hangs_is_replaced(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = await cluster.leader()
        leader.disk.slow_s = 5 * QUICK.election_timeout_max_ms / 1000
        hanging = leader.propose(b"hanging")
        leader.disk.slow_s = 5 * QUICK.election_timeout_max_ms / 1000
        others = [member for member in cluster.up if member is not leader]
        new = await cluster.leader(others, timeout_s=4 * QUICK.election_timeout_max_ms / 1000)
        assert isinstance(await new.propose(b"by the new leader"), Applied)
        assert not hanging.done()
        leader.disk.slow_s = 0.0
        await cluster.agree()
        assert isinstance(hanging.result(), Applied | Unknown)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_sync_that_fails_stops_the_node_and_nothing_of_it_leaves(tmp_path: Path, role: str) -> None:
    cluster = Cluster(tmp_path, 3)
    await cluster.start()
    try:
        await cluster.put(b"before")
        await cluster.agree()
        leader = await cluster.leader()
        others = [member for member in cluster.up if member is not leader]
        broken = leader if role == "leader" else others[0]
        broken.disk.error = OSError(5, "input/output error")
        outcome = leader.propose(b"x")
        await eventually(lambda: broken.fatal)
        assert broken.fatal == [broken.disk.error]
        assert is_refused(await broken.propose(b"late"), "shutting_down")
        if role == "leader":
            assert isinstance(await outcome, Unknown)
        else:
            assert isinstance(await outcome, Applied)
            assert leader.node.status().match_index[broken.node_id] < leader.node.status().last_index
        await broken.kill()
        await cluster.put(b"after")
        await broken.start()
        await cluster.agree()
        assert len(broken.fatal) == 1
    finally:
        await cluster.stop()


# -- stalls, callbacks


async def test_a_stalled_leader_does_not_count_the_stall_and_confirms_itself(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        await cluster.put(b"before")
        leader = (await cluster.leader()).node
        assert leader.confirmed
        before_ms = leader.now_ms()
        time.sleep(0.75 * QUICK.election_timeout_min_ms / 1000)  # noqa: ASYNC251
        assert leader.now_ms() - before_ms < 20
        assert not leader.confirmed
        await leader.confirm()
        assert leader.confirmed


async def test_a_callback_that_raises_harms_nobody(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await cluster.leader()

        def broken(outcome: Outcome) -> None:
            raise asyncio.InvalidStateError

        leader.node.propose(leader.node.now_ms(), b"1", broken)
        good = leader.propose(b"2")
        leader.node.on_peer_message = lambda peer, epoch, body: 1 // 0
        assert isinstance(await good, Applied)
        other = next(member for member in cluster.up if member is not leader)
        await eventually(lambda: other.node.send(leader.node_id, b"x"))
        await cluster.put(b"3")
        await cluster.agree()
        assert leader.machine.values() == [b"1", b"2", b"3"]


async def test_a_read_without_a_quorum_is_refused(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, election_timeout_min_ms=250, election_timeout_max_ms=300)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader()
        await leader.node.read_barrier()
        cluster.isolate(leader.node_id)
        with pytest.raises((NotLeader, NoQuorum)):
            await leader.node.read_barrier()


async def test_a_node_that_is_not_a_member_is_refused_before_anything_happens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'n9' is not among the members"):
        Raft(
            node_id="n9",
            cluster_id="c",
            members={"n1": "127.0.0.1:1"},
            listen="127.0.0.1:0",
            disk=SystemDisk(tmp_path),
            clock=SystemClock(),
            machine=ListMachine(),
            options=QUICK,
            on_fatal=lambda error: None,
        )


async def test_an_address_in_use_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cluster_of(tmp_path / "first", 1) as cluster:
        taken = cluster.members["n1"].node.port
        disk = SystemDisk(tmp_path / "second")
        second = Raft(
            node_id="n1",
            cluster_id="c",
            members={"n1": f"127.0.0.1:{taken}"},
            listen=f"127.0.0.1:{taken}",
            disk=disk,
            clock=SystemClock(),
            machine=ListMachine(),
            options=QUICK,
            on_fatal=lambda error: None,
        )
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.stop()
        disk.close()
