"""Snapshots for those who want one now: whole, of all that was applied, and readable to their end."""

import asyncio
from pathlib import Path

import pytest
from raft_testkit import QUICK, cluster_of

from tenure_cluster.raft.snapshot_export import SnapshotExport
from tenure_cluster.raft.snapshot_format import SnapshotInfo, SnapshotParser
from tenure_cluster.raft.types import RaftError


async def read(export: SnapshotExport) -> tuple[SnapshotInfo, list[bytes]]:
    """All of it, checked by its own checksums."""
    parser = SnapshotParser("export")
    chunks: list[bytes] = []
    while piece := await export.read_at(parser.fed_bytes):
        chunks += parser.feed(piece)
    return parser.finish(), chunks


async def test_an_export_has_all_that_was_applied_and_the_node_goes_on(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, QUICK) as cluster:
        leader = await cluster.leader()
        for n in range(20):
            await cluster.put(b"before %d" % n)
        applied = leader.node.status().applied_index
        export = await leader.node.export()
        info, chunks = await read(export)
        export.close()
        assert info.index >= applied
        assert b"".join(chunks).count(b"before") == 20
        await cluster.put(b"after")
        await leader.kill()
        await leader.start()
        await cluster.agree()
        assert leader.machine.values()[-1] == b"after"


async def test_with_nothing_new_the_latest_one_is_taken(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, QUICK) as cluster:
        leader = await cluster.leader()
        await cluster.put(b"one")
        first = await leader.node.export()
        second = await leader.node.export()
        assert second.info == first.info
        await cluster.put(b"two")
        third = await leader.node.export()
        assert third.info.index > first.info.index
        assert (await read(first))[0].index == first.info.index, "it is readable still"
        for export in (first, second, third):
            export.close()


async def test_several_that_want_one_at_once_get_one_that_has_what_each_wanted(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, QUICK) as cluster:
        leader = await cluster.leader()
        await cluster.put(b"x" * 100_000)

        async def want(number: int) -> tuple[int, int]:
            await cluster.put(b"of %d" % number)
            applied = leader.node.status().applied_index
            export = await leader.node.export()
            index = export.info.index
            export.close()
            return applied, index

        for applied, index in await asyncio.gather(*map(want, range(8))):
            assert index >= applied


async def test_whoever_waits_when_the_node_stops_is_told_so(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, QUICK) as cluster:
        leader = await cluster.leader()
        await cluster.put(b"one")
        wanted = asyncio.ensure_future(leader.node.export())
        await asyncio.sleep(0)  # it has asked, and nothing has been made yet
        raft = leader.node
        await leader.kill()
        with pytest.raises(RaftError, match="stops"):
            await wanted
        with pytest.raises(RaftError, match="stops"):
            await raft.export()
