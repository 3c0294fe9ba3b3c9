"""A stopped node's data directory can be read, and is left as it was."""

from pathlib import Path

import pytest
from conclusion import new_load, progress
from live_cluster import LiveCluster

from tenure_cluster.inspection import NothingThere, read_contents
from tenure_cluster.raft.segment import JournalDamaged


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.process
async def test_a_killed_node_s_state_can_be_rebuilt_and_nothing_is_changed(tmp_path: Path) -> None:
    settings = {
        "raft": {"snapshot_entries": 100, "journal_segment_bytes": 128 << 10, "entry_bytes_max": 128 << 10}
    }
    async with LiveCluster(tmp_path, nodes=1, settings=settings) as cluster:
        node = cluster.nodes["n1"]
        load = new_load(cluster)
        load.start(writers=4, keys=8, holders=1)
        try:
            await progress(load, 400)
            cluster.kill(node)
            before = bytes_of(node.data_dir)
            contents = read_contents(node.data_dir, "live", "n1")
            assert contents.snapshot_index > 0
            assert contents.last_index > contents.snapshot_index
            assert contents.voted_for == "n1"
            assert contents.term_at(contents.last_index) == contents.term

            oldest = contents.replica_at(contents.snapshot_index)
            newest = contents.replica_at(contents.last_index)
            assert (oldest.applied_index, newest.applied_index) == (
                contents.snapshot_index,
                contents.last_index,
            )
            assert newest.time_ms >= oldest.time_ms
            assert newest.digest() != oldest.digest()
            assert newest.table.holders("default", "hold/0")[0].lease.owner.startswith("h0-")
            for index in (contents.snapshot_index - 1, contents.last_index + 1):
                with pytest.raises(ValueError, match="can be rebuilt at"):
                    contents.replica_at(index)
            assert bytes_of(node.data_dir) == before

            with pytest.raises(JournalDamaged, match="'n1'"):
                read_contents(node.data_dir, "live", "n2")
        finally:
            load.close()


def test_a_directory_without_a_journal_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingThere):
        read_contents(tmp_path, "live", "n1")
    with pytest.raises(NothingThere):
        read_contents(tmp_path / "absent", "live", "n1")
