"""An expiry storm: very many leases end together while others go on asking."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_cluster import TENANT, TTL_MS, acquired, ask, cluster, request, until

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Expire, decode
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.reaper import BESIDE_OTHERS_MAX
from tenure_cluster.service.replica import TIDY_STEPS_MAX

STORM = 3 * limits.EXPIRE_BATCH_MAX


class Batches:
    """What the reaper of a node proposes."""

    def __init__(self, node: Any) -> None:
        self.sizes: list[int] = []
        self.under_way = 0
        self.most_under_way = 0
        self._propose = node.raft.propose
        node.raft.propose = self._watched

    def _watched(self, at_ms: int, command: bytes, done: Callable[[object], None]) -> None:
        decoded = decode(command)
        if not isinstance(decoded, Expire):
            self._propose(at_ms, command, done)
            return
        self.sizes.append(len(decoded.items))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)

        def ended(outcome: object) -> None:
            self.under_way -= 1
            done(outcome)

        self._propose(at_ms, command, ended)


async def hold(service: LeaseService, count: int, batch: int = 500) -> None:
    for start in range(0, count, batch):
        asked = [
            ("acquire", request("acquire", key=f"k{number}", owner="a", ttl_ms=TTL_MS))
            for number in range(start, start + batch)
        ]
        await service.batch(TENANT, asked)


async def test_who_renews_in_a_storm_waits_for_at_most_two_small_batches(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        kept = await acquired(node, "kept", ttl_ms=TTL_MS)
        await hold(node.service, STORM)
        batches = Batches(node)
        waited: list[int] = []

        async def renew() -> None:
            while len(node.replica.table.leases) > 1:
                before = len(batches.sizes)
                reply = await ask(node, "renew", lease_id=kept.lease_id)
                assert reply.lease.token == kept.token
                waited.append(len(batches.sizes) - before)

        await asyncio.gather(*(renew() for _ in range(20)))
        assert node.service.reaper.expired == STORM
        assert batches.most_under_way == 1
        assert max(batches.sizes) <= BESIDE_OTHERS_MAX
        assert sum(batches.sizes) == STORM
        assert max(waited) <= 2
        assert len(waited) > len(batches.sizes)  # they did go on beside it


async def all_due(node: Any) -> None:
    """Wait, without a reaper, until all that was acquired in a storm has had its time."""
    node.service._reaping.cancel()
    ends_ms = max(each.deadline_ms for each in node.replica.table.sessions.values() if each.ttl_ms == TTL_MS)
    await until(lambda: node.raft.now_ms() > ends_ms, "the deadlines to pass", 30.0)


async def test_a_storm_beside_which_nobody_asks_goes_in_full_batches(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        batches = Batches(node)
        await hold(node.service, STORM)
        await all_due(node)
        ended, held = sum(batches.sizes), len(node.replica.table.leases)
        assert ended + held == STORM
        batches.sizes.clear()
        reaping = asyncio.create_task(node.service.reaper.run())
        await until(lambda: not node.replica.table.leases, "the storm to be over", 30.0)
        reaping.cancel()
        assert sum(batches.sizes) == held
        first, *others, last = batches.sizes
        assert first <= BESIDE_OTHERS_MAX  # the acquires have just been
        assert set(others) <= {limits.EXPIRE_BATCH_MAX}
        assert last <= limits.EXPIRE_BATCH_MAX


async def test_an_entry_of_many_commands_looks_at_no_more_deadlines_than_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them looked at two hundred: all that fell due together held the loop in one go."""
    async with cluster(tmp_path) as running:
        node = await running.leader()
        kept = await acquired(node, "kept", ttl_ms=60_000)
        node.service._reaping.cancel()  # type: ignore[union-attr]
        await hold(node.service, 2 * TIDY_STEPS_MAX)
        await all_due(node)
        calendar = node.replica.table.deadlines.sessions
        looked: list[object] = []
        look = calendar._deadline_of

        def counted(ref: tuple[str, str]) -> int | None:
            looked.append(ref)
            return look(ref)

        monkeypatch.setattr(calendar, "_deadline_of", counted)
        index = node.replica.applied_index
        await node.service.batch(TENANT, [("renew", request("renew", lease_id=kept.lease_id))] * 100)
        assert node.replica.applied_index == index + 1
        assert 0 < len(looked) <= TIDY_STEPS_MAX
