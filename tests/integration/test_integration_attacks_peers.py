"""The peers' port of real nodes, spoken to by whoever is no peer: without a certificate, with another's, with
bytes of a real peer that were overheard, with giants and bombs. Refused, logged, and nobody is worse off.

What a single transport does in each case stands in tests/auth/test_auth_links.py and
tests/raft/test_raft_transport.py.
"""

import asyncio
import contextlib
import datetime as dt
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attacked import GROWTH_MAX_BYTES, resident_bytes
from live_cluster import LiveCluster, LiveNode, until
from tls_cluster import TlsCluster

import tenure
from tenure_cluster.auth.authority import Issued, issue, make_authority
from tenure_cluster.auth.tls_files import _authority
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.link import HELLO_BYTES_MAX, frame

pytestmark = [pytest.mark.process, pytest.mark.slow]

YEAR = dt.timedelta(days=365)
CLUSTER = "live"
FORGED_TERM = 10_000


class Recorder:
    """A relay to a peer port that keeps what passed on each connection towards it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heard: list[bytearray] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        heard = bytearray()
        self.heard.append(heard)
        for source, sink, kept in ((reader, back, heard), (there, writer, None)):
            task = asyncio.create_task(self._pass(source, sink, kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray | None
    ) -> None:
        try:
            while data := await source.read(65_536):
                if kept is not None:
                    kept += data
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()


def dialling(cluster: TlsCluster, issued: Issued | None, directory: Path) -> ssl.SSLContext:
    """Trusts the cluster, and shows this certificate."""
    context = ssl.create_default_context(cafile=cluster.certs / "ca.pem")
    context.check_hostname = False
    if issued is not None:
        directory.mkdir(exist_ok=True)
        (directory / "cert.pem").write_bytes(issued.certificate_pem())
        (directory / "key.pem").write_bytes(issued.key_pem())
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


def hello(node_id: str, to: str) -> bytes:
    members = ["n1", "n2", "n3"]
    return frame(wire.Hello(wire.PROTOCOL_VERSION, CLUSTER, node_id, to, 7, 1 << 50, members))


async def said_to(node: LiveNode, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """All that a node answers to these bytes until it closes the connection, which it must."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.peer_port, ssl=context)
    except (OSError, ssl.SSLError):
        return b""
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            return await reader.read(-1)
    except (OSError, ssl.SSLError):
        return b""
    finally:
        writer.transport.abort()


async def told(cluster: LiveCluster, node: LiveNode, why: str) -> None:
    async def logged() -> bool:
        return any("refused: " in line and why in line for line in node.log_text().splitlines())

    await until(logged, 30, f"the line of {node.node_id} with {why!r}", 0.05)


async def still_works(cluster: LiveCluster, trust: ssl.SSLContext | None) -> None:
    """Nobody has believed what was forged, and a lease is had and given back."""
    await cluster.caught_up()
    for node in cluster.nodes.values():
        view = await cluster.view(node)
        assert view is not None
        assert view["term"] < FORGED_TERM
    urls = [node.url for node in cluster.nodes.values()]
    async with tenure.connect(urls, tls=trust, timeout=30.0) as client, client.lease("k", ttl=10) as held:
        await held.renew()
    cluster.assert_all_run()


async def test_whoever_cannot_prove_to_be_the_peer_that_he_says_is_refused_and_logged(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    async with TlsCluster(tmp_path) as cluster:
        node = cluster.nodes["n1"]
        ours, _ = _authority(cluster.certs)
        of_n3 = issue(ours, "n3", ["127.0.0.1"], YEAR, now)
        strange = issue(make_authority(YEAR, now), "n2", ["127.0.0.1"], YEAR, now)
        over = issue(ours, "n2", ["127.0.0.1"], dt.timedelta(minutes=-30), now)
        asked = hello("n2", "n1") + frame(wire.Vote(FORGED_TERM))
        attacks: list[tuple[str, ssl.SSLContext | None, str]] = [
            ("nothing", None, "it does not speak TLS"),
            ("no certificate", dialling(cluster, None, tmp_path / "none"), "it shows no certificate"),
            ("another authority", dialling(cluster, strange, tmp_path / "strange"), "is not accepted"),
            ("an expired one", dialling(cluster, over, tmp_path / "over"), "certificate has expired"),
            ("another node's", dialling(cluster, of_n3, tmp_path / "n3"), "names n3, not 'n2'"),
        ]
        for name, context, why in attacks:
            answered = await said_to(node, asked, context)
            if answered:
                (length,) = struct.unpack_from("<I", answered)
                assert isinstance(wire.decode_answer(answered[4 : 4 + length]), wire.Refused), name
            await told(cluster, node, why)
        await still_works(cluster, cluster.trust)


@contextlib.asynccontextmanager
async def overheard(cluster: LiveCluster, directory: Path) -> AsyncIterator[Recorder]:
    """The cluster, with a recorder in front of n1's peer port."""
    recorder = Recorder(cluster.nodes["n1"].peer_port)
    async with recorder.serving() as address:
        listed = f'peer = "127.0.0.1:{cluster.nodes["n1"].peer_port}"'
        write = cluster.write_config

        def write_config(node: LiveNode, **top: str) -> None:
            write(node, **top)
            text = node.config_path.read_text(encoding="utf-8")
            assert listed in text
            node.config_path.write_text(text.replace(listed, f'peer = "{address}"'), encoding="utf-8")

        cluster.write_config = write_config  # type: ignore[method-assign]
        async with cluster:
            yield recorder


@pytest.mark.parametrize("tls", [True, False], ids=["over TLS", "in the clear"])
async def test_bytes_of_a_real_peer_that_were_overheard_are_worth_nothing(tmp_path: Path, tls: bool) -> None:
    cluster = TlsCluster(tmp_path) if tls else LiveCluster(tmp_path)
    async with overheard(cluster, tmp_path) as recorder:
        node = cluster.nodes["n1"]
        trust = cluster.trust if isinstance(cluster, TlsCluster) else None
        await still_works(cluster, trust)

        async def both_have_spoken() -> list[bytes]:
            heard = [bytes(each) for each in recorder.heard if len(each) > 100]
            return heard if len(heard) >= 2 else []

        heard: list[bytes] = await until(both_have_spoken, 60, "bytes of both peers", 0.1)
        before = (await cluster.view(node) or {})["commit_index"]
        for data in heard * 2:
            answered = await said_to(node, data)
            if not tls:
                (length,) = struct.unpack_from("<I", answered)
                refused = wire.decode_answer(answered[4 : 4 + length])
                assert isinstance(refused, wire.Refused)
                assert "is not younger than" in refused.reason
        if not tls:
            await told(cluster, node, "is not younger than")
        assert (await cluster.view(node) or {})["commit_index"] >= before
        await still_works(cluster, trust)


BOMBS = {
    "a giant": struct.pack("<I", (1 << 32) - 1),
    "larger than a greeting": struct.pack("<I", HELLO_BYTES_MAX + 1),
    "an array without end": struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff",
    "a map without end": struct.pack("<I", 5) + b"\xdf\xff\xff\xff\xff",
    "text without end": struct.pack("<I", 6) + b"\x91\xdb\xff\xff\xff\xff",
    "an extension": struct.pack("<I", 6) + b"\xc7\x03\x05abc",
    "nested deeply": struct.pack("<I", HELLO_BYTES_MAX) + b"\x91" * HELLO_BYTES_MAX,
    "nothing": struct.pack("<I", 0),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a vote before the greeting": frame(wire.Vote(FORGED_TERM)),
}


async def test_giants_and_bombs_at_the_peers_port_end_their_connection_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with LiveCluster(tmp_path) as cluster:
        before = {node_id: resident_bytes(node) for node_id, node in cluster.nodes.items()}
        for node in cluster.nodes.values():
            for name, data in BOMBS.items():
                assert b"\x91" * 100 not in await said_to(node, data), name
        for node_id, node in cluster.nodes.items():
            assert resident_bytes(node) - before[node_id] < GROWTH_MAX_BYTES
        await still_works(cluster, None)


async def test_the_peers_port_is_no_way_in_for_who_says_nothing(tmp_path: Path) -> None:
    """A hundred connections, without a word, are closed; peers come and go meanwhile."""
    async with LiveCluster(tmp_path) as cluster:
        node = cluster.nodes["n1"]
        silent = [await asyncio.open_connection("127.0.0.1", node.peer_port) for _ in range(100)]
        follower = next(each for each in await cluster.followers() if each is not node)
        cluster.kill(follower)
        cluster.start(follower)
        await cluster.ready()
        for reader, writer in silent:
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read(-1) == b""
            writer.transport.abort()
        await still_works(cluster, None)
