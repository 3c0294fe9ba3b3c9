"""Lines through proxies: each has its own fate, and several faults can be on one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from live_echo import Client, Echo, connected, echo_server

from tenure_chaos.live.lines import NoLines
from tenure_chaos.live.network import Network
from tenure_chaos.live.proxies.serving import Serving
from tenure_chaos.live.proxies.toxiproxy import NoSuchProxy, Proxy, ProxyError, ServerStuck

pytestmark = pytest.mark.process


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with echo_server() as echo:
        yield echo


@pytest.fixture
async def network(any_server: Serving, echo: Echo) -> AsyncIterator[Network]:
    """Three nodes and a client; whatever is said to any node comes back."""
    network = Network(any_server.server, ("n1", "n2", "n3"), ("c1",))
    await network.open(lambda a, b: echo.address)
    yield network
    await network.close()


@contextlib.asynccontextmanager
async def on(network: Network, line: str) -> AsyncIterator[Client]:
    async with connected(network.address(line)) as client:
        assert await client.ask(b"hello") == b"hello"
        yield client


async def refuses(network: Network, line: str) -> bool:
    try:
        async with connected(network.address(line)):
            return False
    except OSError:
        return True


async def test_every_directed_pair_and_every_way_of_a_client_has_a_line(network: Network) -> None:
    assert sorted(network.addresses()) == sorted(
        ["n1>n2", "n1>n3", "n2>n1", "n2>n3", "n3>n1", "n3>n2", "c1>n1", "c1>n2", "c1>n3"]
    )
    assert len(set(network.addresses().values())) == 9


async def test_lines_between_groups_go_both_ways(network: Network) -> None:
    assert sorted(network.between(["n1"], ["n2", "n3"])) == ["n1>n2", "n1>n3", "n2>n1", "n3>n1"]


async def test_a_silent_line_takes_nothing_along(network: Network) -> None:
    async with on(network, "n1>n2") as cut, on(network, "n2>n1") as back, on(network, "c1>n2") as other:
        await network.silence("f1", ["n1>n2"])
        cut.send(b"lost")
        assert await cut.is_silent(0.3)
        assert await back.ask(b"heard") == b"heard"
        assert await other.ask(b"heard") == b"heard"
        await network.heal("f1")
        assert await cut.ending() in ("closed", "reset")
    async with on(network, "n1>n2"):
        pass


async def test_healing_insists_if_the_server_refuses_for_a_while(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the port of a line can't be had at once."""
    server, refusals = network.server, 0
    update, remove = server.update, server.remove_toxic

    def refuse_thrice() -> None:
        nonlocal refusals
        refusals += 1
        if refusals % 4:
            raise ProxyError("address in use")

    def updated(name: str, *, enabled: bool) -> Proxy:
        refuse_thrice()
        return update(name, enabled=enabled)

    def removed(proxy: str, name: str) -> None:
        refuse_thrice()
        remove(proxy, name)

    monkeypatch.setattr(server, "update", updated)
    monkeypatch.setattr(server, "remove_toxic", removed)
    await network.toxic("f1", ["n1>n2"], "latency", latency=10_000, jitter=0)
    await network.heal("f1", unread=["n1>n2"])
    assert refusals == 4 * 4, "the line was closed, opened, and two toxics were taken away"
    async with on(network, "n1>n2"):
        pass
    assert await network.heal_everything() == []


async def test_a_line_whose_toxic_can_t_be_taken_away_is_made_anew(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(proxy: str, name: str) -> None:
        raise ServerStuck("the server itself says that it takes too long")

    monkeypatch.setattr(network.server, "remove_toxic", hang)
    await network.toxic("f1", ["n1>n2"], "latency", latency=10_000, jitter=0)
    await network.refuse(["n1>n2"])
    await network.heal("f1")
    assert await refuses(network, "n1>n2"), "another fault wants that"
    await network.allow(["n1>n2"])
    async with on(network, "n1>n2"):
        pass
    assert await network.heal_everything() == []


async def test_what_one_fault_heals_another_may_still_hold(network: Network) -> None:
    await network.silence("f1", ["n1>n2"])
    await network.silence("f10", ["n1>n2", "n1>n3"])
    await network.heal("f1")
    async with connected(network.address("n1>n2")) as client:
        client.send(b"x")
        assert await client.is_silent(0.3)
    await network.heal("f10")
    async with on(network, "n1>n2"):
        pass
    assert await network.heal_everything() == []


async def test_a_line_is_refused_until_nobody_wants_that_any_more(network: Network) -> None:
    await network.refuse(["c1>n1"])
    await network.refuse(["c1>n1"])
    assert await refuses(network, "c1>n1")
    await network.allow(["c1>n1"])
    assert await refuses(network, "c1>n1")
    await network.allow(["c1>n1"])
    async with on(network, "c1>n1"):
        pass


async def test_what_was_not_healed_is_named_and_mended(network: Network) -> None:
    await network.silence("f1", ["n1>n2"])
    await network.refuse(["c1>n1"])
    assert sorted(await network.heal_everything()) == ["c1>n1", "n1>n2"]
    assert await network.heal_everything() == []
    async with on(network, "c1>n1"), on(network, "n1>n2"):
        pass


async def test_lost_replies_lose_nothing_that_is_asked(network: Network, echo: Echo) -> None:
    await network.silence("f1", ["c1>n1"], ["downstream"])
    async with connected(network.address("c1>n1")) as client:
        client.send(b"do it")
        assert await client.is_silent(0.3)
    assert echo.received.endswith(b"do it")


async def test_lines_are_gone_after_the_end(any_server: Serving, echo: Echo) -> None:
    network = Network(any_server.server, ("n1",), ("c9",))
    await network.open(lambda a, b: echo.address)
    await network.close()
    with pytest.raises(NoSuchProxy):
        any_server.server.proxy("c9>n1")


def test_nodes_without_lines_between_them_can_not_be_partitioned(any_server: Serving) -> None:
    network = Network(any_server.server, ("n1", "n2"), ("c1",), peers=False)
    assert list(network.peer_lines()) == []
    with pytest.raises(NoLines):
        network.between(["n1"], ["n2"])


async def test_only_one_fault_holds_bytes_up_on_a_line(network: Network) -> None:
    await network.toxic("f1", ["n1>n2"], "latency", latency=1)
    assert not network.are_free(["n1>n2", "n1>n3"])
    with pytest.raises(NoLines):
        await network.toxic("f2", ["n1>n2", "n1>n3"], "bandwidth", rate=20)
    await network.silence("f3", ["n1>n2"])
    await network.heal("f1")
    assert network.are_free(["n1>n2", "n1>n3"])
    await network.toxic("f2", ["n1>n2", "n1>n3"], "bandwidth", rate=20)


async def test_a_line_whose_receiver_does_not_read_is_healed_by_closing_its_connections(
    any_server: Serving,
) -> None:
    unread = asyncio.Event()

    async def take_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await unread.wait()
        writer.close()

    server = await asyncio.start_server(take_nothing, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    network = Network(any_server.server, ("n1", "n2"), ("c1",))
    await network.open(lambda a, b: f"{host}:{port}")
    try:
        _, writer = await asyncio.open_connection(*network.address("n1>n2").split(":"))
        await network.toxic("f1", ["n1>n2"], "bandwidth", rate=100_000)
        writer.write(b"x" * 30_000_000)  # more than all buffers on the way hold
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.drain()
        async with asyncio.timeout(10.0):
            await network.heal("f1", unread=["n1>n2"])
        assert network.are_free(["n1>n2"])
        assert (await asyncio.to_thread(any_server.server.proxy, "n1>n2")).toxics == ()
        writer.transport.abort()
    finally:
        unread.set()
        server.close()
        await network.close()
