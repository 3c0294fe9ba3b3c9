"""A node that asks for credentials."""

import time
from pathlib import Path
from typing import Any

from api_node import START_TIMEOUT_S, RunningNode
from api_wire import Reply, ask

from tenure_cluster.first_administrator import FILE_NAME
from tenure_cluster.lease.credentials import RIGHTS
from tenure_cluster.settings import Auth


class Guarded:
    """The node, and its first administrator's credential."""

    def __init__(self, directory: Path, **sections: Any) -> None:
        self.directory = directory
        self.node = RunningNode(directory, auth=Auth(required=True), **sections)
        self.port = self.node.port
        self.root = self._first()

    def _first(self) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            text = (self.directory / FILE_NAME).read_text() if (self.directory / FILE_NAME).exists() else ""
            if text.endswith("\n") and self.node.replica_has_credentials():
                return text.strip()
            assert time.monotonic() < deadline, "no first administrator"
            time.sleep(0.01)

    async def ask(
        self, method: str, target: str | bytes, body: Any = b"", bearer: str = "", **headers: str
    ) -> Reply:
        if bearer:
            headers["authorization"] = f"Bearer {bearer}"
        return await ask(self.port, method, target, body, **headers)

    async def created(self, rights: list[str] | None = None, **fields: Any) -> tuple[str, str]:
        """(id, bearer) of a new credential."""
        body = {"name": "x", "rights": list(RIGHTS) if rights is None else rights, **fields}
        reply = await self.ask("POST", "/v1/credentials", body, self.root)
        assert reply.status == 200, reply
        return reply.json["credential"]["credential_id"], reply.json["bearer"]

    async def bearer(self, *rights: str, **fields: Any) -> str:
        return (await self.created(list(rights) or None, **fields))[1]
