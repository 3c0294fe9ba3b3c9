"""The first administrator: somebody must be able to make the first credential.

As long as no credential has the right `admin`, the leader makes one, and writes what its bearer shows into a
file in its data directory, which only the owner of the process can read. The file comes first, so that no
administrator is ever there whose secret nobody has; the machine makes only one of several that are asked for
at once, and a leader whose own was not made removes its file.

Whoever operates the cluster takes the file from the node that says in its log that it wrote it, makes the
credentials that are needed, and may then remove the file and rotate or revoke that credential.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenure_cluster.auth import bearer
from tenure_cluster.auth.gate import DEFAULT_TENANT
from tenure_cluster.lease.credentials import RIGHTS
from tenure_cluster.raft import Raft
from tenure_cluster.service.credential_replies import CredentialReply
from tenure_cluster.service.credential_requests import CreateCredentialRequest, EntrustRequest
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.replica import Replica

FILE_NAME: Final = "administrator.credential"

LOOK_S: Final = 0.25
"""Period in which a node without an administrator looks whether it leads, or whether there is one now."""

NAME: Final = "first administrator"

_log = logging.getLogger("tenure.node")


class FirstAdministrator:
    """Sees to it that there is an administrator."""

    def __init__(
        self,
        data_dir: Path,
        raft: Raft,
        service: LeaseService,
        replica: Replica,
        draw: Callable[[int], bytes],
    ) -> None:
        self.path = data_dir / FILE_NAME
        self._raft = raft
        self._service = service
        self._replica = replica
        self._draw = draw

    async def run(self) -> None:
        """Return when there is an administrator. A node that does not lead only waits for one."""
        while not self._exists():
            # Not before the audit has begun, or the first administrator would be missing in it.
            if self._raft.serving() and self._service.audit.begun and await self._make():
                return
            await asyncio.sleep(LOOK_S)
        self._remove_stale()

    def _exists(self) -> bool:
        return any("admin" in credential.rights for credential in self._replica.table.credentials.values())

    async def _make(self) -> bool:
        """Ask for one, as the leader. Whether there is one now."""
        shown = self._read()
        if shown is None:
            shown = bearer.text(*bearer.mint(self._draw))
            self._write(shown)
        parts = bearer.parse(shown)
        assert parts is not None
        credential_id, secret = parts
        asked = CreateCredentialRequest(name=NAME, tenant=DEFAULT_TENANT, rights=list(RIGHTS), prefixes=[""])
        request = EntrustRequest(
            asked=asked, credential_id=credential_id, digest=bearer.digest(secret), first=True
        )
        reply = await self._service.call("entrust", DEFAULT_TENANT, request)
        if isinstance(reply, CredentialReply):
            _log.warning(
                "there was no administrator: the first one's credential is in %s; keep it safe", self.path
            )
            return True
        if isinstance(reply, Problem) and reply.code == "forbidden":
            self.path.unlink(missing_ok=True)
            return True
        return False  # not executed, or nobody knows: the same is asked again

    def _read(self) -> str | None:
        """What a try of before wrote, if it is whole."""
        try:
            shown = self.path.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return shown if bearer.parse(shown) is not None else None

    def _write(self, shown: str) -> None:
        """Durably, and readable by nobody else at any moment."""
        self.path.unlink(missing_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(shown + "\n")
            file.flush()
            os.fsync(file.fileno())
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _remove_stale(self) -> None:
        """Another leader's administrator was made instead of the one in this node's file, or it is gone."""
        shown = self._read()
        parts = bearer.parse(shown) if shown is not None else None
        if parts is not None and parts[0] not in self._replica.table.credentials:
            self.path.unlink(missing_ok=True)
