"""The file of a backup: whole, or refused by one line that says why."""

import hashlib
import zlib
from pathlib import Path

import pytest
from backup_files import INDEX, TERM, backup_bytes, header_of, snapshot_bytes, some_state, write_backup

from tenure_cluster.lease.snapshot import dump, load
from tenure_cluster.service import backup_format
from tenure_cluster.service.backup_format import (
    TRAILER_BYTES,
    Backup,
    BackupDamaged,
    encode_head,
    encode_trailer,
)

PREFIX_BYTES = 20


def why(path: Path) -> str:
    with pytest.raises(BackupDamaged) as caught:
        list(Backup(path).chunks())
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    return told


def reading(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return why(path)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    machine = some_state("a", "b", "c")
    backup = Backup(write_backup(tmp_path / "b", machine))
    assert (backup.header.index, backup.header.term) == (INDEX, TERM) == (backup.info.index, backup.info.term)
    assert list(dump(load(backup.chunks()))) == list(dump(machine.table))


def test_two_backups_have_the_same_digest_only_if_they_are_the_same(tmp_path: Path) -> None:
    one, same = (Backup(write_backup(tmp_path / name)) for name in ("one", "same"))
    other = Backup(write_backup(tmp_path / "other", made_wall_ms=1))
    assert one.digest == same.digest != other.digest


def test_no_byte_of_a_file_can_change(tmp_path: Path) -> None:
    whole = backup_bytes()
    path = tmp_path / "b"
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        reading(path, bytes(damaged))


def test_a_file_that_is_cut_anywhere_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    whole = backup_bytes()
    path = tmp_path / "b"
    assert "not a backup" in reading(path, b"")
    for size in range(1, len(whole)):
        told = reading(path, whole[:size])
        assert "it is cut off" in told, (size, told)


def test_a_file_with_something_behind_its_end_is_refused(tmp_path: Path) -> None:
    assert "something follows its end" in reading(tmp_path / "b", backup_bytes() + b"\0")


@pytest.mark.parametrize("content", [b"\n", b"PK\x03\x04" + bytes(100), b"TENURES\n" + bytes(100), b"{}"])
def test_a_foreign_file_is_told_as_such(tmp_path: Path, content: bytes) -> None:
    assert "it is not a backup made by tenure" in reading(tmp_path / "b", content)


def test_a_format_of_another_version_is_named(tmp_path: Path) -> None:
    whole = backup_bytes()
    newer = whole[:8] + (9).to_bytes(4, "little") + whole[12:]
    assert "format version 9, and this program reads 1" in reading(tmp_path / "b", newer)


def test_a_header_that_is_not_that_of_its_snapshot_is_refused(tmp_path: Path) -> None:
    snapshot = snapshot_bytes(dump(some_state("a").table))
    for fields in ({"index": INDEX + 1}, {"term": TERM + 1}, {"cluster_id": "else"}):
        data = encode_head(header_of(snapshot, **fields)) + snapshot
        told = reading(tmp_path / "b", data + encode_trailer(hashlib.sha256(data).digest()))
        assert "the header is not that of the snapshot" in told


@pytest.mark.parametrize("size", [0, -1, 1 << 50])
def test_a_snapshot_of_an_impossible_size_is_refused_before_it_is_read(tmp_path: Path, size: int) -> None:
    data = encode_head(header_of(b"", snapshot_bytes=size))
    assert "is not possible" in reading(tmp_path / "b", data + bytes(TRAILER_BYTES))


def test_a_header_of_another_shape_is_refused(tmp_path: Path) -> None:
    body = b"\x80"
    head = backup_format._PREFIX.pack(backup_format._MAGIC, 1, len(body), zlib.crc32(body))
    assert "the header cannot be decoded" in reading(tmp_path / "b", head + body)


def test_a_later_version_may_say_more_in_its_header(tmp_path: Path) -> None:
    import msgspec

    snapshot = snapshot_bytes(dump(some_state("a").table))
    known = msgspec.msgpack.decode(msgspec.msgpack.encode(header_of(snapshot)))
    body = msgspec.msgpack.encode({**known, "weather": "fair"})
    head = backup_format._PREFIX.pack(backup_format._MAGIC, 1, len(body), zlib.crc32(body))
    data = head + body + snapshot
    (tmp_path / "b").write_bytes(data + encode_trailer(hashlib.sha256(data).digest()))
    assert Backup(tmp_path / "b").header.index == INDEX


def test_a_file_that_changes_while_it_is_used_is_noticed(tmp_path: Path) -> None:
    path = write_backup(tmp_path / "b")
    backup = Backup(path)
    write_backup(path, some_state("another"))
    with pytest.raises(BackupDamaged, match="changed while it was read"):
        list(backup.chunks())


def test_the_client_knows_the_end_of_a_file() -> None:
    from tenure import _backup

    assert encode_trailer(b"d" * 32) == _backup.END + b"d" * 32
    assert _backup.TRAILER_BYTES == TRAILER_BYTES
