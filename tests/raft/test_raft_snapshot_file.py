"""Snapshot files: whole or not there, checked in full, and never replaced by an older one."""

import asyncio
import errno
import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_model import ModelDisk, PowerLost

from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.raft.log import Entry
from tenure_cluster.raft.snapshot_file import SnapshotInfo, SnapshotReceiver, SnapshotStore
from tenure_cluster.raft.snapshot_format import CHUNK_BYTES_MAX, SnapshotDamaged, encode_chunk, encode_head

PREVIOUS: Entry = (b"previous", 41, 2)
LAST: Entry = (b"last", 42, 3)
CHUNKS = [b"first chunk", b"x" * 3000, b"\0" * 600, b"the end"]


def save(store: SnapshotStore, last: Entry = LAST, chunks: list[bytes] = CHUNKS) -> SnapshotInfo:
    writer = store.writer(last, (b"previous", last[1] - 1, PREVIOUS[2]))
    for chunk in chunks:
        writer.append(chunk)
    info = writer.commit()
    store.adopt(info)
    store.remove_older(info)
    return info


def store_on(disk: ModelDisk, cluster_id: str = "cluster") -> SnapshotStore:
    return SnapshotStore(disk, cluster_id)


def test_without_a_snapshot_there_is_none() -> None:
    assert store_on(ModelDisk()).latest() is None


def test_a_snapshot_says_what_it_covers_and_gives_back_its_chunks() -> None:
    disk = ModelDisk()
    saved = save(store_on(disk))
    assert disk.names() == ["snapshot-00000000000000000042.snap"]
    disk.kill()
    store = store_on(disk)
    info = store.latest()
    assert info == saved
    assert info is not None
    assert info.boundary == (PREVIOUS, LAST)
    assert (info.index, info.term, info.prev_index, info.prev_term) == (42, 3, 41, 2)
    assert info.size == len(disk.read(info.name))
    assert list(store.chunks(info)) == CHUNKS
    assert store.latest() is info


def test_an_empty_state_is_a_snapshot_too() -> None:
    disk = ModelDisk()
    save(store_on(disk), chunks=[b""])
    store = store_on(disk)
    info = store.latest()
    assert info is not None
    assert list(store.chunks(info)) == []


def test_a_large_state_is_written_and_synced_in_slices() -> None:
    disk = ModelDisk()
    chunks = [random.Random(n).randbytes(300_000) for n in range(15)]
    before = disk.syncs
    store = store_on(disk)
    info = save(store, chunks=chunks)
    assert disk.syncs - before >= 4
    assert list(store.chunks(info)) == chunks


def test_a_chunk_above_the_bound_is_refused_naming_it() -> None:
    writer = store_on(ModelDisk()).writer(LAST, PREVIOUS)
    with pytest.raises(ValueError, match=str(CHUNK_BYTES_MAX)):
        writer.append(bytes(CHUNK_BYTES_MAX + 1))


def test_a_newer_snapshot_replaces_the_older_one() -> None:
    disk = ModelDisk()
    store = store_on(disk)
    save(store)
    newer = save(store, (b"l", 50, 3), [b"newer"])
    assert store.latest() == newer
    assert disk.names() == ["snapshot-00000000000000000050.snap"]
    disk.kill()
    assert store_on(disk).latest() == newer


def test_a_reader_of_the_older_snapshot_reads_on() -> None:
    disk = ModelDisk()
    store = store_on(disk)
    older = save(store)
    content = disk.read(older.name)
    reader = store.reader(older)
    save(store, (b"l", 50, 3), [b"newer"])
    assert reader.size == len(content)
    assert reader.read_at(100, 10_000) == content[100:]
    reader.close()
    with pytest.raises(FileNotFoundError):
        store.reader(older)


def test_any_changed_byte_is_noticed() -> None:
    disk = ModelDisk()
    name = save(store_on(disk)).name
    content = disk.read(name)
    for position in range(len(content)):
        for value in {content[position] ^ 0x01, content[position] ^ 0x80, 0x00, 0xFF} - {content[position]}:
            disk.overwrite(name, content[:position] + bytes([value]) + content[position + 1 :])
            with pytest.raises(SnapshotDamaged) as refused:
                store_on(disk).latest()
            assert refused.value.file == name
            assert name in str(refused.value)


def test_any_missing_or_additional_byte_is_noticed() -> None:
    disk = ModelDisk()
    name = save(store_on(disk)).name
    content = disk.read(name)
    for changed in itertools.chain((content[:length] for length in range(len(content))), [content + b"\0"]):
        disk.overwrite(name, changed)
        with pytest.raises(SnapshotDamaged, match=name):
            store_on(disk).latest()


def test_a_damaged_newest_snapshot_is_not_replaced_by_an_older_one() -> None:
    disk = ModelDisk()
    older = save(store_on(disk))
    content = disk.read(older.name)
    newer = save(store_on(disk), (b"l", 50, 3))
    disk.overwrite(older.name, content)
    disk.overwrite(newer.name, disk.read(newer.name)[:-1] + b"\0")
    with pytest.raises(SnapshotDamaged, match=newer.name):
        store_on(disk).latest()
    assert disk.names() == [older.name, newer.name]  # and nothing is tidied up


def test_damage_that_comes_after_the_start_is_noticed_at_the_end_of_the_chunks() -> None:
    disk = ModelDisk()
    store = store_on(disk)
    info = save(store)
    content = bytearray(disk.read(info.name))
    content[2000] ^= 1
    disk.overwrite(info.name, bytes(content))
    with pytest.raises(SnapshotDamaged):
        list(store.chunks(info))


def test_a_snapshot_of_another_cluster_or_name_is_refused() -> None:
    disk = ModelDisk()
    name = save(store_on(disk)).name
    with pytest.raises(SnapshotDamaged, match="of cluster 'cluster', not 'other'"):
        store_on(disk, "other").latest()
    disk.rename(name, "snapshot-00000000000000000099.snap")
    with pytest.raises(SnapshotDamaged, match="written as"):
        store_on(disk).latest()


def test_entries_that_do_not_follow_one_another_make_no_snapshot() -> None:
    disk = ModelDisk()
    writer = store_on(disk).writer(LAST, (b"previous", 40, 2))
    writer.commit()
    with pytest.raises(SnapshotDamaged, match="shape"):
        store_on(disk).latest()


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_anywhere_leaves_the_older_or_the_newer_snapshot(seed: int) -> None:
    for operations in itertools.count():
        disk = ModelDisk()
        older = save(store_on(disk))
        disk.fail_after(operations)
        newer: SnapshotInfo | None = None
        try:
            newer = save(store_on(disk), (b"l", 50, 3), [b"newer"])
        except PowerLost:
            pass
        disk.lose_power(random.Random(seed))
        store = store_on(disk)
        found = store.latest()
        assert found is not None
        if newer is not None:
            assert found == newer
            break
        assert found.index in (older.index, 50)
        assert list(store.chunks(found)) == (CHUNKS if found.index == 42 else [b"newer"])
        assert disk.names() == [found.name]
    assert operations > 5


# -- in the background


def counted(chunks: list[bytes], drawn: list[int]) -> Iterator[bytes]:
    for number, chunk in enumerate(chunks):
        drawn.append(number)
        yield chunk


def test_a_background_save_draws_a_slice_at_a_time_and_ends_with_the_latest() -> None:
    disk = ModelDisk()
    store = store_on(disk)
    chunks = [bytes([n]) * 400_000 for n in range(9)]
    drawn: list[int] = []
    ended: list[tuple[SnapshotInfo | None, BaseException | None]] = []
    store.save(LAST, PREVIOUS, counted(chunks, drawn), lambda info, error: ended.append((info, error)))
    assert len(drawn) == 2
    disk.work(1)
    assert len(drawn) == 4
    assert store.latest() is None
    disk.work()
    info = store.latest()
    assert info is not None
    assert ended == [(info, None)]
    assert list(store.chunks(info)) == chunks
    assert disk.names() == [info.name]


def test_a_full_disk_ends_the_save_and_keeps_the_older_snapshot() -> None:
    disk = ModelDisk(space_bytes=2 << 20)
    store = store_on(disk)
    older = save(store)
    ended: list[BaseException | None] = []
    store.save((b"l", 50, 3), PREVIOUS, [bytes(500_000)] * 9, lambda info, error: ended.append(error))
    disk.work()
    assert isinstance(ended[0], OSError)
    assert ended[0].errno == errno.ENOSPC
    assert store.latest() == older
    assert disk.names() == [older.name]


def test_an_error_of_the_state_machine_ends_the_save() -> None:
    disk = ModelDisk()
    store = store_on(disk)

    def chunks() -> Iterator[bytes]:
        yield bytes(2 << 20)
        raise RuntimeError("no more")

    ended: list[BaseException | None] = []
    store.save(LAST, PREVIOUS, chunks(), lambda info, error: ended.append(error))
    disk.work()
    assert [str(error) for error in ended] == ["no more"]
    assert disk.names() == []


def test_a_cancelled_save_leaves_nothing_and_reports_nothing() -> None:
    disk = ModelDisk()
    store = store_on(disk)
    ended: list[object] = []
    saving = store.save(LAST, PREVIOUS, [bytes(1 << 20)] * 4, lambda info, error: ended.append(error))
    disk.work(2)
    saving.cancel()
    disk.work()
    assert disk.names() == []
    assert store.latest() is None
    assert ended == []


async def test_a_save_on_the_real_disk(tmp_path: Path) -> None:
    disk = SystemDisk(tmp_path)
    store = SnapshotStore(disk, "cluster")
    future: asyncio.Future[SnapshotInfo] = asyncio.get_running_loop().create_future()
    chunks = [random.Random(n).randbytes(100_000) for n in range(40)]
    store.save(LAST, PREVIOUS, chunks, lambda info, error: future.set_result(info))  # type: ignore[arg-type]
    info = await future
    disk.close()
    disk = SystemDisk(tmp_path)
    store = SnapshotStore(disk, "cluster")
    assert store.latest() == info
    assert list(store.chunks(info)) == chunks
    disk.close()


# -- received from another node


def sent() -> bytes:
    disk = ModelDisk()
    info = save(store_on(disk), (b"l", 60, 4), [b"sent" * 1000, b"\0" * 5000, b"z"])
    return disk.read(info.name)


def receive(receiver: SnapshotReceiver, content: bytes, piece: int) -> None:
    for offset in range(0, len(content), piece):
        receiver.write(offset, content[offset : offset + piece])


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
def test_a_received_snapshot_becomes_the_latest_when_it_is_durable(piece: int) -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    save(store)
    receiver = store.receiver(len(content))
    receive(receiver, content, piece)
    assert receiver.info is not None
    assert receiver.info.index == 60
    assert store.latest() != receiver.info
    ended: list[SnapshotInfo | None] = []
    receiver.install(lambda info, error: ended.append(info))
    disk.work()
    assert ended == [receiver.info]
    assert store.latest() == receiver.info
    assert disk.names() == [receiver.info.name]
    disk.lose_power(random.Random(1))
    assert disk.read(receiver.info.name) == content


def test_a_received_snapshot_can_be_installed_at_once() -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    receiver = store.receiver(len(content))
    receive(receiver, content, 500)
    info = receiver.install_now()
    assert store.latest() == info
    assert list(store.chunks(info)) == [b"sent" * 1000, b"\0" * 5000, b"z"]


@pytest.mark.parametrize("seed", range(6))
def test_an_installed_snapshot_outlives_a_loss_of_power(seed: int) -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    receiver = store.receiver(len(content))
    receive(receiver, content, 500)
    info = receiver.install_now()
    disk.lose_power(random.Random(seed))
    assert store_on(disk).latest() == info


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_that_was_found_at_the_start_outlives_a_loss_of_power(seed: int) -> None:
    disk = ModelDisk()
    writer = store_on(disk).writer(LAST, PREVIOUS)
    disk.fail_after(4)
    with pytest.raises(PowerLost):
        writer.commit()
    disk.kill()  # the process ended between the renaming and the sync of the directory
    info = store_on(disk).latest()
    assert info is not None
    disk.lose_power(random.Random(seed))
    assert store_on(disk).latest() == info


def test_a_large_transfer_is_synced_on_the_way() -> None:
    source = ModelDisk()
    info = save(store_on(source), chunks=[random.Random(n).randbytes(500_000) for n in range(10)])
    content = source.read(info.name)
    disk = ModelDisk()
    receiver = store_on(disk).receiver(len(content))
    receive(receiver, content, 256 << 10)
    disk.work()
    assert disk.syncs >= 4
    assert receiver.install_now() == info


def test_no_changed_byte_can_be_installed() -> None:
    content = sent()
    for position in range(0, len(content), 3):
        store = store_on(ModelDisk())
        receiver = store.receiver(len(content))
        changed = content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]
        with pytest.raises(SnapshotDamaged):
            receive(receiver, changed, 2000)
        assert receiver.info is None
        with pytest.raises(RuntimeError, match="not complete"):
            receiver.install_now()
        assert store.latest() is None


def test_pieces_out_of_order_or_beyond_the_end_are_refused() -> None:
    content = sent()
    for offset, data in ((10, b"x"), (0, content + b"x")):
        with pytest.raises(SnapshotDamaged, match="do not follow"):
            store_on(ModelDisk()).receiver(len(content)).write(offset, data)


def test_a_snapshot_that_is_shorter_than_it_said_is_refused() -> None:
    content = sent()
    with pytest.raises(SnapshotDamaged, match="before it is complete"):
        receive(store_on(ModelDisk()).receiver(len(content) - 5), content[:-5], 1000)


def test_a_snapshot_of_another_cluster_is_not_received() -> None:
    content = sent()
    with pytest.raises(SnapshotDamaged, match="of cluster 'cluster', not 'other'"):
        receive(store_on(ModelDisk(), "other").receiver(len(content)), content, 1000)


@pytest.mark.parametrize("size", [0, -1, 1 << 50])
def test_an_impossible_size_is_refused(size: int) -> None:
    disk = ModelDisk()
    with pytest.raises(SnapshotDamaged, match=str(size)):
        store_on(disk).receiver(size)
    assert disk.names() == []


def test_an_abandoned_transfer_leaves_nothing_and_a_new_one_may_begin_at_once() -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    first = store.receiver(len(content))
    first.write(0, content[:3000])
    first.abandon()
    second = store.receiver(len(content))
    receive(second, content, 1000)
    disk.work()
    info = second.install_now()
    assert disk.names() == [info.name]


def test_a_failed_sync_on_the_way_prevents_the_installation() -> None:
    source = ModelDisk()
    info = save(store_on(source), chunks=[bytes(500_000)] * 5)
    content = source.read(info.name)
    disk = ModelDisk()
    store = store_on(disk)
    receiver = store.receiver(len(content))
    disk.sync_error = OSError(errno.EIO, "broken")
    receive(receiver, content, 256 << 10)
    disk.work()
    disk.sync_error = None
    errors: list[BaseException | None] = []
    receiver.install(lambda info, error: errors.append(error))
    disk.work()
    assert isinstance(errors[0], OSError)
    assert store.latest() is None


def test_a_save_that_ends_after_a_newer_snapshot_was_received_changes_nothing() -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    store.save(LAST, PREVIOUS, [bytes(1 << 20)], lambda info, error: None)
    receiver = store.receiver(len(content))
    receive(receiver, content, 1000)
    newer = receiver.install_now()
    disk.work()
    assert store.latest() == newer
    assert list(store.chunks(newer))
    disk.kill()
    assert store_on(disk).latest() == newer
    assert disk.names() == [newer.name]


def test_looking_for_the_latest_does_not_disturb_what_is_under_way() -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    store.save(LAST, PREVIOUS, [bytes(2 << 20)], lambda info, error: None)
    receiver = store.receiver(len(content))
    disk.work(1)
    assert store.latest() is None
    assert len(disk.names()) == 2
    disk.work()
    assert store.latest() is not None
    receiver.abandon()


def test_what_earlier_processes_left_is_removed_at_the_start() -> None:
    disk, content = ModelDisk(), sent()
    store = store_on(disk)
    info = save(store)
    store.receiver(len(content)).write(0, content[:3000])
    writer = store.writer((b"l", 50, 3), PREVIOUS)
    writer.append(bytes(2 << 20))
    disk.kill()
    assert len(disk.names()) == 3
    assert store_on(disk).latest() == info
    assert disk.names() == [info.name]


def test_a_snapshot_with_members_is_not_for_programs_that_know_of_none() -> None:
    """They would pass over them and go on with the members of their configuration."""
    for members, version in (((), 1), ((b"members",), 2)):
        disk = ModelDisk()
        writer = store_on(disk).writer(LAST, PREVIOUS, members)
        writer.append(b"state")
        info = writer.commit()
        content = disk.read(info.name)
        assert int.from_bytes(content[8:12], "little") == version
        found = store_on(disk).latest()
        assert found is not None
        assert found.members == members
        newer = content[:8] + b"\3" + content[9:]
        disk.overwrite(info.name, newer)
        with pytest.raises(SnapshotDamaged, match="format version 3 is unknown"):
            store_on(disk).latest()


def test_a_snapshot_with_members_that_was_written_as_version_1_is_read() -> None:
    """As it was before there was a version 2."""
    disk = ModelDisk()
    info = SnapshotInfo("cluster", PREVIOUS, LAST, (b"members",))
    data = bytearray(encode_head(info) + encode_chunk(b""))
    data[8] = 1
    disk.overwrite(info.name, bytes(data) + hashlib.sha256(data).digest())
    found = store_on(disk).latest()
    assert found is not None
    assert found.members == (b"members",)
