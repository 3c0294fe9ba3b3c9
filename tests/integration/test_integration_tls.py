"""Real processes with TLS: clients, peers, certificates that change, a node that comes back."""

import asyncio
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
from live_cluster import LiveNode, until
from tls_cluster import TlsCluster, tenured_tls

import tenure

pytestmark = pytest.mark.process


async def use(cluster: TlsCluster, trust: ssl.SSLContext, key: str) -> int:
    """From acquire to release by the client library; the token."""
    urls = [node.url for node in cluster.nodes.values()]
    async with tenure.connect(urls, tls=trust, timeout=20.0) as client:
        async with client.lease(key, ttl=10) as held:
            await held.renew()
            await held.commit("done")
        return int(held.token)


async def test_a_cluster_serves_by_https_and_refuses_all_else(tmp_path: Path) -> None:
    async with TlsCluster(tmp_path) as cluster:
        first = await use(cluster, cluster.trust, "job")
        leader = await cluster.leader()
        # Plain HTTP, and a client that doesn't know the authority, get no answer.
        plain = leader.url.replace("https://", "http://")
        async with tenure.connect(plain, timeout=1.0) as client:
            with pytest.raises((tenure.ClusterUnavailable, tenure.OutcomeUnknown)):
                await client.acquire("job", owner="a", ttl=30)
        await until(lambda: _done(cluster.refused("does not speak TLS")), 10, "the line")
        async with tenure.connect(leader.url, timeout=1.0) as client:
            with pytest.raises(tenure.ClusterUnavailable, match=r"(?i)certificate"):
                await client.acquire("job", owner="a", ttl=30)
        # The peer port without a certificate.
        anybody = ssl.create_default_context(cafile=cluster.certs / "ca.pem")
        reader, writer = await asyncio.open_connection("127.0.0.1", leader.peer_port, ssl=anybody)
        writer.write(b"\x05\x00\x00\x00hello")
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        writer.transport.abort()
        await until(lambda: _done(cluster.refused("it shows no certificate")), 10, "the line")
        # Every node is a peer of every other, and one that comes back is again.
        cluster.kill(leader)
        assert await use(cluster, cluster.trust, "job") > first
        cluster.start(leader)
        await cluster.ready()
        await cluster.caught_up()


async def test_the_command_line_client_finds_the_authority_by_the_environment(tmp_path: Path) -> None:
    async with TlsCluster(tmp_path) as cluster:
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure.cli", "status", "-o", "json"),
            env={
                **os.environ,
                "TENURE_ENDPOINTS": ",".join(node.url for node in cluster.nodes.values()),
                "SSL_CERT_FILE": str(cluster.certs / "ca.pem"),
            },
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(done.communicate(), 60)
        assert done.returncode == 0
        assert b'"n3"' in out


async def test_certificates_and_authority_change_on_running_processes(tmp_path: Path) -> None:
    """One worker goes on all the while; the last step is asked for by SIGHUP."""
    async with TlsCluster(tmp_path) as cluster:
        failed: list[BaseException] = []
        done: list[int] = []
        ending = asyncio.Event()

        async def work() -> None:
            while not ending.is_set():
                try:
                    done.append(await use(cluster, cluster.trust, "job"))
                except tenure.TenureError as error:
                    failed.append(error)

        async def more() -> None:
            enough = len(done) + 5
            await until(lambda: _done(len(done) >= enough), 60, "more work to be done")

        async def read_again(times: int) -> None:
            for node in cluster.nodes.values():

                async def told(node: LiveNode = node) -> bool:
                    return node.log_text().count("certificates read again") >= times

                await until(told, 30, f"{node.node_id} to read its files again")

        worker = asyncio.create_task(work())
        await more()
        before = {node_id: await cluster.serial(node) for node_id, node in cluster.nodes.items()}
        tenured_tls("new-ca", cluster.certs)
        await read_again(1)
        cluster.trust.load_verify_locations(cluster.certs / "ca.pem")
        await more()
        tenured_tls("renew", cluster.certs)
        await read_again(2)
        for node_id, node in cluster.nodes.items():
            assert await cluster.serial(node) != before[node_id]
        await more()
        tenured_tls("drop-old-ca", cluster.certs)
        for node in cluster.nodes.values():
            os.kill(node.pid, signal.SIGHUP)
        await read_again(3)
        cluster.trust = ssl.create_default_context(cafile=cluster.certs / "ca.pem")
        await more()
        ending.set()
        await worker
        assert failed == []
        assert done == sorted(set(done)), "tokens rise"
        cluster.assert_all_run()


async def _done(value: Any) -> Any:
    return value
