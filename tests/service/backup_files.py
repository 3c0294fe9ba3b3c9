"""Backups made in memory, for tests of what is done with files."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tenure_cluster.lease import commands
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.snapshot import dump
from tenure_cluster.raft.messages import NO_OP
from tenure_cluster.raft.snapshot_format import SnapshotInfo, encode_chunk
from tenure_cluster.raft.snapshot_format import encode_head as encode_snapshot_head
from tenure_cluster.service.backup_format import BackupHeader, BackupMember, encode_head, encode_trailer

MADE_WALL_MS = 1_800_000_000_000
INDEX, TERM = 41, 7


def some_state(*keys: str) -> LeaseMachine:
    """Keys that are held, by one session each."""
    machine = LeaseMachine()
    for number, key in enumerate(keys):
        acquire = commands.Acquire(
            tenant="default",
            keys=[key],
            lease_ids=[f"lease-{number}"],
            owner="A",
            session_id=None,
            ttl_ms=600_000,
            request_id=f"request-{number}",
            remember=True,
            wait=False,
            mode="exclusive",
            slots=0,
            grace_ms=0,
            if_held="return",
            metadata={},
            wall_ms=MADE_WALL_MS,
        )
        machine.apply(1_000, acquire)
    return machine


def snapshot_bytes(chunks: Iterable[bytes], cluster_id: str = "orders", index: int = INDEX) -> bytes:
    info = SnapshotInfo(cluster_id, (NO_OP, index - 1, TERM), (NO_OP, index, TERM))
    data = encode_snapshot_head(info) + b"".join(map(encode_chunk, chunks)) + encode_chunk(b"")
    return data + hashlib.sha256(data).digest()


def header_of(snapshot: bytes, **fields: Any) -> BackupHeader:
    known: dict[str, Any] = {
        "cluster_id": "orders",
        "node_id": "n1",
        "index": INDEX,
        "term": TERM,
        "cluster_time_ms": 1_000,
        "members": [BackupMember("n1", "127.0.0.1:7701", "http://127.0.0.1:7601")],
        "made_wall_ms": MADE_WALL_MS,
        "version": "0",
        "snapshot_bytes": len(snapshot),
    }
    return BackupHeader(**{**known, **fields})


def backup_bytes(machine: LeaseMachine | None = None, **fields: Any) -> bytes:
    """A whole backup."""
    machine = machine or some_state("a", "b")
    snapshot = snapshot_bytes(
        dump(machine.table), fields.get("cluster_id", "orders"), fields.get("index", INDEX)
    )
    data = encode_head(header_of(snapshot, **fields)) + snapshot
    return data + encode_trailer(hashlib.sha256(data).digest())


def write_backup(path: Path, machine: LeaseMachine | None = None, **fields: Any) -> Path:
    path.write_bytes(backup_bytes(machine, **fields))
    return path
