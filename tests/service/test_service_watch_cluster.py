"""Watching on real nodes: every node tells the same, and going on elsewhere misses and repeats nothing."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from service_cluster import QUICK, Cluster, Part, acquired, applied_everywhere, ask, cluster, until
from service_events import PLAIN, Watcher

from tenure_cluster.raft import snapshots
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import LeasesReply
from tenure_cluster.service.requests import EventsRequest


def watching(part: Part, prefix: str = "", after: int | None = None) -> Watcher:
    return Watcher().watch(part.service.watch, "default", EventsRequest(prefix=prefix, after=after))


def head(part: Part) -> int:
    return part.service.watches.log.head("default")


async def work(part: Part, rounds: int, prefix: str = "job") -> None:
    """Leases that come and go, at a node that leads."""
    for number in range(rounds):
        lease = await acquired(part, f"{prefix}/{number}")
        await ask(part, "renew", lease_id=lease.lease_id)
        await ask(part, "release", lease_id=lease.lease_id)


async def all_told(watcher: Watcher, revision: int) -> None:
    await until(lambda: watcher.revisions and watcher.revisions[-1] >= revision, f"revision {revision}")


async def test_every_node_tells_the_same_events_at_the_same_revisions(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        watchers = [watching(part, "job/", 0) for part in running.parts.values()]
        await work(leader, 20)
        await work(leader, 5, "other")
        for watcher in watchers:
            await until(lambda watcher=watcher: watcher.told, "the first events")
        last = head(leader)
        everything = watching(leader, "", 0)
        await all_told(everything, last)
        assert everything.revisions == list(range(1, last + 1))
        mine = [event for event in everything.told if event.key.startswith("job/")]
        for watcher in watchers:
            await all_told(watcher, mine[-1].revision)
            assert watcher.told == mine
        assert [event.kind for event in mine if event.key == "job/3"] in (
            ["granted", "released"],
            ["granted", "renewed", "released"],
        )


async def test_a_watcher_that_moves_between_nodes_and_leaders_hears_everything_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        told: list[int] = []
        await work(await running.leader(), 1)
        for _ in range(3):
            leader = await running.leader()
            for part in (leader, await running.follower()):
                watcher = watching(part, "", told[-1] if told else 0)
                await work(leader, 3)
                await all_told(watcher, head(leader))
                told += watcher.revisions
                assert watcher.subscription is not None
                watcher.subscription.close()
            running.isolate(leader)
            successor = await running.leader(but=leader)
            await work(successor, 2)
            running.heal()
            await until(applied_everywhere(running), "the old leader to catch up")
        final = watching(await running.leader(), "", told[-1])
        await all_told(final, head(await running.leader()))
        told += final.revisions
        assert told == list(range(1, told[-1] + 1))
        assert len(told) > 30


async def test_a_leader_that_is_cut_off_tells_nothing_that_did_not_happen(tmp_path: Path) -> None:
    """What it appends and can't commit is no event, and what happens without it is told when it is back."""
    async with cluster(tmp_path, 3) as running:
        old = await running.leader()
        watcher = watching(old, "", 0)
        await work(old, 2)
        running.isolate(old)
        lost = asyncio.ensure_future(ask(old, "acquire", key="never", owner="x", ttl_ms=5_000))
        new = await running.leader(but=old)
        await work(new, 2, "meanwhile")
        running.heal()
        await lost
        await until(applied_everywhere(running), "the old leader to catch up")
        await all_told(watcher, head(new))
        reference = watching(new, "", 0)
        await all_told(reference, watcher.revisions[-1])
        assert watcher.told == reference.told[: len(watcher.told)]
        terms = [notice.members["term"] for notice in watcher.notices if notice.kind == "leader_changed"]
        assert terms == sorted(set(terms))
        assert terms


async def test_listing_and_then_watching_from_its_revision_leaves_no_hole(tmp_path: Path) -> None:
    """The state that follows from a list and the events after it is the state that is listed later."""
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        for number in range(10):
            await acquired(leader, f"k/{number}")
        busy = asyncio.ensure_future(work(leader, 15, "k"))
        await asyncio.sleep(0.01)
        page = await ask(follower, "list_leases", prefix="k/", limit=1_000)
        assert isinstance(page, LeasesReply)
        assert page.revision > 0
        watcher = watching(follower, "k/", page.revision)
        held = {lease.key: lease.token for lease in page.leases}
        try:
            await busy
        except AssertionError:
            pass  # some of the keys are held already
        await acquired(leader, "k/last")
        await until(lambda: [event.key for event in watcher.told[-1:]] == ["k/last"], "the last event")
        for event in watcher.told:
            assert event.revision > page.revision
            if event.kind == "granted":
                held[event.key] = event.token
            elif event.kind == "released":
                assert held.pop(event.key) == event.token
        after = await ask(leader, "list_leases", prefix="k/", limit=1_000)
        assert held == {lease.key: lease.token for lease in after.leases}


async def restarted(running: Cluster, part: Part) -> Part:
    """The same node, started again from its directory."""
    peers = {
        other: part.config.members[other].peer
        if other == part.node_id
        else f"127.0.0.1:{running.links[part.node_id, other]._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
        for other in running.ids
    }
    again = Part(part.config, peers, None)
    running.parts[part.node_id] = again
    await again.start()
    return again


async def test_a_node_that_starts_again_remembers_what_its_log_holds(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        await work(leader, 5)
        await follower.stop()
        await work(leader, 5, "later")
        again = await restarted(running, follower)
        watcher = watching(again, "", 2)
        await all_told(watcher, head(leader))
        assert watcher.revisions == list(range(3, head(leader) + 1))


async def test_the_horizon_of_a_node_that_starts_again_is_that_of_its_snapshot(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, snapshot_entries=20)
    async with cluster(tmp_path, 3, raft=options) as running:
        leader, follower = await running.leader(), await running.follower()
        await work(leader, 20)
        await until(lambda: follower.raft.status().snapshot_index > 0, "a snapshot")
        await until(applied_everywhere(running), "all to have applied all")
        await follower.stop()
        again = await restarted(running, follower)
        log = again.service.watches.log
        horizon = log.horizon("default")
        assert horizon > 0
        below = again.service.watch("default", EventsRequest(after=horizon - 1), PLAIN, bool, lambda: None)
        assert isinstance(below, Problem)
        assert (below.code, below.extra["revision"]) == ("compacted", horizon)
        watcher = watching(again, "", horizon)
        await all_told(watcher, head(leader))
        assert watcher.revisions == list(range(horizon + 1, head(leader) + 1))


async def test_a_follower_that_gets_a_snapshot_tells_its_watchers_of_the_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "TAIL_ENTRIES_MAX", 2)
    options = msgspec.structs.replace(QUICK, snapshot_entries=20)
    async with cluster(tmp_path, 3, raft=options) as running:
        leader, follower = await running.leader(), await running.follower()
        watcher = watching(follower, "", 0)
        await work(leader, 2)
        await all_told(watcher, head(leader))
        running.isolate(follower)
        await work(leader, 40)
        before = leader.raft.status().snapshot_index
        assert before > follower.replica.applied_index
        running.heal()
        await until(lambda: watcher.ended, "the gap")
        gap = watcher.notices[-1]
        assert gap.kind == "gap"
        assert gap.members["last"] == watcher.revisions[-1]
        elsewhere = watching(leader, "", watcher.revisions[-1])
        await all_told(elsewhere, head(leader))
        assert (watcher.revisions + elsewhere.revisions) == list(range(1, head(leader) + 1))


async def test_a_node_that_stops_sends_its_watchers_to_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        watcher = watching(follower, "", 0)
        await work(leader, 2)
        await all_told(watcher, head(leader))
        await follower.stop()
        last = watcher.notices[-1]
        assert (last.kind, last.revision) == ("shutting_down", watcher.revisions[-1])
        others = {node_id: member.http for node_id, member in follower.config.members.items()}
        del others[follower.node_id]
        first = others.pop(leader.node_id)
        assert last.members["nodes"] == [first, *others.values()]


async def test_a_watch_is_refused_for_a_prefix_or_a_revision_that_none_can_have(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        for request, path in (
            (EventsRequest(prefix="k" * 513), "$.prefix"),
            (EventsRequest(after=-1), "$.from"),
            (EventsRequest(after=2**53), "$.from"),
        ):
            refusal = node.service.watch("default", request, PLAIN, bool, lambda: None)
            assert isinstance(refusal, Problem)
            assert (refusal.code, refusal.extra["path"]) == ("out_of_range", path)
        assert len(node.service.watches) == 0
