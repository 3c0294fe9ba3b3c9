"""Housekeeping: expiry in batches, ticks, stalls, and reads that no later renewal can contradict."""

import asyncio
import time
from pathlib import Path

from service_cluster import QUICK, TENANT, TTL_MS, acquired, ask, asking, cluster, refused, request, until

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Expire, Tick, decode
from tenure_cluster.service.replies import GrantedReply


async def test_the_log_s_time_goes_on_while_somebody_holds_and_rests_otherwise(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", ttl_ms=60_000)
        for _ in range(15):
            await asyncio.sleep(0.1)
            assert node.raft.now_ms() - node.replica.time_ms < 1_000
        assert node.service.reaper.ticks >= 1
        await ask(node, "release", lease_id=lease.lease_id)
        ticks, index = node.service.reaper.ticks, node.replica.applied_index
        await asyncio.sleep(1.2)
        assert (node.service.reaper.ticks, node.replica.applied_index) == (ticks, index)


async def test_no_tick_is_needed_while_other_entries_move_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", ttl_ms=60_000)
        for _ in range(15):
            await ask(node, "renew", lease_id=lease.lease_id)
            await asyncio.sleep(0.1)
        assert node.service.reaper.ticks == 0


async def test_many_leases_expire_in_batches_while_renewals_go_through(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        batches: list[int] = []
        propose = node.raft.propose

        def watched(at_ms: int, command: bytes, done: object) -> None:
            decoded = decode(command)
            if isinstance(decoded, Expire):
                batches.append(len(decoded.items))
            propose(at_ms, command, done)  # type: ignore[arg-type]

        node.raft.propose = watched  # type: ignore[method-assign]
        kept = await acquired(node, "kept", ttl_ms=TTL_MS)
        count = 3 * limits.EXPIRE_BATCH_MAX
        for start in range(0, count, 500):
            await node.service.batch(
                TENANT,
                [
                    ("acquire", request("acquire", key=f"k{n}", owner="a", ttl_ms=TTL_MS))
                    for n in range(start, start + 500)
                ],
            )
        longest = 0.0
        while len(node.replica.table.leases) > 1:
            started = time.monotonic()
            reply = await ask(node, "renew", lease_id=kept.lease_id)
            assert reply.lease.token == kept.token
            longest = max(longest, time.monotonic() - started)
            await asyncio.sleep(0.02)
        assert node.service.reaper.expired == count
        assert max(batches) <= limits.EXPIRE_BATCH_MAX
        assert longest < 2.0


async def test_a_renewed_lease_survives_the_reaper(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        end = asyncio.get_running_loop().time() + 2.5 * TTL_MS / 1000
        while asyncio.get_running_loop().time() < end:
            assert (await ask(node, "renew", lease_id=lease.lease_id)).lease.token == lease.token
            await asyncio.sleep(TTL_MS / 4000)
        assert node.service.reaper.expired == 0


async def test_only_the_leader_reaps_and_its_successor_takes_over(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        await acquired(leader, "k", ttl_ms=2 * TTL_MS)
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await until(lambda: not successor.replica.table.holders(TENANT, "k"), "the expiry")
        assert successor.service.reaper.expired == 1
        assert leader.service.reaper.expired == 0
        assert len(leader.replica.table.holders(TENANT, "k")) == 1


async def test_the_time_in_which_the_leader_stalls_counts_against_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        time.sleep(1.5 * TTL_MS / 1000)  # noqa: ASYNC251 -- the stall itself: nothing of this process runs
        assert (await ask(node, "renew", lease_id=lease.lease_id)).lease.token == lease.token
        assert node.service.reaper.expired == 0


async def test_renewals_that_piled_up_in_a_stall_come_before_any_expiry(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        await asyncio.sleep(0.9 * TTL_MS / 1000)
        renewal = asking(node, "renew", lease_id=lease.lease_id)
        time.sleep(2 * QUICK.election_timeout_max_ms / 1000)  # noqa: ASYNC251 -- the stall itself
        reply = await renewal
        assert reply.lease.token == lease.token  # type: ignore[union-attr]


async def test_what_a_read_called_expired_can_t_be_renewed_any_more(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        node.service._reaping.cancel()  # type: ignore[union-attr]
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        deadline_ms = node.replica.table.holders(TENANT, "k")[0].session.deadline_ms
        await until(lambda: node.raft.now_ms() >= deadline_ms, "the deadline")
        assert node.replica.time_ms < deadline_ms
        problem = await refused(ask(node, "get_lease", key="k"))
        assert problem.code == "not_held"
        assert node.replica.time_ms >= deadline_ms
        problem = await refused(ask(node, "renew", lease_id=lease.lease_id))
        assert problem.extra == {"reason": "expired"}


async def test_a_read_that_meets_no_deadline_commits_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        node.service._reaping.cancel()  # type: ignore[union-attr]
        await acquired(node, "k", ttl_ms=60_000)
        index = node.replica.applied_index
        for operation in ("get_lease", "queue"):
            await ask(node, operation, key="k")
        await asyncio.gather(*(asking(node, "validate", key="k", token=n) for n in range(1_000)))
        assert node.replica.applied_index == index


async def test_many_undecided_reads_share_one_tick(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        node.service._reaping.cancel()  # type: ignore[union-attr]
        await acquired(node, "k", ttl_ms=TTL_MS)
        deadline_ms = node.replica.table.holders(TENANT, "k")[0].session.deadline_ms
        await until(lambda: node.raft.now_ms() >= deadline_ms, "the deadline")
        ticks = 0
        propose = node.raft.propose

        def counted(at_ms: int, command: bytes, done: object) -> None:
            nonlocal ticks
            ticks += isinstance(decode(command), Tick)
            propose(at_ms, command, done)  # type: ignore[arg-type]

        node.raft.propose = counted  # type: ignore[method-assign]
        answers = await asyncio.gather(*(asking(node, "get_lease", key="k") for _ in range(200)))
        assert {answer.code for answer in answers} == {"not_held"}  # type: ignore[union-attr]
        assert ticks == 1


async def test_a_holder_that_dies_frees_its_key_within_its_ttl_and_a_tick_after_a_change_of_leader(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        loop = asyncio.get_running_loop()
        await acquired(leader, "k", "dead", ttl_ms=2 * TTL_MS)
        granted_at = loop.time()
        node = await running.follower()
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000)
        await asyncio.sleep(0.3)
        running.isolate(leader)
        lost_at = loop.time()
        await running.leader(but=leader)
        leaderless = loop.time() - lost_at
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        took = loop.time() - granted_at
        assert took >= 2 * TTL_MS / 1000
        assert took < 2 * TTL_MS / 1000 + leaderless + 1.0 + 2.0
