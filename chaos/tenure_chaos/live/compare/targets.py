"""Clusters to compare: how their nodes are started, killed and asked who leads."""

import asyncio
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from tenure_chaos.live.cluster import LiveCluster
from tenure_chaos.live.ports import free_ports

NODES: Final = 3
ASK_TIMEOUT_S: Final = 1.0
START_TIMEOUT_S: Final = 60.0


class NoTarget(Exception):
    """The system can't be had here. The message says what is missing."""


class Target(Protocol):
    """One cluster."""

    name: str
    what: str

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of each node for its clients, by name."""

    async def start(self) -> None:
        """All nodes; returns when the cluster serves."""

    async def leader(self) -> str | None: ...

    def kill(self, node: str) -> None: ...

    def start_node(self, node: str) -> None: ...

    def close(self) -> None:
        """The end of all processes."""


class TenureTarget:
    """Nodes of this project, as the bench runs them."""

    name = "tenure"
    what = "Tenure"

    def __init__(self, directory: Path, sockets: Path) -> None:
        self._cluster = LiveCluster(directory, nodes=NODES, sockets=sockets)

    @property
    def addresses(self) -> Mapping[str, str]:
        return {name: node.http.removeprefix("http://") for name, node in self._cluster.nodes.items()}

    async def start(self) -> None:
        self._cluster.configure(lambda a, b: self._cluster.nodes[b].peer)
        for node in self._cluster.nodes.values():
            self._cluster.start(node)
        await self._cluster.wait_until_serving()

    async def leader(self) -> str | None:
        found = await self._cluster.leader()
        return None if found is None else found.name

    def kill(self, node: str) -> None:
        self._cluster.kill(self._cluster.nodes[node])

    def start_node(self, node: str) -> None:
        self._cluster.start(self._cluster.nodes[node])

    def close(self) -> None:
        self._cluster.kill_everything()


def etcd_program() -> str:
    """The path of etcd's server. Raises NoTarget."""
    program = shutil.which("etcd")
    if program is None:
        raise NoTarget("there is no etcd on PATH; on Debian: apt-get install etcd-server")
    return program


class EtcdTarget:
    """etcd's own server, with its defaults: heartbeat 100 ms, election timeout 1 s, fsync."""

    name = "etcd"

    def __init__(self, directory: Path) -> None:
        program = etcd_program()
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.what = version.stdout.splitlines()[0].replace(" Version:", "")
        self._program = program
        self._directory = directory
        ports = free_ports(2 * NODES)
        names = [f"n{number}" for number in range(1, 1 + NODES)]
        self._clients = dict(zip(names, ports[:NODES], strict=True))
        self._peers = dict(zip(names, ports[NODES:], strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> Mapping[str, str]:
        return {name: f"127.0.0.1:{port}" for name, port in self._clients.items()}

    async def start(self) -> None:
        for name in self._clients:
            self.start_node(name)
        deadline = time.monotonic() + START_TIMEOUT_S
        while await self.leader() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"etcd did not come to serve: see {self._directory}")
            await asyncio.sleep(0.1)

    async def leader(self) -> str | None:
        return await asyncio.to_thread(self._leader)

    def _leader(self) -> str | None:
        for name, process in self._processes.items():
            if process.poll() is None:
                try:
                    said = self._status(name)
                except (OSError, ValueError):
                    continue
                if said.get("leader") == said.get("header", {}).get("member_id"):
                    return name
        return None

    def _status(self, name: str) -> dict[str, Any]:
        url = f"http://{self.addresses[name]}/v3/maintenance/status"
        request = urllib.request.Request(url, data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    def kill(self, node: str) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def start_node(self, node: str) -> None:
        client, peer = f"http://{self.addresses[node]}", f"http://127.0.0.1:{self._peers[node]}"
        self._directory.mkdir(parents=True, exist_ok=True)
        others = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self._peers.items())
        with (self._directory / f"{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [
                    self._program,
                    *("--name", node, "--data-dir", self._directory / node),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", others, "--initial-cluster-token", "compared"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
