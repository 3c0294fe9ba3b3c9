"""Backups, and the small files beside a journal: who the members were at first, which restore it was."""

import functools
import io
import sys
from pathlib import Path

from fuzz_kit import NESTED, PACKED_WORDS, Bytes, Target, edit, edited

from tenure_cluster.raft import members_file, origin_file
from tenure_cluster.raft.codec import pack
from tenure_cluster.raft.members_file import MembersDiffer
from tenure_cluster.raft.origin_file import OriginDamaged
from tenure_cluster.service.backup_format import BackupDamaged, _Reader

sys.path.append(str(Path(__file__).resolve().parents[1] / "raft"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "service"))
from backup_files import backup_bytes
from disk_model import ModelDisk


@functools.cache
def real_backup() -> bytes:
    return backup_bytes()


def check_backup(data: bytes) -> bool:
    """A backup in which one byte is not as it was is none, whichever it is."""
    script = Bytes(data)
    content = script.rest() if script.number() % 2 else edited(real_backup(), script)
    try:
        reader = _Reader(Path("backup"), io.BytesIO(content))
        chunks = list(reader.chunks())
    except BackupDamaged as damage:
        assert damage.why
        return False
    assert content == real_backup(), "a changed backup was taken"
    assert chunks
    assert reader.info is not None
    return True


def check_small_files(data: bytes) -> bool:
    """They say what was written in them, or that they are damaged."""
    disk = ModelDisk()
    taken = 0
    disk.overwrite(members_file.NAME, data)
    try:
        names = members_file.first_members(disk, ["n1"], joins=False)
        assert all(isinstance(name, str) for name in names)
        taken += 1
    except MembersDiffer:
        pass
    disk.overwrite(origin_file.NAME, data)
    try:
        known = origin_file.known_as("cluster", disk)
        assert origin_file.configured_name(known) == "cluster"
        assert known.isascii()
        taken += 1
    except OriginDamaged:
        pass
    assert disk.read(members_file.NAME) == data
    return taken > 0


def backup_seeds() -> list[bytes]:
    real = real_backup()
    flips = [b"\0" + edit(2, at, 1) for at in (*range(0, 200, 9), len(real) - 60, len(real) - 1)]
    return [b"\0", *flips, b"\0" + edit(5, 300), b"\1" + real]


def small_file_seeds() -> list[bytes]:
    return [pack(["n1", "n2", "n3"]), pack([]), pack("abcdef-1"), pack("r" * 33)]


BACKUP = Target("backup", check_backup, backup_seeds, (*PACKED_WORDS, b"TENUREB\n", b"TENURES\n"), 4096)
SMALL_FILES = Target("small_files", check_small_files, small_file_seeds, (*PACKED_WORDS, NESTED), 2048)
