"""The listener that does its own handshakes: how many, how long, with which certificate."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from auth_kit import HOST, Pki, now, until

from tenure_cluster.auth.tls import load
from tenure_cluster.tls_listener import TlsListener


class Echo(asyncio.Protocol):
    """Sends back what comes, and counts who there is."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        type(self).made += 1
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Served:
    """A listener with the certificates of n1, and what it has refused."""

    def __init__(self, pki: Pki, handshake_timeout_s: float, handshakes_max: int) -> None:
        Echo.made = 0
        self.refused: list[str] = []
        self.context = load(pki.files(), now()).clients
        self.listener = TlsListener(
            Echo,
            lambda: self.context,
            handshake_timeout_s=handshake_timeout_s,
            handshakes_max=handshakes_max,
            on_refused=lambda _address, why: self.refused.append(why),
        )

    @property
    def port(self) -> int:
        return int(self.listener.sockets[0].getsockname()[1])

    async def echoes(self, context: ssl.SSLContext) -> bool:
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        try:
            # In the same breath as the end of the handshake.
            writer.write(b"hello")
            return await asyncio.wait_for(reader.readexactly(5), 30) == b"hello"
        finally:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(pki: Pki, *, timeout_s: float = 30.0, handshakes_max: int = 10) -> AsyncIterator[Served]:
    served = Served(pki, timeout_s, handshakes_max)
    await served.listener.listen(HOST, 0)
    try:
        yield served
    finally:
        served.listener.close()
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def silent(served: Served, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Callers that connect and say nothing."""
    callers = [await asyncio.open_connection(HOST, served.port) for _ in range(count)]
    try:
        yield [reader for reader, _ in callers]
    finally:
        for _, writer in callers:
            writer.transport.abort()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "certs")


async def test_many_at_once_are_all_served(pki: Pki) -> None:
    async with serving(pki) as served:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(served.echoes(pki.client())) for _ in range(50)]
        assert all(call.result() for call in calls)
        assert served.refused == []


async def test_a_handshake_that_does_not_end_is_broken_off(pki: Pki) -> None:
    async with serving(pki, timeout_s=0.2) as served, silent(served, 1) as (reader,):
        assert await asyncio.wait_for(reader.read(), 30) == b""
        await until(lambda: served.refused, "the refusal")
        assert served.refused == ["its handshake takes too long"]


async def test_callers_that_say_nothing_make_room_for_those_that_do(pki: Pki) -> None:
    async with serving(pki, handshakes_max=3) as served, silent(served, 9) as readers:
        assert await served.echoes(pki.client())
        assert set(served.refused) == {"its handshake takes too long while others wait"}
        assert await asyncio.wait_for(readers[0].read(), 30) == b"", "the oldest went first"
        assert Echo.made == 1


async def test_every_handshake_has_the_certificate_of_its_moment(pki: Pki) -> None:
    async with serving(pki) as served:
        reader, writer = await asyncio.open_connection(HOST, served.port, ssl=pki.client())
        pki.replace("n1", pki.issue("n1"))
        old, new = writer.get_extra_info("peercert")["serialNumber"], pki.serial("n1")
        served.context = load(pki.files(), now()).clients
        assert await served.echoes(pki.client())
        other = await asyncio.open_connection(HOST, served.port, ssl=pki.client())
        assert int(other[1].get_extra_info("peercert")["serialNumber"], 16) == new != int(old, 16)
        writer.write(b"still")
        assert await asyncio.wait_for(reader.readexactly(5), 30) == b"still", "the old connection lives on"
        for each in (writer, other[1]):
            each.transport.abort()


async def test_who_leaves_before_the_handshake_is_not_worth_a_word(pki: Pki) -> None:
    async with serving(pki) as served:
        async with silent(served, 3):
            pass
        assert await served.echoes(pki.client())
        assert served.refused == []


async def test_a_closed_listener_breaks_handshakes_off_and_frees_its_address(pki: Pki) -> None:
    async with serving(pki) as served, silent(served, 2) as readers:
        await until(lambda: len(served.listener._handshakes) == 2, "the handshakes")
        port = served.port
        served.listener.close()
        for reader in readers:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 30) == b""
        again = Served(pki, 30.0, 10)
        await again.listener.listen(HOST, port)
        assert await again.echoes(pki.client())
        again.listener.close()
        await asyncio.sleep(0.01)


async def test_a_taken_address_is_told(pki: Pki) -> None:
    async with serving(pki) as served:
        with pytest.raises(OSError, match="Address already in use"):
            await Served(pki, 30.0, 10).listener.listen(HOST, served.port)
