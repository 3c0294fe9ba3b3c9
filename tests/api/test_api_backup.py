"""`GET /v1/cluster/backup` on one node: whole, bounded, and cut off where it can't be."""

import asyncio
import socket
from pathlib import Path

import pytest
from api_node import RunningNode
from api_wire import Wire, ask

from tenure_cluster.lease.snapshot import load
from tenure_cluster.raft.snapshot_export import SnapshotExport
from tenure_cluster.service.backup_format import Backup
from tenure_cluster.service.backups import BACKUPS_MAX

KEYS = 40


async def hold(port: int, count: int = KEYS) -> None:
    for number in range(count):
        body = {"key": f"backup/{number}", "owner": "a", "ttl_ms": 600_000, "request_id": f"backup/{number}"}
        assert (await ask(port, "POST", "/v1/acquire", body)).status == 200


async def test_what_is_sent_is_a_whole_backup_of_what_was_acknowledged(
    node: RunningNode, tmp_path: Path
) -> None:
    await hold(node.port)
    reply = await ask(node.port, "GET", "/v1/cluster/backup")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/octet-stream"
    (tmp_path / "b").write_bytes(reply.body)
    backup = Backup(tmp_path / "b")
    held = load(backup.chunks()).indexes.holders["default"]
    assert backup.header.node_id == "n1"
    assert backup.header.cluster_time_ms > 0
    assert len(held) >= KEYS


async def test_head_is_answered_without_making_one(node: RunningNode) -> None:
    reply = await ask(node.port, "HEAD", "/v1/cluster/backup")
    assert (reply.status, reply.body) == (200, b"")


async def test_more_backups_at_a_time_than_a_node_makes_are_refused(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_cluster.service.backups.BACKUPS_MAX", 0)
    reply = await ask(node.port, "GET", "/v1/cluster/backup")
    assert (reply.status, reply.json["code"]) == (429, "overloaded")
    assert BACKUPS_MAX > 0


async def test_a_backup_that_fails_on_its_way_is_cut_off(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hold(node.port)
    read_at = SnapshotExport.read_at
    reads = []

    async def failing(export: SnapshotExport, offset: int) -> bytes:
        reads.append(offset)
        if len(reads) > 1:  # the first is for the header
            raise OSError("the disk is gone")
        return await read_at(export, offset)

    monkeypatch.setattr(SnapshotExport, "read_at", failing)
    wire = await Wire.open(node.port)
    try:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.ask("GET", "/v1/cluster/backup")
    finally:
        await wire.close()
    monkeypatch.undo()
    assert (await ask(node.port, "GET", "/v1/cluster/backup")).status == 200, "and the next one is not hurt"


async def write_records(port: int, count: int, value: str) -> None:
    for number in range(count):
        key = f"big/{number}"
        body = {"key": key, "owner": "a", "ttl_ms": 600_000, "request_id": key}
        lease = (await ask(port, "POST", "/v1/acquire", body)).json["lease"]
        commit = {"key": key, "lease_id": lease["lease_id"], "token": lease["token"], "mode": "current"}
        assert (await ask(port, "POST", "/v1/commit", {**commit, "value": value})).status == 200


async def test_a_reader_may_be_slow_and_holds_up_nobody(node: RunningNode, tmp_path: Path) -> None:
    await write_records(node.port, 60, "v" * 60_000)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # what is not read stays at the node
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(slow, ("127.0.0.1", node.port))
        await loop.sock_sendall(slow, b"GET /v1/cluster/backup HTTP/1.1\r\nHost: n\r\n\r\n")
        received = bytearray(await loop.sock_recv(slow, 2_000))
        # Others are answered, and another snapshot takes the place of the one that is being read.
        await write_records(node.port, 2, "later")
        assert (await ask(node.port, "GET", "/v1/cluster/backup")).status == 200
        while data := await loop.sock_recv(slow, 1 << 20):
            received += data
    finally:
        slow.close()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert head.endswith(b"Content-Length: %d" % len(body))
    assert len(body) > 60 * 60_000
    (tmp_path / "b").write_bytes(body)
    records = load(Backup(tmp_path / "b").chunks()).records
    assert records["default", "big/0"].value == b"v" * 60_000, "as of when it was asked for"


async def test_a_reader_that_leaves_makes_room_for_others(node: RunningNode) -> None:
    await write_records(node.port, 60, "v" * 60_000)
    for _ in range(BACKUPS_MAX + 1):
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(b"GET /v1/cluster/backup HTTP/1.1\r\nHost: n\r\n\r\n")
        await writer.drain()
        writer.transport.abort()
    deadline_s = asyncio.get_running_loop().time() + 30
    while (reply := await ask(node.port, "GET", "/v1/cluster/backup")).status != 200:
        assert asyncio.get_running_loop().time() < deadline_s, reply
        await asyncio.sleep(0.05)
