"""Saving a backup: under the file's name there is always a whole one."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tenure
from tenure.testing import FakeCluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

from backup_files import backup_bytes

from tenure_cluster.service.backup_format import Backup

pytest_plugins = ["tenure.testing.pytest_plugin"]

HEAD = "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"


class Sender:
    """A node that answers every call with these bytes, or with a part of them."""

    def __init__(self, body: bytes, *, length: int | None = None, status: int = 200) -> None:
        kind = "application/octet-stream" if status == 200 else "application/problem+json"
        promised = len(body) if length is None else length
        self.answer = HEAD.format(status=status, kind=kind, length=promised).encode() + body
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(request.split(b"\r\n")[0].decode())
        writer.write(self.answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def asking(*senders: Sender) -> AsyncIterator[tenure.Client]:
    """A client of nodes that answer so."""
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for sender in senders:
            server = await asyncio.start_server(sender.serve, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield await stack.enter_async_context(tenure.connect(urls))


def whole(directory: Path) -> list[str]:
    """Every name there is a whole backup's."""
    names = sorted(os.listdir(directory))
    for name in names:
        Backup(directory / name)
    return names


async def test_what_was_sent_is_saved_as_it_is_and_for_its_owner_alone(tmp_path: Path) -> None:
    data = backup_bytes()
    sender = Sender(data)
    async with asking(sender) as client:
        saved = await client.backup(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data
    assert (saved.file, saved.bytes) == (str(tmp_path / "b"), len(data))
    assert bytes.fromhex(saved.sha256) == data[-32:]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    assert sender.asked == ["GET /v1/cluster/backup HTTP/1.1"]
    assert whole(tmp_path) == ["b"]


@pytest.mark.parametrize(
    "cut",
    [
        Sender(backup_bytes()[:200], length=len(backup_bytes())),
        Sender(backup_bytes()[:-1]),
        Sender(backup_bytes()[:100] + b"?" + backup_bytes()[101:]),
        Sender(b""),
    ],
    ids=["on its way", "and nobody says so", "damaged", "nothing"],
)
async def test_what_is_not_whole_takes_no_name(tmp_path: Path, cut: Sender) -> None:
    (tmp_path / "b").write_bytes(backup_bytes(made_wall_ms=1))
    async with asking(cut) as client:
        with pytest.raises(tenure.ClusterUnavailable, match="no node could send a whole backup"):
            await client.backup(tmp_path / "b")
    assert Backup(tmp_path / "b").header.made_wall_ms == 1
    assert whole(tmp_path) == ["b"]


async def test_another_node_is_asked_when_one_breaks_off(tmp_path: Path) -> None:
    broken = Sender(backup_bytes()[:200], length=len(backup_bytes()))
    busy = Sender(b'{"code":"overloaded","detail":"busy"}', status=429)
    async with asking(broken, busy, Sender(backup_bytes())) as client:
        await client.backup(tmp_path / "b")
    assert whole(tmp_path) == ["b"]


async def test_a_refusal_is_told_and_nobody_else_is_asked(tmp_path: Path) -> None:
    refusing = [
        Sender(b'{"code":"forbidden","detail":"The credential lacks the right admin"}', status=403)
        for _ in range(2)
    ]
    async with asking(*refusing) as client:
        with pytest.raises(tenure.NotAuthorized, match="lacks the right admin"):
            await client.backup(tmp_path / "b")
    assert sum(len(sender.asked) for sender in refusing) == 1
    assert whole(tmp_path) == []


async def test_a_directory_that_can_not_be_written_is_an_error_of_the_machine(tmp_path: Path) -> None:
    async with asking(Sender(backup_bytes())) as client:
        with pytest.raises(FileNotFoundError):
            await client.backup(tmp_path / "absent" / "b")


def test_threads_save_backups_too(tmp_path: Path, tenure_cluster: FakeCluster) -> None:
    """The cluster in memory has none to give, and says so."""
    with (
        tenure_cluster.connect_sync() as client,
        pytest.raises(tenure.TenureError, match="Nothing is served"),
    ):
        client.backup(tmp_path / "b")
