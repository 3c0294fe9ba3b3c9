"""The front over TLS: calls, watches and streams as without it, and clients that must show a certificate."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from auth_kit import HOST, YEAR, Nodes, Pki, dialling, now, stranger, until

import tenure
from tenure_cluster.auth.authority import Issued, issue, make_authority

CLIENTS = make_authority(YEAR, now())


@contextlib.asynccontextmanager
async def one_node(directory: Path, *, client_ca: bool = False) -> AsyncIterator[Nodes]:
    """n1 alone, with TLS."""
    nodes = Nodes(Pki(directory / "certs"), directory / "data")
    tls = nodes.configs["n1"].tls
    if client_ca:
        (directory / "clients.pem").write_bytes(CLIENTS.certificate_pem())
        tls = type(tls)(cert=tls.cert, key=tls.key, ca=tls.ca, client_ca=str(directory / "clients.pem"))
    nodes.use("n1", members={"n1": nodes.members["n1"]}, tls=tls)
    try:
        await nodes.start("n1")
        await nodes.serve()
        yield nodes
    finally:
        await nodes.stop()


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "refused: " in message]


async def test_leases_and_what_is_told_about_them(tmp_path: Path) -> None:
    async with (
        one_node(tmp_path) as nodes,
        tenure.connect(nodes.urls[0], tls=nodes.pki.client(), timeout=20.0) as client,
    ):
        async with client.lease("job/1", ttl=10) as held:
            await held.commit("x" * 65_536)
        record = await client.record("job/1")
        assert record is not None
        assert record.value == "x" * 65_536
        async with contextlib.aclosing(client.watch("job/", after=0)) as events, asyncio.timeout(30):
            assert (await anext(events)).key == "job/1"


async def test_a_stream(tmp_path: Path) -> None:
    async with (
        one_node(tmp_path) as nodes,
        aiohttp.ClientSession() as session,
        session.ws_connect(nodes.urls[0] + "/v1/stream", ssl=nodes.pki.client(), max_msg_size=0) as stream,
    ):
        asked = [[1, "acquire", {"key": "k", "owner": "a", "ttl_ms": 10_000}]]
        await stream.send_bytes(msgspec.msgpack.encode(asked))
        [[number, status, body]] = msgspec.msgpack.decode((await stream.receive(timeout=30)).data)
        assert (number, status, body["status"]) == (1, 200, "granted")


async def test_plain_http_is_refused_and_a_storm_of_it_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_node(tmp_path) as nodes:
        for _ in range(20):
            reader, writer = await asyncio.open_connection(HOST, int(nodes.urls[0].rpartition(":")[2]))
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.transport.abort()
    [line] = refusals(caplog)
    assert f"connection from {HOST}:" in line
    assert "it does not speak TLS (1 so far" in line


async def test_what_insecure_opens_is_said_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With TLS the peers' address is safe; the clients' is not, as they show nothing."""
    nodes = Nodes(Pki(tmp_path / "certs"), tmp_path / "data")
    own, http, peer = nodes.members["n1"], nodes.configs["n1"].http, nodes.configs["n1"].peer
    nodes.use(
        "n1",
        members={"n1": own},
        insecure=True,
        http=type(http)(listen=http.listen.replace(HOST, "0.0.0.0"), advertise=http.advertise),
        peer=type(peer)(listen=peer.listen.replace(HOST, "0.0.0.0"), advertise=peer.advertise),
    )
    nodes.configs["n1"].validate()
    await nodes.start("n1")
    await nodes.stop()
    [line] = [message for message in caplog.messages if message.startswith("insecure: ")]
    assert "http.listen = '0.0.0.0:" in line


async def answered(nodes: Nodes, context: ssl.SSLContext) -> bool:
    """Whether a client with this certificate gets an answer."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(nodes.urls[0] + "/livez", ssl=context) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False


def of_the_clients_authority(pki: Pki) -> Issued | None:
    return issue(CLIENTS, "agent", [], YEAR, now())


def none(pki: Pki) -> Issued | None:
    return None


def of_the_cluster_s_authority(pki: Pki) -> Issued | None:
    return pki.issue("n2")


def of_a_stranger(pki: Pki) -> Issued | None:
    return stranger("agent")


def expired(pki: Pki) -> Issued | None:
    return issue(CLIENTS, "agent", [], dt.timedelta(minutes=-30), now())


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (of_the_clients_authority, ""),
        (none, "it shows no certificate"),
        (of_the_cluster_s_authority, "its certificate is not accepted"),
        (of_a_stranger, "its certificate is not accepted"),
        (expired, "its certificate is not accepted: certificate has expired"),
    ],
)
async def test_with_an_authority_of_clients_only_those_that_it_knows_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shown: Callable[[Pki], Issued | None], why: str
) -> None:
    async with one_node(tmp_path, client_ca=True) as nodes:
        context = dialling(nodes.pki, shown(nodes.pki), tmp_path / "x")
        assert await answered(nodes, context) == (why == "")
        if why:
            await until(lambda: why in "".join(refusals(caplog)), "the line")
        else:
            assert refusals(caplog) == []
