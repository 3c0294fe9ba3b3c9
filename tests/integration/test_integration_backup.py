"""Backup and restore on real processes: nothing that the old cluster issued is ever issued again, and nobody
who held something of it can write."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from backup_story import OldHolder, begin_anew, endpoints, restore, run, save, states, tokens_of, wipe
from conclusion import new_load, progress
from live_cluster import LiveCluster, LiveNode, until
from raw_http import fetch

import tenure
from tenure.audit import verify

CLUSTER: dict[str, dict[str, int | str | bool]] = {"raft": {"snapshot_entries": 200}}


@pytest.mark.process
@pytest.mark.slow
async def test_a_backup_under_load_begins_a_new_cluster_above_all_of_the_old_one_again_and_again(
    tmp_path: Path,
) -> None:
    """T66: tokens and revisions, of the same backup put back twice as well."""
    file = tmp_path / "live.backup"
    async with LiveCluster(tmp_path / "cluster", settings=CLUSTER) as cluster:
        load = new_load(cluster)
        load.start(writers=8, keys=32, holders=2)
        try:
            async with tenure.connect(endpoints(cluster)) as client:
                known = await OldHolder.of(client, "story/known", "kept")
                await progress(load, 300)
                saved = await asyncio.to_thread(save, file, *cluster.nodes.values())
                newer = await OldHolder.of(client, "story/newer", "lost")
                known_again = await client.commit(
                    known.key, lease_id=known.lease_id, token=known.token, mode="current", value="lost too"
                )
                await progress(load, 300)
                issued = [known.token, newer.token]
        finally:
            await load.stop()
            load.close()
        issued += tokens_of(load)
        assert len(issued) > 50
        assert saved["bytes"] == file.stat().st_size
        lives = [max(issued)]
        for life in range(2):
            await begin_anew(cluster, file)
            async with tenure.connect(endpoints(cluster)) as client:
                for old in (known, newer):
                    refused = await old.refusals(client)
                    assert refused[:2] == ["stale_token"] * 2, (life, old)
                    assert len(refused) == 3, (life, old)
                record = await client.record("story/known")
                assert record is not None
                assert (record.value, record.revision < known_again.revision) == ("kept", True)
                assert await client.record("story/newer") is None
                fresh = await OldHolder.of(client, "story/known", f"of life {life}")
                stranger = await OldHolder.of(client, f"story/of-life-{life}")
                written = await client.record("story/known")
                assert written is not None
                assert written.revision > known_again.revision
            assert min(fresh.token, stranger.token) > lives[-1]
            lives.append(max(fresh.token, stranger.token))
            known = fresh
        await cluster.caught_up()
        await cluster.stop(*cluster.nodes.values())
        found = states(cluster)
        assert len({each["state"]["digest"] for each in found.values()}) == 1, found
        assert all(each["state"]["restored"] for each in found.values())


@pytest.mark.process
async def test_the_leases_that_a_restore_ends_are_in_the_audit_of_the_new_cluster(tmp_path: Path) -> None:
    file = tmp_path / "one.backup"
    async with LiveCluster(tmp_path / "cluster", nodes=1) as cluster:
        node = cluster.nodes["n1"]
        async with tenure.connect(node.url) as client:

            async def begun() -> bool:
                return (await client.audit()).recording

            await until(begun, 60.0, "the audit's beginning")
            held = await OldHolder.of(client, "held")
            save(file, node)
            before = verify((await client.audit()).records)
            await OldHolder.of(client, "after the backup")
        await begin_anew(cluster, file)
        done = run(
            *("tenure", "audit", "-o", "json", "--verify", "--after", f"{before.seq}:{before.hash}"),
            TENURE_ENDPOINTS=node.url,
        )
        assert done.returncode == 0, done.stderr
        restore_told, lease_told = (json.loads(line) for line in done.stdout.splitlines()[:2])
        assert (restore_told["kind"], restore_told["subject"]) == ("restore", "1 leases ended")
        assert (lease_told["kind"], lease_told["owner"]) == ("restored", "old")
        assert (lease_told["key"], lease_told["token"]) == (held.key, held.token)


async def answered(node: LiveNode, path: str) -> str:
    return (await fetch(node.url, "GET", path)).body.decode()


@pytest.mark.process
async def test_a_watch_of_the_old_cluster_is_told_to_look_anew_and_one_of_the_new_is_told_of_the_restore(
    tmp_path: Path,
) -> None:
    file = tmp_path / "one.backup"
    async with LiveCluster(tmp_path / "cluster", nodes=1) as cluster:
        node = cluster.nodes["n1"]
        async with tenure.connect(node.url) as client:
            await OldHolder.of(client, "a")
            save(file, node)
            await OldHolder.of(client, "b")
            seen = (await client.leases_page()).revision
        await begin_anew(cluster, file)
        assert '"code":"compacted"' in await answered(node, f"/v1/events?from={seen}")
        async with tenure.connect(node.url) as client:

            async def settled() -> int:
                revision = int(json.loads(await answered(node, "/v1/leases"))["revision"])
                return revision if revision > seen + 2**40 else 0

            base = await until(settled, 30.0, "the numbers of the new cluster")
            watch = client.watch("no/such/prefix", after=base - 1)
            told = await anext(aiter(watch))
            assert (told.kind, told.key, told.revision) == ("restored", "", base)
            assert told.token > 2**32
            assert told.detail == "1 leases ended"


@pytest.mark.process
async def test_a_backup_holds_what_was_acknowledged_before_it_whichever_node_makes_it(tmp_path: Path) -> None:
    async with LiveCluster(tmp_path / "cluster") as cluster, tenure.connect(endpoints(cluster)) as client:
        for node in cluster.nodes.values():
            file = tmp_path / f"{node.node_id}.backup"
            holder = await OldHolder.of(client, f"before/{node.node_id}", node.node_id)
            save(file, node)
            told = restore(node, file, "--data-dir", str(tmp_path / f"of-{node.node_id}"))
            assert told["records"] == int(node.node_id[1:])
            assert told["token_base"] > holder.token


@pytest.mark.process
async def test_a_node_of_the_old_cluster_is_not_let_in_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "three.backup"
    async with LiveCluster(tmp_path / "cluster") as cluster:
        n1, n2, n3 = cluster.nodes.values()
        async with tenure.connect(endpoints(cluster)) as client:
            await OldHolder.of(client, "k", "old")
        save(file, n1)
        cluster.kill(n1, n2, n3)
        wipe(n1, n2)
        for node in (n1, n2):
            restore(node, file)
            cluster.start(node)
        await cluster.ready(n1, n2)
        async with tenure.connect(f"{n1.url},{n2.url}") as client:
            new = await OldHolder.of(client, "k", "new")
            cluster.start(n3)

            async def refused() -> bool:
                return "this node is of 'live+" in n1.log_text() + n2.log_text()

            await until(refused, 30.0, "the old node to be refused")
            record = await client.record("k")
            assert record is not None
            assert (record.value, record.token) == ("new", new.token)


@pytest.mark.process
async def test_a_backup_needs_a_quorum_and_nothing_takes_the_file_s_name_without_one(tmp_path: Path) -> None:
    file = tmp_path / "kept.backup"
    async with LiveCluster(tmp_path / "cluster") as cluster:
        n1, n2, n3 = cluster.nodes.values()
        save(file, n1, n2, n3)
        before = file.read_bytes()
        cluster.kill(n2, n3)
        done = run("tenure", "backup", "save", str(file), TENURE_ENDPOINTS=n1.url)
        assert done.returncode == 3, done.stderr
        assert file.read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["cluster", "kept.backup"]


@pytest.mark.process
async def test_the_last_of_a_lost_cluster_begins_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "last.backup"
    async with LiveCluster(tmp_path / "cluster") as cluster:
        n1, n2, n3 = cluster.nodes.values()
        async with tenure.connect(endpoints(cluster)) as client:
            held = await OldHolder.of(client, "k", "kept")
        await cluster.caught_up()
        refused = run("tenured", "recover", str(n1.data_dir), "--to", str(file), "--i-accept-data-loss")
        assert refused.returncode == 1
        assert f"stop it first (kill {n1.pid})" in refused.stderr
        cluster.kill(n1, n2, n3)
        asked = run("tenured", "recover", str(n1.data_dir), "--to", str(file))
        assert asked.returncode == 2
        assert "--i-accept-data-loss" in asked.stderr.splitlines()[-1]
        assert not file.exists()
        done = run("tenured", "recover", str(n1.data_dir), "--to", str(file), "--i-accept-data-loss")
        assert done.returncode == 0, done.stderr
        assert "lost" in done.stderr
        await begin_anew_dead(cluster, file)
        async with tenure.connect(endpoints(cluster)) as client:
            assert (await held.refusals(client))[:2] == ["stale_token"] * 2
            record = await client.record("k")
            assert record is not None
            assert record.value == "kept"
            assert (await OldHolder.of(client, "k")).token > held.token + 2**32


async def begin_anew_dead(cluster: LiveCluster, file: Path) -> None:
    nodes = list(cluster.nodes.values())
    wipe(*nodes)
    for node in nodes:
        restore(node, file)
        cluster.start(node)
    await cluster.ready()
