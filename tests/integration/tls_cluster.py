"""A cluster of real processes with TLS for clients and between nodes, as `tenured tls` makes it."""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Self

import aiohttp
from live_cluster import LiveCluster, LiveNode, until
from raw_http import HttpAnswer

from tenure_cluster.first_administrator import FILE_NAME


def tenured_tls(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cluster.cli", "tls", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TlsNode(LiveNode):
    @property
    def url(self) -> str:
        return super().url.replace("http://", "https://")


class TlsCluster(LiveCluster):
    """A cluster whose certificates `tenured tls init` has made. With `guarded` it asks for credentials, and
    `root` is what its first administrator shows once the cluster is entered."""

    def __init__(self, directory: Path, *, guarded: bool = False) -> None:
        super().__init__(directory)
        self.guarded = guarded
        self.root = ""
        self.certs = directory / "certs"
        hosts = [f"{node_id}=127.0.0.1" for node_id in self.nodes]
        tenured_tls("init", self.certs, "--node", ",".join(hosts))
        self.nodes = {
            node_id: TlsNode(node_id, node.http_port, node.peer_port, node.directory)
            for node_id, node in self.nodes.items()
        }
        self.trust = ssl.create_default_context(cafile=self.certs / "ca.pem")

    def write_config(self, node: LiveNode, **top: str) -> None:
        own = self.certs / node.node_id
        files = {"cert": "cert.pem", "key": "key.pem", "ca": "ca.pem"}
        tls: dict[str, int | str | bool] = {name: str(own / file) for name, file in files.items()}
        self.settings = {"tls": tls | {"reload_ms": 200}, "auth": {"required": self.guarded}}
        super().write_config(node, **top)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self.guarded:
            try:
                self.root = await until(self._first, 30, "the first administrator's file")
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                raise
        return self

    async def _first(self) -> str:
        """What a file has that a node lets in."""
        for path in (node.data_dir / FILE_NAME for node in self.nodes.values()):
            self.root = path.read_text(encoding="ascii").strip() if path.exists() else ""
            if self.root and await self.view(next(iter(self.nodes.values()))) is not None:
                return self.root
        return ""

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    async def get(self, node: LiveNode, path: str, timeout_s: float = 2.0) -> HttpAnswer | None:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        headers = {"Authorization": f"Bearer {self.root}"} if self.root else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(node.url + path, ssl=self.trust) as answer,
            ):
                return HttpAnswer(answer.status, b"", await answer.read())
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def serial(self, node: LiveNode) -> int:
        """Of the certificate that a new client is shown."""
        _, writer = await asyncio.open_connection("127.0.0.1", node.http_port, ssl=self.trust)
        try:
            return int(writer.get_extra_info("peercert")["serialNumber"], 16)
        finally:
            writer.transport.abort()

    def refused(self, told: str) -> list[str]:
        """Lines of any node's log that refuse a connection for this reason."""
        return [
            line
            for node in self.nodes.values()
            for line in node.log_text().splitlines()
            if "refused: " in line and told in line
        ]
