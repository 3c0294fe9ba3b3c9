"""A cluster that was lost, and begins anew from a backup: two worlds, of which the second knows the first by
the backup alone.
"""

from typing import Any

import pytest

from tenure import _requests
from tenure_chaos.sim.node import CLUSTER, SimNode
from tenure_chaos.sim.stage import Stage, perform
from tenure_cluster.lease import restoration
from tenure_cluster.lease.restoration import put_back
from tenure_cluster.lease.snapshot import dump, load
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.members_file import first_members
from tenure_cluster.raft.messages import NO_OP
from tenure_cluster.raft.snapshot_file import SnapshotStore

TTL_MS = 60_000
INDEX, TERM = 50, 7


class Old:
    """What is left of the old cluster: its backup, and what its clients still hold."""

    def __init__(self) -> None:
        self.backup: list[bytes] = []
        self.made_wall_ms = 0
        self.commits: list[dict[str, Any]] = []
        self.lease_ids: list[str] = []
        self.tokens: list[int] = []


def lives_and_is_lost(old: Old) -> None:
    """It grants and writes, is backed up, grants and writes more, and is gone with all its disks."""

    async def story(stage: Stage) -> None:
        leader = await stage.start()
        a, b = stage.actor("A"), stage.actor("B")
        known = await a.acquire("known", ttl_ms=TTL_MS)
        assert (await known.commit("in the backup")).ok
        await stage.alike()
        assert leader.replica is not None
        old.backup, old.made_wall_ms = list(dump(leader.replica.table)), leader.clock.wall_ms()
        newer = await b.acquire("newer", ttl_ms=TTL_MS)
        assert (await newer.commit("lost")).ok
        assert (await known.commit("lost too")).ok
        for held in (known, newer):
            old.lease_ids.append(held.lease_id)
            old.tokens.append(held.token)
            old.commits += [
                {"key": held.key, "lease_id": held.lease_id, "token": held.token, "mode": "current"}
                | {"value": "late", "require_live": live, "op_id": f"late-{held.key}-{live}"}
                for live in (True, False)
            ]

    perform(story)


def restored(old: Old) -> LeaseTable:
    table = load(old.backup)
    put_back(table, made_wall_ms=old.made_wall_ms)
    return table


def prepare(node: SimNode, table: LeaseTable) -> None:
    """Its disk as `tenured restore` leaves a data directory."""
    previous, last = (NO_OP, INDEX - 1, TERM), (NO_OP, INDEX, TERM)
    first_members(node.disk, ["n1", "n2", "n3"], joins=False)
    writer = SnapshotStore(node.disk, CLUSTER).writer(last, previous)
    for chunk in dump(table):
        writer.append(chunk)
    writer.commit()
    journal = Journal.open(
        node.disk,
        node.clock,
        cluster_id=CLUSTER,
        node_id=node.name,
        segment_bytes=65_536,
        snapshot=None,
    )
    journal.rebase((previous, last))
    journal.setCurrentTerm(TERM, None)
    journal.sync_now()
    journal.close()
    node.disk.sync_directory()


def begins_anew(old: Old) -> None:
    async def story(stage: Stage) -> None:
        for node in stage.world.nodes.values():
            prepare(node, restored(old))
        leader = await stage.start()
        a, c = stage.actor("A"), stage.actor("C")
        for key in ("known", "newer"):
            assert await c.holder(key) is None
        for commit in old.commits:
            said = await a.ask(_requests.commit(commit))
            assert (said.outcome, said.code) == ("refused", "stale_token"), commit
        for lease_id in old.lease_ids:
            said = await a.ask(_requests.renew(lease_id=lease_id))
            assert (said.outcome, said.code) == ("refused", "lost")
        assert await c.record("known") == "in the backup"
        assert await c.record("newer") is None
        for key in ("known", "newer", "another"):
            fresh = await c.acquire(key, ttl_ms=TTL_MS)
            assert fresh.token > max(old.tokens), "a token of before the restore may be given again"
            assert (await fresh.commit("of the new cluster")).ok
        for commit in old.commits:
            said = await a.ask(_requests.commit({**commit, "op_id": f"again-{commit['op_id']}"}))
            assert said.code == "stale_token", commit
        stage.kill(leader)
        await stage.leader(not_in=(leader,))
        stage.restart(leader)
        assert await c.record("another") == "of the new cluster"
        await stage.alike()
        events = [event for effect in stage.effects() for event in effect.events]
        [told] = [event for event in events if event["kind"] == "restored"]
        assert told["revision"] > restoration.JUMP

    perform(story, seed=2)


@pytest.fixture
def old() -> Old:
    left = Old()
    lives_and_is_lost(left)
    return left


def test_what_a_restored_cluster_issues_is_above_all_that_the_lost_one_did(old: Old) -> None:
    """T66: old holders, of before and after the backup, are refused whatever they do, and nodes that were
    restored each for itself are one cluster.
    """
    begins_anew(old)


def test_a_restore_that_goes_on_counting_where_the_backup_ended_is_noticed(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoration, "JUMP", 0)
    monkeypatch.setattr(restoration, "PER_SECOND", 0)
    with pytest.raises(AssertionError, match=r"given again|stale_token"):
        begins_anew(old)
