"""Certificates and authorities are changed on a loaded cluster of real nodes, and not one operation fails."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from auth_kit import QUICK, RELOAD_MS, YEAR, Nodes, now, shown_serial, stranger, three_nodes, until

import tenure
from tenure_cluster.auth import tls_files
from tenure_cluster.auth.tls import signature
from tenure_cluster.settings import Leases

WORKERS = 4


class Load:
    """Workers that acquire, renew, commit and release without a pause, each on connections of its own, which
    are new ones from time to time."""

    def __init__(self, nodes: Nodes, trust: ssl.SSLContext) -> None:
        self.nodes = nodes
        self.trust = trust
        self.done = 0
        self.ending = False
        self.failed: list[BaseException] = []

    async def work(self, number: int) -> None:
        key = f"job/{number}"
        while not self.ending:
            async with tenure.connect(self.nodes.urls, tls=self.trust, timeout=20.0) as client:
                for _ in range(10):
                    try:
                        async with client.lease(key, ttl=10) as held:
                            await held.renew()
                            await held.commit(str(self.done))
                    except Exception as error:
                        self.failed.append(error)
                    self.done += 1

    async def more(self, cycles: int = 20) -> None:
        """Wait until so many more cycles are done."""
        enough = self.done + cycles
        await until(lambda: self.done >= enough, f"{cycles} cycles", 60)
        assert self.failed == []


@contextlib.asynccontextmanager
async def loaded(nodes: Nodes, trust: ssl.SSLContext) -> AsyncIterator[Load]:
    load = Load(nodes, trust)
    workers = [asyncio.create_task(load.work(number)) for number in range(WORKERS)]
    try:
        await load.more()
        yield load
    finally:
        load.ending = True
        await asyncio.gather(*workers)
    assert load.failed == []


async def shown(nodes: Nodes, trust: ssl.SSLContext) -> None:
    """Every node shows its newest certificate to a new client."""
    for node_id, member in nodes.members.items():
        await taken_up(nodes, node_id)
        assert await shown_serial(member.http, trust) == nodes.pki.serial(node_id)


async def taken_up(nodes: Nodes, *node_ids: str) -> None:
    """Wait until the nodes (all by default) use what is in their files now."""
    for node_id in node_ids or tuple(nodes.nodes):
        wanted = signature(nodes.pki.files(node_id))
        tls = nodes.nodes[node_id]._tls
        assert tls is not None
        await until(
            lambda tls=tls, wanted=wanted: tls._contexts.signature == wanted, f"{node_id} to read them"
        )


async def link_anew(nodes: Nodes, node_id: str) -> None:
    """Break every connection on which the node sends to its peers, and wait for those that replace them."""
    transport = nodes.nodes[node_id].raft._transport
    before = {peer: transport.epoch(peer) for peer in transport.linked()}
    for link in list(transport._links.values()):
        link.abort()
    await until(
        lambda: all(transport.epoch(peer) not in (None, epoch) for peer, epoch in before.items()),
        "links in the place of those that were broken",
    )


async def relinked(nodes: Nodes, node_id: str) -> None:
    """Restart one node: its links, to and from it, are made anew with what the files hold now."""
    await nodes.stop(node_id)
    await nodes.start(node_id)
    await nodes.serve()
    await nodes.all_linked()


async def test_certificates_and_then_the_authority_are_changed_under_load(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as nodes:
        directory = nodes.pki.directory
        trust = nodes.pki.client()
        only_old = nodes.pki.client()
        async with loaded(nodes, trust) as load:
            tls_files.renew(directory, lifetime=YEAR, now=now())
            await shown(nodes, trust)
            await link_anew(nodes, "n1")
            await load.more()

            tls_files.new_ca(directory, ca_lifetime=YEAR, now=now())
            await taken_up(nodes)
            await link_anew(nodes, "n2")
            trust.load_verify_locations(directory / "ca.pem")
            await load.more()

            tls_files.renew(directory, lifetime=YEAR, now=now())
            await shown(nodes, trust)
            await link_anew(nodes, "n3")
            await load.more()

            assert tls_files.drop_old_ca(directory) == 1
            await taken_up(nodes)
            await link_anew(nodes, "n2")
            await load.more()
        # All that is made now is made with the new authority alone.
        await relinked(nodes, "n1")
        await shown(nodes, nodes.pki.client())
        with pytest.raises(ssl.SSLCertVerificationError):
            await shown_serial(nodes.members["n2"].http, only_old)
        async with loaded(nodes, nodes.pki.client()):
            pass


def damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.truncate(100)


async def test_files_that_cannot_be_used_change_nothing_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with three_nodes(tmp_path) as nodes:
        trust = nodes.pki.client()
        before = {node_id: nodes.pki.serial(node_id) for node_id in nodes.members}

        async def refused(told: str) -> None:
            await until(lambda: told in caplog.text, told)
            await asyncio.sleep(3 * RELOAD_MS / 1000)
            lines = [message for message in caplog.messages if told in message]
            assert len(lines) == 1
            assert "goes on with the certificates that it has" in lines[0]
            assert await shown_serial(nodes.members["n1"].http, trust) == before["n1"]

        damage(nodes.pki.files("n1").cert)
        await refused("holds no usable certificate")
        nodes.pki.replace("n1", stranger("n1"))
        await refused("is not accepted by tls.ca")
        os.unlink(nodes.pki.files("n1").key)
        await refused("key.pem': No such file or directory")
        nodes.pki.replace("n1", nodes.pki.issue("n1"))
        await shown(nodes, trust)
        assert nodes.pki.serial("n1") != before["n1"]
        await nodes.all_linked()


async def test_a_node_that_is_asked_reads_its_files_at_once(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as nodes:
        await nodes.stop("n3")
        slow = nodes.configs["n3"].tls
        nodes.use("n3", tls=type(slow)(cert=slow.cert, key=slow.key, ca=slow.ca, reload_ms=3_600_000))
        await nodes.start("n3")
        await nodes.serve()
        nodes.pki.replace("n3", nodes.pki.issue("n3"))
        nodes.nodes["n3"].reload_certificates()
        await shown(nodes, nodes.pki.client())


async def test_a_node_without_tls_gets_no_link_and_the_rest_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with three_nodes(tmp_path) as nodes:
        await nodes.stop("n3")
        caplog.clear()
        plain = {
            name: type(member)(peer=member.peer, http=member.http.replace("https", "http"))
            for name, member in nodes.members.items()
        }
        config = nodes.configs["n3"]
        nodes.use(
            "n3",
            tls=type(config.tls)(),
            members=plain,
            http=type(config.http)(listen=config.http.listen, advertise=plain["n3"].http),
            raft=QUICK,
            leases=Leases(ttl_min_ms=3_000),
        )
        nodes.configs["n3"].validate()
        await nodes.start("n3")
        await until(lambda: caplog.text.count("it does not speak TLS") == 2, "both nodes to refuse it")
        async with (
            tenure.connect(nodes.urls[:2], tls=nodes.pki.client(), timeout=20.0) as client,
            client.lease("k", ttl=10) as held,
        ):
            await held.renew()
        assert nodes.nodes["n3"].raft.status().connected == []
        assert all("n3" not in nodes.nodes[node_id].raft.status().connected for node_id in ("n1", "n2"))
        refusals = [message for message in caplog.messages if "it does not speak TLS" in message]
        assert len(refusals) == 2, "each says it once"
