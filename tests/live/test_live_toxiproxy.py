"""The contract between the bench and its proxies: the same cases against Toxiproxy and against the
stand-in."""

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from live_echo import Client, Echo, connected, echo_server

from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.proxies.serving import Choice, NoServer, Serving, installed, proxy_server
from tenure_chaos.live.proxies.toxiproxy import (
    AlreadyThere,
    BadRequest,
    NoSuchProxy,
    Proxy,
    ProxyError,
    Server,
    ServerStuck,
)

T = TypeVar("T")

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=["real", "standin"])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    choice: Choice = request.param
    with proxy_server(tmp_path_factory.mktemp("proxies") / "log", choice) as serving:
        assert serving.real == (choice == "real")
        yield serving


@pytest.fixture
def server(serving: Serving) -> Iterator[Server]:
    yield serving.server
    for name in serving.server.proxies():
        serving.server.delete(name)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with echo_server() as echo:
        yield echo


async def call(function: Callable[..., T], *given: Any, **named: Any) -> T:
    """The wrapper blocks, and the servers behind the proxies live on this loop."""
    return await asyncio.to_thread(functools.partial(function, *given, **named))


@contextlib.asynccontextmanager
async def through(server: Server, echo: Echo) -> AsyncIterator[Client]:
    """A connection to the echo server through a proxy named "p", which has carried something."""
    if "p" not in await call(server.proxies):
        await call(server.create, "p", echo.address)
    async with connected((await call(server.proxy, "p")).listen) as client:
        assert await client.ask(b"hello") == b"hello"
        yield client


async def eventually_refused(address: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            async with connected(address):
                pass
        except OSError:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{address} still takes connections")


# -- proxies


def test_it_says_its_version(server: Server) -> None:
    assert server.version()


def test_what_was_created_is_shown_and_listed(server: Server) -> None:
    made = server.create("p", "127.0.0.1:1")
    assert made.upstream == "127.0.0.1:1"
    assert made.enabled
    assert made.listen.startswith("127.0.0.1:")
    assert not made.listen.endswith(":0")
    assert server.proxy("p") == made
    assert server.proxies() == {"p": made}


def test_a_name_is_given_once(server: Server) -> None:
    server.create("p", "127.0.0.1:1")
    with pytest.raises(AlreadyThere):
        server.create("p", "127.0.0.1:2")


def test_what_is_not_there_is_named_so(server: Server) -> None:
    server.create("p", "127.0.0.1:1")
    for attempt in (
        lambda: server.proxy("q"),
        lambda: server.delete("q"),
        lambda: server.update("q", enabled=False),
        lambda: server.add_toxic("q", "timeout", timeout=0),
        lambda: server.remove_toxic("p", "none"),
    ):
        with pytest.raises(NoSuchProxy):
            attempt()


def test_a_proxy_needs_a_name_and_an_upstream(server: Server) -> None:
    with pytest.raises(BadRequest):
        server.create("", "127.0.0.1:1")
    with pytest.raises(BadRequest):
        server.create("p", "")
    assert server.proxies() == {}


def test_an_address_that_is_taken_is_an_error_with_words(server: Server) -> None:
    taken = server.create("p", "127.0.0.1:1").listen
    with pytest.raises(ProxyError, match="address already in use"):
        server.create("q", "127.0.0.1:1", taken)
    assert list(server.proxies()) == ["p"]


def test_all_are_populated_or_none(server: Server) -> None:
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    server.create("a", "127.0.0.1:9", first)
    server.add_toxic("a", "timeout", timeout=0)
    wanted = [Proxy("a", first, "127.0.0.1:1", False), Proxy("b", second, "127.0.0.1:2", True)]
    made = server.populate(wanted)
    assert made == wanted
    assert server.proxies() == {"a": wanted[0], "b": wanted[1]}
    with pytest.raises(ProxyError):
        server.populate([Proxy("c", "127.0.0.1:0", "127.0.0.1:3", True), Proxy("d", second, "x:1", True)])
    assert sorted(server.proxies()) == ["a", "b"]


async def test_bytes_pass_both_ways(server: Server, echo: Echo) -> None:
    data = bytes(range(256)) * 4_000
    async with through(server, echo) as client:
        assert await client.ask(data) == data
    assert bytes(echo.received) == b"hello" + data


async def test_the_end_of_a_client_reaches_the_server(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        client.send(b"last words")
        await client.read(10)
    assert echo.received.endswith(b"last words")


async def test_a_disabled_proxy_closes_its_connections_and_refuses_new_ones(
    server: Server, echo: Echo
) -> None:
    async with through(server, echo) as client:
        listen = (await call(server.update, "p", enabled=False)).listen
        assert await client.ending() in ("closed", "reset")
    await eventually_refused(listen)
    assert not (await call(server.proxy, "p")).enabled
    assert (await call(server.update, "p", enabled=True)).listen == listen
    async with through(server, echo):
        pass


async def test_another_upstream_gets_the_next_connections(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client, echo_server() as other:
        updated = await call(server.update, "p", upstream=other.address)
        assert (updated.upstream, updated.enabled) == (other.address, True)
        assert await client.ending() in ("closed", "reset")
        async with through(server, echo):
            assert other.received == b"hello"


async def test_a_connection_ends_where_nobody_listens_upstream(server: Server) -> None:
    [port] = free_ports(1)
    listen = (await call(server.create, "p", f"127.0.0.1:{port}")).listen
    async with connected(listen) as client:
        assert await client.ending() in ("closed", "reset")


async def test_a_reset_of_the_server_heals_everything(server: Server, echo: Echo) -> None:
    listen = (await call(server.create, "p", echo.address)).listen
    await call(server.add_toxic, "p", "latency", latency=60_000)
    await call(server.update, "p", enabled=False)
    await call(server.reset)
    healed = await call(server.proxy, "p")
    assert healed == Proxy("p", listen, echo.address, True)
    async with through(server, echo):
        pass


# -- toxics


def test_a_toxic_is_described_with_the_proxy(server: Server) -> None:
    server.create("p", "127.0.0.1:1")
    toxic = server.add_toxic("p", "latency", stream="upstream", latency=5, jitter=2)
    assert (toxic.name, toxic.type, toxic.stream) == ("latency_upstream", "latency", "upstream")
    assert toxic.attributes == {"latency": 5, "jitter": 2}
    assert server.proxy("p").toxics == (toxic,)
    with pytest.raises(AlreadyThere):
        server.add_toxic("p", "latency", stream="upstream", latency=9)
    server.remove_toxic("p", "latency_upstream")
    assert server.proxy("p").toxics == ()


def test_a_toxic_of_no_known_kind_or_stream_is_refused(server: Server) -> None:
    server.create("p", "127.0.0.1:1")
    with pytest.raises(BadRequest):
        server.add_toxic("p", "plague")
    with pytest.raises(BadRequest):
        server.add_toxic("p", "latency", stream="sideways")  # type: ignore[arg-type]


async def test_latency_delays_what_comes_back(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "latency", latency=400)
        began = time.monotonic()
        await client.ask(b"x")
        assert time.monotonic() - began >= 0.39
        await call(server.remove_toxic, "p", "latency_downstream")
        assert await client.ask(b"the connection lives on") == b"the connection lives on"


async def test_latency_does_not_add_up_over_what_is_under_way(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "latency", latency=500)
        began = time.monotonic()
        for _ in range(10):
            client.send(b"0123456789")
            await asyncio.sleep(0.01)
        assert len(await client.read(100)) == 100
        assert 0.49 <= time.monotonic() - began < 4.0


async def test_what_latency_holds_back_comes_once_it_is_removed(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "latency", latency=600_000)
        client.send(b"held back")
        assert await client.is_silent(0.3)
        await call(server.remove_toxic, "p", "latency_downstream")
        assert await client.read(9) == b"held back"


async def test_bandwidth_bounds_the_rate(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "bandwidth", rate=100)
        began = time.monotonic()
        assert len(await client.ask(bytes(60_000))) == 60_000
        assert 0.4 < time.monotonic() - began < 10


async def test_a_slicer_cuts_pieces(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "slicer", average_size=100, size_variation=10, delay=20_000)
        client.send(bytes(1_000))
        pieces = []
        while sum(pieces) < 1_000:
            pieces.append(len(await client.read_piece()))
        assert len(pieces) >= 4


async def test_a_timeout_of_zero_swallows_replies_and_ends_the_connection_when_removed(
    server: Server, echo: Echo
) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "timeout", timeout=0)
        client.send(b"request")
        assert await client.is_silent(0.3)
        assert echo.received.endswith(b"request")
        async with connected((await call(server.proxy, "p")).listen) as late:
            late.send(b" another")
            assert await late.is_silent(0.3)
            assert echo.received.endswith(b" another")
            await call(server.remove_toxic, "p", "timeout_downstream")
            assert await client.ending() in ("closed", "reset")
            assert await late.ending() in ("closed", "reset")
    async with through(server, echo):
        pass


async def test_a_timeout_upstream_swallows_requests(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "timeout", stream="upstream", timeout=0)
        client.send(b"never seen")
        assert await client.is_silent(0.3)
        assert echo.received == b"hello"


async def test_a_timeout_ends_a_silent_connection(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "timeout", timeout=300)
        assert await client.ending() in ("closed", "reset")


async def test_limited_data_ends_in_the_middle_of_a_message(server: Server, echo: Echo) -> None:
    await call(server.create, "p", echo.address)
    await call(server.add_toxic, "p", "limit_data", bytes=12)
    async with through(server, echo) as client:
        client.send(b"0123456789")
        assert await client.read(7) == b"0123456"
        assert await client.ending() in ("closed", "reset")


async def test_a_reset_is_for_connections_opened_after_it_was_added(server: Server, echo: Echo) -> None:
    async with through(server, echo) as old:
        listen = (await call(server.proxy, "p")).listen
        await call(server.add_toxic, "p", "reset_peer", timeout=0)
        async with connected(listen) as new:
            new.send(b"x")
            assert await new.ending() == "reset"
        old.send(b"x")
        assert await old.ending() == "closed"


async def test_a_slow_close_comes_late(server: Server, echo: Echo) -> None:
    await call(server.create, "p", echo.address)
    await call(server.add_toxic, "p", "slow_close", stream="downstream", delay=500)
    await call(server.add_toxic, "p", "limit_data", stream="upstream", bytes=6)
    async with through(server, echo) as client:
        began = time.monotonic()
        client.send(b"x")
        await client.ending()
        assert time.monotonic() - began >= 0.45


async def test_a_toxicity_of_zero_touches_nothing(server: Server, echo: Echo) -> None:
    async with through(server, echo) as client:
        await call(server.add_toxic, "p", "timeout", toxicity=0.0, timeout=0)
        assert await client.ask(b"unharmed") == b"unharmed"


# -- the wrapper


def test_two_servers_can_be_used_at_once(server: Server, tmp_path: Path) -> None:
    server.create("p", "127.0.0.1:1")
    with proxy_server(tmp_path / "log", "standin") as other:
        other.server.create("q", "127.0.0.1:2")
        assert (list(server.proxies()), list(other.server.proxies())) == (["p"], ["q"])


def test_a_server_that_is_gone_is_an_error_with_words() -> None:
    [port] = free_ports(1)
    with pytest.raises(ProxyError, match=f"GET http://127.0.0.1:{port}/version"):
        Server(f"http://127.0.0.1:{port}").version()


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerStuck, match=r"no answer within 0\.3 s"):
            Server(url, timeout_s=0.3).version()


async def test_a_server_that_says_that_it_hangs_is_taken_at_its_word() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html><head><title>Timeout</title></head><body><h1>Timeout</h1></body></html>"
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(ServerStuck, match="itself says that it takes too long"):
            await asyncio.to_thread(Server(url).version)


def test_the_real_server_can_be_named_by_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving
) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", serving.server.url)
    with proxy_server(tmp_path / "log") as named:
        assert named.server.url == serving.server.url
        assert named.real == serving.real


def test_a_url_where_nothing_answers_is_refused_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    monkeypatch.setenv("TOXIPROXY_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(NoServer, match="TOXIPROXY_URL"), proxy_server(tmp_path / "log"):
        pass


def test_there_is_a_real_server_here() -> None:
    assert installed() is not None, "the live bench is tested with Toxiproxy: make toxiproxy"
