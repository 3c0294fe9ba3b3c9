"""Certificates as an operator makes them, and whole nodes in this process that use them."""

import asyncio
import contextlib
import datetime as dt
import random
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tenure_cluster.auth import tls_files
from tenure_cluster.auth.authority import Issued, issue, make_authority
from tenure_cluster.auth.tls import Files
from tenure_cluster.node import Node
from tenure_cluster.raft.types import RaftOptions
from tenure_cluster.settings import Config, Http, Leases, Member, Peer, Tls

T = TypeVar("T")

QUICK = RaftOptions(
    election_timeout_min_ms=500,
    election_timeout_max_ms=1_000,
    heartbeat_ms=100,
    journal_segment_bytes=2 << 20,
)
RELOAD_MS = 100
HOST = "127.0.0.1"
YEAR = dt.timedelta(days=365)
LONG_AGO = -dt.timedelta(minutes=30)
"""A lifetime that has ended: certificates are backdated by an hour."""


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def until(condition: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Poll until `condition` gives something true, and return that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        if value := condition():
            return value
        if loop.time() >= deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        await asyncio.sleep(0.01)


def free_ports(count: int) -> list[int]:
    """Ports that are free now, outside the range of outgoing connections: or a client could take one while
    its node is down."""
    ports: list[int] = []
    for port in random.sample(range(10_000, 21_000), 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


class Pki:
    """A directory made by `tenured tls init` for n1, n2 and n3, all on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        nodes = {node_id: [HOST, "localhost"] for node_id in ("n1", "n2", "n3")}
        tls_files.init(directory, nodes, lifetime=YEAR, ca_lifetime=YEAR, now=now())

    def files(self, node_id: str = "n1") -> Files:
        each = self.directory / node_id
        return Files(
            cert=str(each / "cert.pem"),
            key=str(each / "key.pem"),
            ca=str(each / "ca.pem"),
            client_ca="",
            node_id=node_id,
            host=HOST,
        )

    def settings(self, node_id: str) -> Tls:
        files = self.files(node_id)
        return Tls(cert=files.cert, key=files.key, ca=files.ca, reload_ms=RELOAD_MS)

    def replace(self, node_id: str, issued: Issued) -> None:
        """Give the node another certificate and its key."""
        (self.directory / node_id / "cert.pem").write_bytes(issued.certificate_pem())
        (self.directory / node_id / "key.pem").write_bytes(issued.key_pem())

    def issue(self, node_id: str, lifetime: dt.timedelta = YEAR) -> Issued:
        authority, _ = tls_files._authority(self.directory)
        return issue(authority, node_id, [HOST], lifetime, now())

    def serial(self, node_id: str) -> int:
        return tls_files._certificates(self.directory / node_id / "cert.pem")[0].serial_number

    def client(self) -> ssl.SSLContext:
        """What a client trusts that was given ca.pem."""
        return ssl.create_default_context(cafile=self.directory / "ca.pem")


def stranger(node_id: str = "n2") -> Issued:
    """A certificate for the node of an authority that nobody here knows."""
    return issue(make_authority(YEAR, now()), node_id, [HOST], YEAR, now())


def dialling(pki: Pki, issued: Issued | None, directory: Path) -> ssl.SSLContext:
    """A peer that trusts the cluster and shows this certificate."""
    context = ssl.create_default_context(cafile=pki.directory / "ca.pem")
    context.check_hostname = False
    if issued is not None:
        directory.mkdir(exist_ok=True)
        (directory / "cert.pem").write_bytes(issued.certificate_pem())
        (directory / "key.pem").write_bytes(issued.key_pem())
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
        shutil.rmtree(directory)
    return context


class Nodes:
    """Whole nodes n1, n2, n3 with TLS towards each other and their clients."""

    def __init__(self, pki: Pki, directory: Path) -> None:
        self.pki = pki
        ports = free_ports(6)
        self.members = {
            f"n{number + 1}": Member(
                peer=f"{HOST}:{ports[2 * number]}", http=f"https://{HOST}:{ports[2 * number + 1]}"
            )
            for number in range(3)
        }
        self.configs = {node_id: self._config(node_id, directory / node_id) for node_id in self.members}
        self.nodes: dict[str, Node] = {}

    def _config(self, node_id: str, data_dir: Path) -> Config:
        own = self.members[node_id]
        config = Config(
            cluster_id="c",
            node_id=node_id,
            data_dir=data_dir,
            durability="os",
            http=Http(listen=own.http.removeprefix("https://"), advertise=own.http),
            peer=Peer(listen=own.peer, advertise=own.peer),
            tls=self.pki.settings(node_id),
            members=self.members,
            raft=QUICK,
            leases=Leases(ttl_min_ms=3_000),
        )
        config.validate()
        return config

    def use(self, node_id: str, **changes: object) -> None:
        """From its next start on."""
        self.configs[node_id] = msgspec.structs.replace(self.configs[node_id], **changes)

    @property
    def urls(self) -> list[str]:
        return [member.http for member in self.members.values()]

    async def start(self, *node_ids: str) -> None:
        for node_id in node_ids or tuple(self.members):
            node = Node(self.configs[node_id])
            await node.start()
            self.nodes[node_id] = node

    async def stop(self, *node_ids: str) -> None:
        for node_id in node_ids or tuple(self.nodes):
            await self.nodes.pop(node_id).stop()

    async def serve(self) -> None:
        """Wait until all that run say that they do."""
        for node in self.nodes.values():
            await until(node.service.ready, f"{node.config.node_id} to serve")

    async def all_linked(self) -> None:
        """Wait until every running node sends to every other."""
        for node_id, node in self.nodes.items():
            others = sorted(set(self.nodes) - {node_id})
            await until(lambda node=node, others=others: node.raft.status().connected == others, "all links")


@contextlib.asynccontextmanager
async def three_nodes(directory: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(Pki(directory / "certs"), directory / "data")
    try:
        await nodes.start()
        await nodes.serve()
        yield nodes
    finally:
        await nodes.stop()


async def shown_serial(url: str, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that a new connection is shown."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        certificate = writer.get_extra_info("peercert")
        return int(certificate["serialNumber"], 16)
    finally:
        writer.transport.abort()
