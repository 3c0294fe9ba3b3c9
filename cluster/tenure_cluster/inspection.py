"""What a stopped node's data directory holds, read without changing a byte of it.

A replica is rebuilt as the node itself would: the newest snapshot, then the journal's entries after it.
Which of the last entries were committed is not kept on a disk (in Raft it never is), so a rebuilt replica
is only comparable up to an index that is known to be committed; after a quiet stop of the whole cluster
that is the last one of every log.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenure_cluster.lease.commands import decode
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.pid_file import running_pid
from tenure_cluster.raft.disk import LOCK_NAME, DiskFile, Done
from tenure_cluster.raft.log import Entry
from tenure_cluster.raft.membership import decode_members
from tenure_cluster.raft.messages import decode_entry
from tenure_cluster.raft.recovery import SEGMENT_PREFIX, SEGMENT_SUFFIX, Repair, recover
from tenure_cluster.raft.segment import decode_header
from tenure_cluster.raft.snapshot_file import SnapshotInfo, SnapshotStore
from tenure_cluster.service.replica import Replica

SECTIONS: Final = ("tenants", "leases", "sessions", "waiters", "keys", "records", "credentials", "quotas")
"""Of the state, those whose sizes are told."""


class NothingThere(Exception):
    """The directory holds no journal."""


class NodeRunning(Exception):
    """A node works in the directory: what is read beside it is neither here nor there."""


@dataclass(frozen=True)
class Contents:
    """One node's durable state."""

    node_id: str
    term: int
    voted_for: str | None
    snapshot_index: int
    """0 if there is no snapshot."""
    snapshot: SnapshotInfo | None
    entries: tuple[Entry, ...]
    """The log after (and around the end of) the snapshot, as (command, index, term)."""
    torn: Repair | None
    """What the node would take away from the journal's end when it starts."""
    directory: Path
    cluster_id: str

    @property
    def last_index(self) -> int:
        return self.entries[-1][1] if self.entries else self.snapshot_index

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        if self.entries:
            return self.entries[-1][2]
        return self.snapshot.term if self.snapshot is not None else 0

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None if the log does not reach there."""
        for _, entry_index, term in reversed(self.entries):
            if entry_index == index:
                return term
        return None

    def replica_at(self, index: int) -> Replica:
        """The state after applying everything up to and including `index`, which the log must reach."""
        if not self.snapshot_index <= index <= self.last_index:
            raise ValueError(
                f"{self.node_id} can be rebuilt at {self.snapshot_index} to {self.last_index}, not {index}"
            )
        replica = Replica()
        store = SnapshotStore(_ReadOnlyDisk(self.directory), self.cluster_id)
        info = store.latest()
        if info is not None:
            replica.restore(store.chunks(info), info.index)
        for command, entry_index, _ in self._after(self.snapshot_index, index):
            replica.apply(entry_index, decode_entry(command))
        return replica

    def _after(self, first: int, last: int) -> Iterator[Entry]:
        return (entry for entry in self.entries if first < entry[1] <= last)


def read_contents(directory: Path, cluster_id: str, node_id: str) -> Contents:
    """Read a stopped node's data directory. Raises NothingThere, JournalDamaged, SnapshotDamaged, OSError."""
    disk = _ReadOnlyDisk(directory)
    recovered = recover(disk, cluster_id, node_id)
    if recovered is None:
        raise NothingThere(f"{directory} holds no journal")
    info = SnapshotStore(disk, cluster_id).latest()
    return Contents(
        node_id=node_id,
        term=recovered.log.term,
        voted_for=recovered.log.voted_for,
        snapshot_index=info.index if info is not None else 0,
        snapshot=info,
        entries=tuple(recovered.log.entries),
        torn=recovered.repair,
        directory=directory,
        cluster_id=cluster_id,
    )


def read_stopped(directory: Path) -> Contents:
    """The same, of whichever node the directory is: its journal says. Raises NodeRunning too."""
    pid = running_pid(directory)
    if pid is not None:
        raise NodeRunning(f"{directory}: a node runs on it, as process {pid}: stop it first (kill {pid})")
    segments = [
        name
        for name in _ReadOnlyDisk(directory).names()
        if name.startswith(SEGMENT_PREFIX) and name.endswith(SEGMENT_SUFFIX)
    ]
    if not segments:
        raise NothingThere(f"{directory} holds no journal: is it the data directory of a node?")
    header = decode_header(segments[0], (directory / segments[0]).read_bytes())
    return read_contents(directory, header.cluster_id, header.node_id)


def described(contents: Contents, entries: int) -> dict[str, Any]:
    """What `tenured inspect` tells, as plain data: the state is that after the last entry."""
    first = contents.entries[0][1] if contents.entries else 0
    snapshot = contents.snapshot
    return {
        "directory": str(contents.directory),
        "cluster": contents.cluster_id,
        "node": contents.node_id,
        "log": {
            "term": contents.term,
            "voted_for": contents.voted_for,
            "first_index": first,
            "last_index": contents.last_index,
            "last_term": contents.last_term,
            "bytes": sum(len(command) for command, _, _ in contents.entries),
            "torn_bytes": 0 if contents.torn is None else contents.torn.bytes,
        },
        "snapshot": None
        if snapshot is None
        else {"file": snapshot.name, "index": snapshot.index, "term": snapshot.term, "bytes": snapshot.size},
        "state": _state(contents.replica_at(contents.last_index)),
        "entries": [
            {"index": index, "term": term, "commands": _commands(command)}
            for command, index, term in contents.entries[-entries:]
        ]
        if entries
        else [],
    }


def _state(replica: Replica) -> dict[str, Any]:
    table: LeaseTable = replica.table
    restoration = table.restoration
    return {
        "cluster_time_ms": table.time_ms,
        "rules": table.rules,
        **{section: len(getattr(table, section)) for section in SECTIONS},
        "last_token": max((counters.last_token for counters in table.tenants.values()), default=0),
        "restored": restoration is not None,
        "digest": replica.digest(),
    }


def _commands(entry: bytes) -> list[str]:
    members = decode_members(entry)
    if members is not None:
        return [f"members {', '.join(one.id if one.voter else f'({one.id})' for one in members.members)}"]
    return [type(decode(command)).__name__ for _, command in decode_entry(entry)]


class _ReadOnlyFile:
    """A whole file in memory; what is written to it is dropped."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def write_at(self, offset: int, data: bytes) -> None:
        """A repair that the node itself will make when it starts."""

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def sync(self) -> None:
        """Nothing was written."""

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        """Nothing is open."""


class _ReadOnlyDisk:
    """The directory as it is: what recovery would mend or remove stays. Serves what recovery uses."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise NothingThere(f"{directory} is not a directory")
        self._directory = directory

    def names(self) -> list[str]:
        return sorted(
            path.name for path in self._directory.iterdir() if path.is_file() and path.name != LOCK_NAME
        )

    def read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def open(self, name: str) -> DiskFile:
        return _ReadOnlyFile(self.read(name))

    def remove(self, name: str) -> None:
        """A leftover that the node itself will remove when it starts."""

    def sync_directory(self) -> None:
        """Nothing was changed."""

    def close(self) -> None:
        """Nothing is open."""

    def free_bytes(self) -> int:
        return 0

    def create(self, name: str, size: int) -> DiskFile:
        raise PermissionError("the directory is only looked at")

    def rename(self, old: str, new: str) -> None:
        raise PermissionError("the directory is only looked at")

    def run(self, work: Callable[[], None], done: Done) -> None:
        raise PermissionError("the directory is only looked at")

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        raise PermissionError("the directory is only looked at")
