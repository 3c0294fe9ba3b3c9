"""Links over TLS: both sides prove which node they are, and whoever can't is refused with one line in the
log."""

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from auth_kit import HOST, LONG_AGO, RELOAD_MS, Pki, dialling, now, stranger, until

from tenure_cluster.auth.authority import Issued
from tenure_cluster.auth.tls import Files, NodeTls
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.joining import ask_origin
from tenure_cluster.raft.link import frame
from tenure_cluster.raft.transport import HANDSHAKES_MAX, Transport


class Recorder:
    def __init__(self) -> None:
        self.consensus: list[tuple[str, wire.Consensus]] = []
        self.payloads: list[tuple[str, bytes]] = []
        self.links: list[tuple[str, bool]] = []
        self.gone: list[str] = []

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None:
        self.consensus.append((peer, message))

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None:
        self.payloads.append((peer, body))

    def on_linked(self, peer: str, up: bool) -> None:
        self.links.append((peer, up))

    def on_heard_anew(self, peer: str, epoch: int) -> None:
        assert epoch > 0

    def on_gone(self, peer: str) -> None:
        self.gone.append(peer)


class End:
    """One node's transport, with its own certificate or another."""

    def __init__(self, pki: Pki, node_id: str, peers: dict[str, str], files: Files | None = None) -> None:
        self.told = Recorder()
        tls = NodeTls(files or pki.files(node_id), reload_ms=RELOAD_MS, now=now)
        self.transport = Transport(
            node_id=node_id,
            cluster_id="c",
            peers=peers,
            listen=f"{HOST}:0",
            clock=SystemClock(),
            frame_bytes_max=1 << 16,
            outbox_bytes_max=1 << 20,
            user=self.told,
            tls=tls,
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.transport.port}"


@contextlib.asynccontextmanager
async def started(*ends: End) -> AsyncIterator[None]:
    try:
        for end in ends:
            await end.transport.start()
        yield
    finally:
        for end in ends:
            await end.transport.stop()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "certs")


@contextlib.asynccontextmanager
async def one_end(pki: Pki) -> AsyncIterator[End]:
    """n1, whose peer n2 is whoever the test plays; port 9 refuses n1's own dialling."""
    end = End(pki, "n1", {"n2": f"{HOST}:9"})
    async with started(end):
        yield end


def hello(node_id: str = "n2", epoch: int = 1) -> bytes:
    return frame(wire.Hello(wire.PROTOCOL_VERSION, "c", node_id, "n1", 7, epoch, ["n1", "n2"]))


@contextlib.asynccontextmanager
async def call(
    end: End, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, end.transport.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> wire.Answer:
    (length,) = struct.unpack("<I", await asyncio.wait_for(reader.readexactly(4), 10))
    return wire.decode_answer(await reader.readexactly(length))


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "refused: " in message]


async def test_two_nodes_link_and_hear_each_other(pki: Pki) -> None:
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        first = End(pki, "n1", {"n2": second.address})
        async with started(first):
            await until(first.transport.linked, "the link")
            first.transport.send("n2", frame(wire.Payload(b"x" * 50_000)) + frame(wire.Vote(3)))
            await until(lambda: second.told.consensus, "the vote")
            assert second.told.payloads == [("n1", b"x" * 50_000)]
            assert second.told.consensus == [("n1", wire.Vote(3))]
        await until(lambda: second.told.gone == ["n1"], "the end of the link")
    assert first.told.links == [("n2", True)]


def test_they_do_so_on_the_faster_event_loop_as_well(pki: Pki, tmp_path: Path) -> None:
    """Its TLS is another implementation than asyncio's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_two_nodes_link_and_hear_each_other(pki))
        runner.run(test_a_peer_of_the_cluster_that_says_who_it_is_is_welcome(pki, tmp_path))
        runner.run(test_a_peer_that_is_not_read_from_holds_back_what_is_sent_and_gets_it_afterwards(pki))


async def test_what_was_written_before_a_stop_arrives(pki: Pki) -> None:
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        first = End(pki, "n1", {"n2": second.address})
        async with started(first):
            await until(first.transport.linked, "the link")
            for number in range(100):
                first.transport.put("n2", frame(wire.Vote(number)))
        await until(lambda: len(second.told.consensus) == 100, "all votes")


async def test_a_peer_of_the_cluster_that_says_who_it_is_is_welcome(pki: Pki, tmp_path: Path) -> None:
    async with (
        one_end(pki) as end,
        call(end, dialling(pki, pki.issue("n2"), tmp_path / "x")) as (reader, writer),
    ):
        writer.write(hello() + frame(wire.Vote(3)))
        assert isinstance(await answer(reader), wire.Welcome)
        await until(lambda: end.told.consensus, "the vote")
        assert end.told.consensus == [("n2", wire.Vote(3))]


async def test_another_node_s_certificate_does_not_pass_for_this_one(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = dialling(pki, pki.issue("n3"), tmp_path / "x")
    async with one_end(pki) as end:
        for _ in range(3):
            async with call(end, context) as (reader, writer):
                # A better one behind it doesn't help, either.
                writer.write(hello() + hello("n3") + frame(wire.Vote(3)))
                refused = await answer(reader)
                assert isinstance(refused, wire.Refused)
                assert refused.reason == "its certificate names n3, not 'n2'"
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), 10) == b""
        assert end.told.consensus == []
    [line] = refusals(caplog)
    assert "its certificate names n3, not 'n2'" in line


def no_certificate(pki: Pki) -> Issued | None:
    return None


def of_another_authority(pki: Pki) -> Issued:
    return stranger("n2")


def expired(pki: Pki) -> Issued:
    return pki.issue("n2", LONG_AGO)


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (no_certificate, "it shows no certificate"),
        (of_another_authority, "its certificate is not accepted: unable to get local issuer certificate"),
        (expired, "its certificate is not accepted: certificate has expired"),
    ],
)
async def test_a_peer_without_a_certificate_that_counts_is_refused_with_one_line(
    pki: Pki,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    shown: Callable[[Pki], Issued | None],
    why: str,
) -> None:
    context = dialling(pki, shown(pki), tmp_path / "x")
    async with one_end(pki) as end:
        for _ in range(3):
            # With TLS 1.3 the dialler's handshake is through before its certificate has been looked at.
            async with call(end, context) as (reader, writer):
                writer.write(hello())
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await answer(reader)
        await until(lambda: refusals(caplog), "the line")
        assert end.told.links == []
    [line] = refusals(caplog)
    assert line.startswith(f"connection from {HOST}:")
    assert why in line


async def test_a_plain_peer_is_refused_with_one_line_and_not_heard(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_end(pki) as end:
        for _ in range(3):
            async with call(end, None) as (reader, writer):
                writer.write(hello())
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 10)
                assert reader.at_eof() or reader.exception()
    [line] = refusals(caplog)
    assert "it does not speak TLS" in line


async def test_older_tls_than_the_newest_is_refused_between_peers(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = dialling(pki, pki.issue("n2"), tmp_path / "x")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with one_end(pki) as end:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await call(end, context).__aenter__()
    assert "unsupported protocol" in refusals(caplog)[0]


@pytest.mark.parametrize("node_id", ["n3", "N2"])
async def test_a_dialler_notices_that_it_has_reached_another_node(
    pki: Pki, caplog: pytest.LogCaptureFixture, node_id: str
) -> None:
    pki.replace("n3", pki.issue(node_id))
    wrong = End(pki, "n2", {"n1": f"{HOST}:9"}, files=replace(pki.files("n3"), node_id=node_id))
    async with started(wrong):
        first = End(pki, "n1", {"n2": wrong.address})
        with caplog.at_level(logging.WARNING):
            async with started(first):
                await until(lambda: "no link to n2" in caplog.text, "the line")
                dialled = first.transport._epoch
                await until(lambda: first.transport._epoch > dialled + 2, "more attempts")
                assert first.transport.linked() == []
    lines = [message for message in caplog.messages if "no link to n2" in message]
    assert lines == [
        f"no link to n2: its certificate names {node_id}, not 'n2' (said once while it stays so)"
    ]


async def test_a_dialler_is_told_when_its_own_certificate_is_refused(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Pki(tmp_path / "other")
    (other.directory / "n1" / "ca.pem").write_bytes(
        (other.directory / "ca.pem").read_bytes() + (pki.directory / "ca.pem").read_bytes()
    )
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        first = End(other, "n1", {"n2": second.address})
        async with started(first):
            await until(lambda: "no link to n2" in caplog.text, "the line")
    [line] = [message for message in caplog.messages if "no link to n2" in message]
    assert "it ended the connection; its log says why" in line
    assert any("its certificate is not accepted" in message for message in refusals(caplog))


async def test_strangers_that_say_nothing_keep_no_peer_out(pki: Pki) -> None:
    """More of them than handshakes may be under way."""
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        silent = [
            await asyncio.open_connection(HOST, second.transport.port) for _ in range(HANDSHAKES_MAX + 10)
        ]
        first = End(pki, "n1", {"n2": second.address})
        async with started(first):
            await until(first.transport.linked, "the link")
        for _, writer in silent:
            writer.transport.abort()


async def test_a_peer_that_is_not_read_from_holds_back_what_is_sent_and_gets_it_afterwards(pki: Pki) -> None:
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        first = End(pki, "n1", {"n2": second.address})
        async with started(first):
            await until(first.transport.linked, "the link")
            await until(lambda: second.transport._inbound, "the other end of it")
            second.transport.pause(True)
            body, sent = b"x" * 60_000, 0
            while first.transport.has_room("n2", len(body)):
                first.transport.put("n2", frame(wire.Payload(body)))
                first.transport.flush()
                sent += 1
                await asyncio.sleep(0)
                assert sent < 10_000, "it is never full"
            assert len(second.told.payloads) < sent
            second.transport.pause(False)
            await until(lambda: len(second.told.payloads) == sent, "all of it")
            assert first.transport.linked() == ["n2"]


async def test_a_link_with_more_waiting_than_may_wait_is_given_up(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    second = End(pki, "n2", {"n1": f"{HOST}:9"})
    async with started(second):
        first = End(pki, "n1", {"n2": second.address})
        async with started(first):
            await until(first.transport.linked, "the link")
            await until(lambda: second.transport._inbound, "the other end of it")
            second.transport.pause(True)
            for _ in range(1_000):
                first.transport.put("n2", frame(wire.Payload(b"x" * 60_000)))
                first.transport.flush()
                await asyncio.sleep(0)
                if "bytes wait to be sent" in caplog.text:
                    break
            assert "link to n2 dropped: more than 1048576 bytes wait to be sent" in caplog.text
            second.transport.pause(False)
            await until(lambda: first.told.links[-2:] == [("n2", False), ("n2", True)], "another link")


async def test_a_node_that_joins_believes_only_members_whose_certificates_name_them(pki: Pki) -> None:
    end = End(pki, "n1", {"n0": f"{HOST}:9"})
    end.transport.admission.cluster_id = "c+abc"
    own = NodeTls(pki.files("n3"), reload_ms=RELOAD_MS, now=now)

    async def asked(member: str, tls: NodeTls | None, patience_s: float) -> str | None:
        where = {member: end.address}
        return await ask_origin(node_id="n3", cluster_id="c", members=where, tls=tls, patience_s=patience_s)

    async with started(end):
        assert await asked("n1", own, 60.0) == "abc"
        assert await asked("n2", own, 0.5) is None, "n1 is reached there"
        assert await asked("n1", None, 0.5) is None, "without a certificate"
