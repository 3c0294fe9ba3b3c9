"""Certificates, authority and credentials change on a loaded cluster of real processes, and not one operation
fails.

The peers are reached through relays, so that their links can be broken after each step: what replaces them is
made with what the files hold by then. Both ends of a link demand a certificate of an authority that they
trust, so once nobody trusts the old one, a link that is made proves that both have shown a certificate of
the new one.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from live_cluster import LiveNode, until
from tcp_relay import Relay
from tls_cluster import TlsCluster, tenured_tls

import tenure

pytestmark = [pytest.mark.process, pytest.mark.slow]

OVERLAP_S = 12
"""For how long the old secret is valid beside the new one."""
STREAM_ENDS_S = 5
"""A stream that was opened with a secret ends so soon after it, if not before."""


class Relayed(TlsCluster):
    """Whose peers reach each other through relays."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, guarded=True)
        self.relays: dict[str, Relay] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for node_id, node in self.nodes.items():
            relay = Relay(f"http://127.0.0.1:{node.peer_port}")
            self.relays[node_id] = await self._stack.enter_async_context(relay)
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self._stack.aclose()

    def write_config(self, node: LiveNode, **top: str) -> None:
        super().write_config(node, **top)
        text = node.config_path.read_text(encoding="utf-8")
        for node_id, relay in self.relays.items():
            listed = f'peer = "127.0.0.1:{self.nodes[node_id].peer_port}"'
            assert listed in text
            text = text.replace(listed, f'peer = "{relay.url.removeprefix("http://")}"')
        node.config_path.write_text(text, encoding="utf-8")

    async def link_anew(self, node_id: str) -> None:
        """Break all links to one node, and wait for those that replace them and a cluster that is whole."""
        relay = self.relays[node_id]
        before = relay.accepted
        relay.break_all()

        async def whole() -> bool:
            views = [await self.view(node) for node in self.nodes.values()]
            roles = [member["role"] for view in views if view is not None for member in view["members"]]
            return len(roles) == 9 and "unknown" not in roles

        async def replaced() -> bool:
            return relay.accepted >= before + 2 and await whole()

        await until(replaced, 60, f"other links to {node_id}", 0.05)

    async def taken_up(self, times: int) -> None:
        """Wait until every node has read its files so often."""
        for node in self.nodes.values():

            async def told(node: LiveNode = node) -> bool:
                return node.log_text().count("certificates read again") >= times

            await until(told, 60, f"{node.node_id} to read its files", 0.05)

    async def peer_serial(self, node_id: str, asking: str) -> int:
        """Of the certificate that a node shows to a peer that dials it now."""
        own = self.certs / asking
        context = ssl.create_default_context(cafile=own / "ca.pem")
        context.check_hostname = False
        context.load_cert_chain(own / "cert.pem", own / "key.pem")
        port = self.nodes[node_id].peer_port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            return int(writer.get_extra_info("peercert")["serialNumber"], 16)
        finally:
            writer.transport.abort()


class Load:
    """Workers that acquire, renew, commit and release without a pause; failed is what may not be."""

    def __init__(self, cluster: Relayed, ca_file: Path, credential: Path) -> None:
        self.cluster = cluster
        self.ca_file = ca_file
        self.credential = credential
        self.done: dict[str, int] = {}
        self.failed: list[tuple[str, BaseException]] = []
        self.ending = False

    def client(self, *, stream: bool = True) -> tenure.Client:
        return tenure.connect(
            self.cluster.urls, credential=self.credential, ca_file=self.ca_file, timeout=30.0, stream=stream
        )

    async def cycle(self, client: tenure.Client, name: str) -> None:
        try:
            async with client.lease(f"job/{name}", ttl=15) as held:
                await held.renew()
                await held.commit(f"{self.done.get(name, 0)}")
                await client.get(f"job/{name}")
        except Exception as error:
            self.failed.append((name, error))
        self.done[name] = self.done.get(name, 0) + 1
        await asyncio.sleep(0.02)

    async def one_client(self, name: str, *, stream: bool) -> None:
        """All over one client's connections, which are as old as the test."""
        async with self.client(stream=stream) as client:
            while not self.ending:
                await self.cycle(client, name)

    async def new_clients(self, name: str, *, stream: bool) -> None:
        while not self.ending:
            async with self.client(stream=stream) as client:
                await self.cycle(client, name)

    async def holder(self) -> None:
        """One lease that is held all the while, renewed by the library itself."""
        async with self.client() as client, client.lease("held", ttl=10) as held:
            token = held.token
            while not self.ending:
                await asyncio.sleep(0.1)
                self.done["holder"] = self.done.get("holder", 0) + 1
                # A renewal may be late where its answer went with a link that was broken here.
                if held.token != token or held.state not in (tenure.State.HELD, tenure.State.AT_RISK):
                    self.failed.append(("holder", AssertionError(f"{held.state} {held.lost_reason}")))
                    return

    async def more(self, cycles: int = 3) -> None:
        """Wait until every worker has done so many more cycles, none of which has failed."""
        enough = {name: count + cycles for name, count in self.done.items()}

        async def reached() -> bool:
            return bool(self.failed) or all(self.done[name] >= count for name, count in enough.items())

        await until(reached, 120, f"{cycles} more cycles of each worker")
        assert self.failed == []


@contextlib.asynccontextmanager
async def loaded(load: Load) -> AsyncIterator[None]:
    workers = [
        asyncio.create_task(work)
        for work in (
            load.one_client("stream", stream=True),
            load.one_client("http", stream=False),
            load.new_clients("new streams", stream=True),
            load.new_clients("new http", stream=False),
            load.holder(),
        )
    ]

    async def all_begun() -> bool:
        return len(load.done) == len(workers) or bool(load.failed)

    try:
        await until(all_begun, 60, "the first cycle of each worker")
        yield
    finally:
        load.ending = True
        await asyncio.gather(*workers)
    assert load.failed == []


def put(path: Path, content: bytes | str) -> None:
    """As an operator replaces a file: in one step."""
    made = path.with_suffix(".new")
    made.write_bytes(content if isinstance(content, bytes) else content.encode())
    made.replace(path)


def own_serial(cluster: Relayed, node_id: str) -> int:
    from cryptography import x509

    return x509.load_pem_x509_certificate((cluster.certs / node_id / "cert.pem").read_bytes()).serial_number


async def all_show_their_newest(cluster: Relayed) -> None:
    """To clients and to peers."""
    for node_id, node in cluster.nodes.items():
        asking = "n1" if node_id != "n1" else "n2"
        assert await cluster.serial(node) == own_serial(cluster, node_id)
        assert await cluster.peer_serial(node_id, asking) == own_serial(cluster, node_id)


async def test_certificates_authority_and_credential_change_under_load_and_nothing_fails(
    tmp_path: Path,
) -> None:
    async with Relayed(tmp_path) as cluster:
        ca_file, credential = tmp_path / "ca.pem", tmp_path / "worker.credential"
        put(ca_file, (cluster.certs / "ca.pem").read_bytes())
        admin = tenure.connect(cluster.urls, credential=cluster.root, ca_file=ca_file, timeout=30.0)
        async with admin:
            rights = ["acquire", "commit", "observe"]
            made = await admin.create_credential("worker", rights=rights)
            put(credential, made.bearer)
            load = Load(cluster, ca_file, credential)
            async with loaded(load):
                await change_certificates(cluster, load)
                await change_credential(cluster, load, admin, made.credential.credential_id)
            assert min(load.done.values()) >= 15
        cluster.assert_all_run()


async def change_certificates(cluster: Relayed, load: Load) -> None:
    only_old = ssl.create_default_context(cafile=cluster.certs / "ca.pem")
    before = {node_id: own_serial(cluster, node_id) for node_id in cluster.nodes}
    await load.more()

    # Certificates of the same authority.
    tenured_tls("renew", cluster.certs)
    await cluster.taken_up(1)
    assert all(own_serial(cluster, node_id) != serial for node_id, serial in before.items())
    await all_show_their_newest(cluster)
    await cluster.link_anew("n1")
    await load.more()

    # Everybody trusts both authorities.
    tenured_tls("new-ca", cluster.certs)
    await cluster.taken_up(2)
    put(load.ca_file, (cluster.certs / "ca.pem").read_bytes())
    await cluster.link_anew("n2")
    await load.more()

    # Certificates of the new one. Clients have had the time in which they look at their files.
    await asyncio.sleep(2.0)
    cluster.trust.load_verify_locations(cluster.certs / "ca.pem")
    tenured_tls("renew", cluster.certs)
    await cluster.taken_up(3)
    await all_show_their_newest(cluster)
    await cluster.link_anew("n3")
    await load.more()

    # Nobody trusts the old one.
    tenured_tls("drop-old-ca", cluster.certs)
    await cluster.taken_up(4)
    put(load.ca_file, (cluster.certs / "ca.pem").read_bytes())
    cluster.trust = ssl.create_default_context(cafile=cluster.certs / "ca.pem")
    for node_id in cluster.nodes:
        await cluster.link_anew(node_id)
    await all_show_their_newest(cluster)
    await load.more()
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", cluster.nodes["n2"].http_port, ssl=only_old)


async def change_credential(cluster: Relayed, load: Load, admin: tenure.Client, credential_id: str) -> None:
    old = load.credential.read_text(encoding="ascii")
    began_s = time.time()
    rotated = await admin.rotate_credential(credential_id, overlap=OVERLAP_S)
    answers = await asyncio.gather(*(shown(cluster, node, old) for node in cluster.nodes.values()))
    if time.time() - began_s < OVERLAP_S:
        assert answers == [True] * 3, "the old secret has its overlap"
    put(load.credential, rotated.bearer)
    await load.more()
    for node in cluster.nodes.values():

        async def refused(node: LiveNode = node) -> bool:
            return not await shown(cluster, node, old)

        await until(refused, OVERLAP_S + 60, f"{node.node_id} to refuse the old secret", 0.2)
    assert time.time() - began_s >= OVERLAP_S, "it was refused before the end of its overlap"
    await asyncio.sleep(STREAM_ENDS_S + 1)
    await load.more()


async def shown(cluster: Relayed, node: LiveNode, bearer: str) -> bool:
    """Whether a node lets the bearer in."""
    async with tenure.connect(node.url, credential=bearer, tls=cluster.trust, stream=False) as client:
        try:
            await client.get("nothing")
        except tenure.NotAuthorized:
            return False
    return True
