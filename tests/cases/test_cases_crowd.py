"""Thousands of leases: they end together, they change leaders, they are written down, and nobody waits."""

import asyncio
from functools import partial

import pytest
from cases_crowd import Visits, acquire_many, begin_with, calls_counted, watch_dumps
from cases_sabotage import expiry_comes_in_one_piece, leaders_look_through_all, snapshots_come_in_one_piece

from tenure_chaos.sim.stage import Stage, perform
from tenure_cluster.lease import limits
from tenure_cluster.lease.snapshot import CHUNK_BYTES
from tenure_cluster.raft.snapshot_file import SLICE_BYTES

CROWD = 5_000
TTL_MS = 20_000
BATCH_MAX = limits.EXPIRE_BATCH_MAX


async def a_crowd_of_leases_ends_together(stage: Stage) -> None:
    leader = await stage.start()
    crowd, a, b = stage.actor("crowd"), stage.actor("A"), stage.actor("B")
    kept = await a.acquire("kept", ttl_ms=4_000)
    kept.keep()
    await acquire_many(crowd, CROWD, ttl_ms=TTL_MS)
    crowd.vanish()
    assert leader.replica is not None
    assert leader.raft is not None
    table, now_ms = leader.replica.table, leader.raft.now_ms
    last_due_ms = max(session.deadline_ms for session in table.sessions.values() if session.ttl_ms == TTL_MS)
    await stage.until(lambda: stage.world.counts["result Expire Done"], "the crowd begins to expire")
    began = stage.now
    renewals, taken, lazily = 0, False, False
    while len(table.leases) > 1 + taken:
        assert stage.now - began < 10.0, f"{len(table.leases)} leases are still there"
        asked_at = stage.now
        assert (await kept.renew()).ok
        renewals += 1
        assert stage.now - asked_at < 0.1, "a renewal waited for the expiries"
        if not taken and now_ms() > last_due_ms:
            last = f"crowd/{CROWD - 1}"
            lazily = table.holder("default", last) is not None
            said = await b.try_acquire(last, ttl_ms=TTL_MS)
            assert said.ok, "a lease that is over holds its key until the reaper comes"
            taken = True
    most = max(effect.result_fields["ended"] for effect in stage.effects("Expire"))
    assert most <= BATCH_MAX, f"{most} leases ended in one entry"
    assert lazily, "the reaper had come before the acquire"
    assert renewals >= 5
    assert kept.held
    assert stage.world.counts["leader elected"] == 1


def test_thousands_of_leases_end_together_and_nobody_waits() -> None:
    """T61: expiry is lazy, so a key is free at its deadline; reaping is batched, and renewals go between."""
    perform(a_crowd_of_leases_ends_together, entry_bytes_max=1 << 20)


def test_expiry_in_one_piece_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    expiry_comes_in_one_piece(monkeypatch)
    with pytest.raises(AssertionError, match="leases ended in one entry"):
        perform(a_crowd_of_leases_ends_together, entry_bytes_max=1 << 20)


async def a_leader_of_many_leases_dies(stage: Stage, count: int, work: dict[int, tuple[int, int]]) -> None:
    begin_with(stage, count, ttl_ms=3_600_000)
    leader = await stage.start()
    await asyncio.sleep(1.0)
    visits = Visits()
    for node in stage.others(leader):
        assert node.replica is not None
        assert len(node.replica.table.leases) == count
        visits.watch(node.replica.table)
    with calls_counted() as calls:
        stage.kill(leader)
        await stage.leader()
        await asyncio.sleep(0.1)
    work[count] = (calls[0], visits.rows)
    a = stage.actor("A")
    assert (await a.try_acquire("crowd/7", ttl_ms=TTL_MS)).code == "held"


def taking_office() -> dict[int, tuple[int, int]]:
    """By the number of leases: functions called and rows visited from the leader's death until another one
    serves."""
    work: dict[int, tuple[int, int]] = {}
    for count in (100, 20_000):
        perform(partial(a_leader_of_many_leases_dies, count=count, work=work))
    return work


def test_taking_office_costs_the_same_with_many_leases() -> None:
    """T62: what a new leader does does not depend on how many leases there are."""
    work = taking_office()
    (few_calls, few_rows), (many_calls, many_rows) = work[100], work[20_000]
    assert many_rows == few_rows == 0
    assert many_calls < 1.2 * few_calls


def test_a_leader_that_looks_through_all_leases_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    leaders_look_through_all(monkeypatch)
    (few_calls, _), (many_calls, many_rows) = taking_office().values()
    assert many_rows >= 20_000
    assert many_calls > 1.2 * few_calls


WRITTEN = {"snapshot_entries": 10, "piece_bytes": SLICE_BYTES}


async def a_snapshot_of_many_leases_is_made(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(stage, 20_000, ttl_ms=3_600_000)
    encoded = watch_dumps(monkeypatch, stage)
    leader = await stage.start()
    a = stage.actor("A")
    held = await a.acquire("k", ttl_ms=60_000)
    assert leader.raft is not None
    before = leader.raft.status().snapshot_index
    saving = 0
    while leader.raft.status().snapshot_index == before:
        steps = len(encoded)
        assert (await held.renew()).ok
        saving += 0 < steps < len(encoded)
    assert max(encoded.values()) <= SLICE_BYTES + CHUNK_BYTES, "a callback has encoded too much at once"
    assert sum(encoded.values()) > 6 * SLICE_BYTES
    assert saving >= 2, "nobody was served while the snapshot was made"


def test_a_snapshot_is_made_in_slices_and_renewals_go_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """T73: no callback of the loop encodes more than a slice and a chunk of the state."""
    perform(partial(a_snapshot_of_many_leases_is_made, monkeypatch=monkeypatch), **WRITTEN)


def test_a_snapshot_in_one_piece_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots_come_in_one_piece(monkeypatch)
    with pytest.raises(AssertionError, match="too much at once"):
        perform(partial(a_snapshot_of_many_leases_is_made, monkeypatch=monkeypatch), **WRITTEN)
