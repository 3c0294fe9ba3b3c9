"""A new cluster from a backup, and a backup from what a lost cluster left behind. Offline, both.

Restoring makes a node's data directory as if that node had, with all others of the new cluster, just
installed a snapshot: the backup's state, put back (lease/restoration.py), at the backup's index and term.
Every node is restored for itself from the same file, and gets the same bytes of state; so they agree from the
beginning.

The directory is written in an order in which a node never starts from a part of it: a snapshot without a
journal is refused, and the journal comes last.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure_cluster import __version__
from tenure_cluster.inspection import Contents
from tenure_cluster.lease.restoration import Restoration, RestoreImpossible, put_back
from tenure_cluster.lease.snapshot import SnapshotDamaged as StateDamaged
from tenure_cluster.lease.snapshot import dump, load
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.pid_file import PID_FILE_NAME
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import LOCK_NAME, DirectoryInUse, SystemDisk
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.log import Entry
from tenure_cluster.raft.members_file import first_members
from tenure_cluster.raft.messages import NO_OP
from tenure_cluster.raft.origin_file import configured_name, with_origin, write_origin
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.raft.snapshot_format import SnapshotInfo, encode_chunk
from tenure_cluster.raft.snapshot_format import encode_head as encode_snapshot_head
from tenure_cluster.service.backup_format import (
    Backup,
    BackupDamaged,
    BackupHeader,
    encode_head,
    encode_trailer,
)
from tenure_cluster.settings import Config

CLOCK_TOLERANCE_MS: Final = 60_000
"""So much earlier than a backup was made the clock of the machine may be that restores it."""

FORM: Final = "2"
"""Another one whenever another state comes of the same file: 2 has an audit of what was ended."""

NOT_COUNTED: Final = frozenset({PID_FILE_NAME, LOCK_NAME, "lost+found"})
"""What a directory may hold and be empty all the same."""


class RestoreRefused(Exception):
    """Nothing was restored; the message is one line that says why, and what to do."""


@dataclass(frozen=True)
class Restored:
    """What was made."""

    header: BackupHeader
    restoration: Restoration
    known_as: str
    """The name by which the nodes of the new cluster know it."""
    records: int
    credentials: int


def restore(
    path: Path,
    config: Config,
    *,
    token_floor: int = 0,
    restore_id: str | None = None,
    from_cluster: str | None = None,
    now_ms: int,
) -> Restored:
    """Make the data directory of `config` from a backup. `now_ms` is this machine's wall clock; it is only
    looked at to see whether it can be right.

    Raises RestoreRefused, BackupDamaged or OSError. Refusals come before anything is written.
    """
    backup = Backup(path)
    header = backup.header
    expected = config.cluster_id if from_cluster is None else from_cluster
    if configured_name(header.cluster_id) != expected:
        raise RestoreRefused(
            f"{path}: it is of cluster {configured_name(header.cluster_id)!r}, and the configuration is of "
            f"{expected!r}; if that is meant, add --from-cluster {configured_name(header.cluster_id)}"
        )
    if now_ms < header.made_wall_ms - CLOCK_TOLERANCE_MS and not token_floor:
        raise RestoreRefused(
            f"{path}: it was made {(header.made_wall_ms - now_ms) // 1000} s after the present time of this "
            "machine: set its clock, since tokens rise by it; or give a --token-floor above all that were "
            "issued"
        )
    _refuse_filled(config.data_dir)
    table = _put_back(backup, token_floor)
    assert table.restoration is not None, "it was put back"
    known = with_origin(config.cluster_id, restore_id or _default_id(backup, config, token_floor))
    _write(config, known, header, lambda: dump(table))
    return Restored(header, table.restoration, known, len(table.records), len(table.credentials))


def _put_back(backup: Backup, token_floor: int) -> LeaseTable:
    try:
        table = load(backup.chunks())
        put_back(table, made_wall_ms=backup.header.made_wall_ms, token_floor=token_floor)
    except StateDamaged as error:
        raise BackupDamaged(backup.path, f"it is damaged: {error}") from error
    except RestoreImpossible as error:
        raise RestoreRefused(f"{backup.path}: {error}") from error
    return table


def _default_id(backup: Backup, config: Config, token_floor: int) -> str:
    """The same on all nodes that are restored from the same file, with the same members and floor, by
    programs that make the same of it."""
    same = [FORM, backup.digest.hex(), str(token_floor), config.cluster_id]
    what = "\0".join([*same, *sorted(config.members)])
    return hashlib.sha256(what.encode()).hexdigest()[:12]


def _refuse_filled(data_dir: Path) -> None:
    try:
        present = sorted(set(os.listdir(data_dir)) - NOT_COUNTED)
    except FileNotFoundError:
        return
    if present:
        raise RestoreRefused(
            f"data_dir = {str(data_dir)!r} is not empty ({', '.join(present[:3])}): a restore begins a new "
            "node; move away what is there, or set another data_dir"
        )


def _write(config: Config, known: str, header: BackupHeader, state: Callable[[], Iterator[bytes]]) -> None:
    boundary = _boundary(header.index, header.term)
    previous, last = boundary
    disk = SystemDisk(config.data_dir)
    try:
        try:
            disk.lock()
        except DirectoryInUse as error:
            raise RestoreRefused(f"{error}: stop it first") from error
        write_origin(disk, known.partition("+")[2])
        first_members(disk, config.members, joins=False)
        writer = SnapshotStore(disk, known).writer(last, previous)
        for chunk in state():
            writer.append(chunk)
        writer.commit()
        journal = Journal.open(
            disk,
            SystemClock(),
            cluster_id=known,
            node_id=config.node_id,
            segment_bytes=config.raft.journal_segment_bytes,
            snapshot=None,
        )
        journal.rebase(boundary)
        journal.setCurrentTerm(header.term, None)
        journal.sync_now()
        journal.close()
        disk.sync_directory()
    finally:
        disk.close()


def _boundary(index: int, term: int) -> tuple[Entry, Entry]:
    """The two entries that a log begins with behind a snapshot. What they once said is in the state."""
    return (NO_OP, index - 1, term), (NO_OP, index, term)


def recover(contents: Contents, path: Path, *, now_ms: int) -> BackupHeader:
    """Make a backup of what a stopped node holds, down to the last entry of its log, whether that was
    committed or not: what was acknowledged by the lost nodes may be among it, and what was not is of those
    whose callers were told that the outcome is unknown.

    The file is complete and durable when this returns, and not there when it raises. Raises OSError.
    """
    index = contents.last_index
    if index < 2:
        raise RestoreRefused(f"{contents.directory}: the node holds nothing yet")
    replica = contents.replica_at(index)
    term = contents.last_term
    previous, last = _boundary(index, term)
    snapshot = list(_snapshot(SnapshotInfo(contents.cluster_id, previous, last), dump(replica.table)))
    header = BackupHeader(
        cluster_id=contents.cluster_id,
        node_id=contents.node_id,
        index=index,
        term=term,
        cluster_time_ms=replica.table.time_ms,
        members=[],
        made_wall_ms=now_ms,
        version=__version__,
        snapshot_bytes=sum(map(len, snapshot)),
    )
    sha = hashlib.sha256()
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in (encode_head(header), *snapshot):
                sha.update(piece)
                file.write(piece)
            file.write(encode_trailer(sha.digest()))
            file.flush()
            os.fsync(file.fileno())
        _name(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return header


def _name(unfinished: Path, path: Path) -> None:
    """Give a file its name, which must not be another's. Raises OSError."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links, as those of sticks and shares are
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(unfinished, path)


def _snapshot(info: SnapshotInfo, chunks: Iterator[bytes]) -> Iterator[bytes]:
    sha = hashlib.sha256()
    for piece in (encode_snapshot_head(info), *(encode_chunk(chunk) for chunk in chunks), encode_chunk(b"")):
        sha.update(piece)
        yield piece
    yield sha.digest()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
