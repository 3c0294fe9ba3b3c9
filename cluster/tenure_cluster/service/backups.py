"""Backups of the whole state, from any node, while it serves.

The way of one: the leader says, behind a read barrier, up to which index everything is that was acknowledged;
this node waits until it has applied that, has a snapshot made of what it has by then, and sends that file
with a header in front and an end behind it. So a backup costs what a snapshot costs, which is written in
slices; its reader may be as slow as it likes, and memory holds a piece of it at a time.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from tenure_cluster import __version__
from tenure_cluster.lease.snapshot import time_of
from tenure_cluster.raft import Raft, RaftError
from tenure_cluster.raft.snapshot_export import SnapshotExport
from tenure_cluster.raft.snapshot_format import SnapshotParser
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import Answer
from tenure_cluster.service.backup_format import (
    TRAILER_BYTES,
    BackupHeader,
    BackupMember,
    encode_head,
    encode_trailer,
)
from tenure_cluster.service.backup_messages import BackupPointReply, BackupPointRequest
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.members import MembersView
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.requests import Request
from tenure_cluster.settings import Config

BACKUPS_MAX: Final = 2
"""Most backups under way on one node: each holds the space of a snapshot that may be outdated."""

CATCH_UP_S: Final = 10.0
"""How long this node may take to apply what a backup must have."""

MAKING_S: Final = 300.0
"""How long the snapshot may take."""

_LOOK_S: Final = 0.01

_log = logging.getLogger("tenure.service")


class Calls(Protocol):
    """What is needed of the service."""

    async def call(self, operation: str, tenant: str, request: Request, actor: str = "") -> Answer: ...


class Backups:
    """Makes backups on this node."""

    def __init__(
        self, config: Config, calls: Calls, raft: Raft, replica: Replica, wall_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._calls = calls
        self._raft = raft
        self._members = MembersView(raft, config.node_id, config.members)
        self._replica = replica
        self._wall_ms = wall_ms
        self._open = 0

    async def open(self, tenant: str, actor: str) -> "OpenBackup | Problem":
        """A backup that has everything which was acknowledged before this call, ready to be read. Close
        it."""
        if self._open >= BACKUPS_MAX:
            return Problem(
                "overloaded", f"{self._open} backups are under way on this node, the most it makes", {}, 10.0
            )
        self._open += 1
        try:
            opened = await self._make(tenant, actor)
        except BaseException:
            self._open -= 1
            raise
        if isinstance(opened, Problem):
            self._open -= 1
        return opened

    async def _make(self, tenant: str, actor: str) -> "OpenBackup | Problem":
        point = await self._calls.call("backup_point", tenant, BackupPointRequest(), actor)
        if isinstance(point, Problem):
            return point
        assert isinstance(point, BackupPointReply), "what is answered to that"
        loop = asyncio.get_running_loop()
        until = loop.time() + CATCH_UP_S
        while self._replica.applied_index < point.applied_index:
            if loop.time() >= until:
                detail = f"this node has not come to entry {point.applied_index} in time; ask another one"
                return Problem("no_quorum", detail, {}, RETRY_S)
            await asyncio.sleep(_LOOK_S)
        try:
            async with asyncio.timeout(MAKING_S):
                export = await self._raft.export()
        except TimeoutError:
            return Problem("overloaded", f"the snapshot was not made within {MAKING_S:.0f} s", {}, RETRY_S)
        except RaftError as error:
            return Problem("overloaded", str(error), {}, 5 * RETRY_S)
        try:
            header = await self._header(export)
        except BaseException:
            export.close()
            raise
        _log.info("a backup at entry %d is being read by %s", header.index, actor or "somebody")
        return OpenBackup(header, export, self._closed)

    async def _header(self, export: SnapshotExport) -> BackupHeader:
        info = export.info
        members = self._members.all()
        return BackupHeader(
            cluster_id=info.cluster_id,
            node_id=self._config.node_id,
            index=info.index,
            term=info.term,
            cluster_time_ms=await _time_of(export),
            members=[BackupMember(name, members[name].peer, members[name].http) for name in sorted(members)],
            made_wall_ms=self._wall_ms(),
            version=__version__,
            snapshot_bytes=info.size,
        )

    def _closed(self) -> None:
        self._open -= 1


class OpenBackup:
    """A backup that is being read."""

    def __init__(self, header: BackupHeader, export: SnapshotExport, closed: Callable[[], None]) -> None:
        self.header = header
        self._export = export
        self._closed: Callable[[], None] | None = closed

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(encode_head(self.header)) + self.header.snapshot_bytes + TRAILER_BYTES

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the file, in order. Raises OSError."""
        sha = hashlib.sha256()
        head = encode_head(self.header)
        sha.update(head)
        yield head
        offset = 0
        while offset < self.header.snapshot_bytes:
            piece = await self._export.read_at(offset)
            if not piece:
                raise OSError(f"the snapshot ends at {offset}, before its {self.header.snapshot_bytes} bytes")
            offset += len(piece)
            sha.update(piece)
            yield piece
        yield encode_trailer(sha.digest())

    def close(self) -> None:
        """Idempotent."""
        if self._closed is not None:
            self._export.close()
            self._closed()
            self._closed = None


async def _time_of(export: SnapshotExport) -> int:
    """The cluster time of the state in a snapshot, which its first chunk says."""
    parser = SnapshotParser(export.info.name)
    while piece := await export.read_at(parser.fed_bytes):
        for chunk in parser.feed(piece):
            return time_of(chunk)
    return 0


Opener = Callable[[str, str], Awaitable[OpenBackup | Problem]]
"""Opens a backup for a tenant's credential."""
