"""A client that was closed makes no more attempts, neither for others nor for what it had begun itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from client_steps import until

import tenure
from tenure.testing import FakeCluster


class Silent:
    """A node that takes connections and says nothing."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(OSError):
            while await reader.read(65_536):
                pass
        self.open -= 1
        writer.close()


@pytest.fixture
async def node() -> AsyncIterator[tuple[Silent, str]]:
    silent = Silent()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
    yield silent, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await until(lambda: silent.open == 0)


async def test_a_session_that_nobody_waits_for_is_not_opened_by_a_closed_client(
    node: tuple[Silent, str],
) -> None:
    silent, url = node
    client = tenure.connect(url, timeout=5.0, attempt_timeout=0.1)
    acquiring = asyncio.create_task(client.lease("job/7").acquire())
    await until(lambda: silent.connections > 0)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await client.close()
    await until(lambda: silent.open == 0)
    made = silent.connections
    await asyncio.sleep(0.5)
    assert silent.connections == made


async def test_a_call_that_is_under_way_ends_with_its_client(node: tuple[Silent, str]) -> None:
    silent, url = node
    client = tenure.connect(url, timeout=60.0, attempt_timeout=60.0)
    asking = asyncio.create_task(client.get("job/7"))
    await until(lambda: silent.connections > 0)
    await client.close()
    async with asyncio.timeout(20):
        with pytest.raises(tenure.InvalidRequest, match="closed"):
            await asking
    with pytest.raises(tenure.InvalidRequest, match="closed"):
        await client.get("job/7")


CALLS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda held: held.commit("late"),
    "handover": lambda held: held.handover("somebody"),
    "park": lambda held: held.park(60),
    "progress": lambda held: held.progress("late"),
    "release": lambda held: held.release(),
    "renew": lambda held: held.renew(),
    "unpark": lambda held: held.unpark(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_handle_of_a_closed_client_is_lost_in_both_fronts(call: str) -> None:
    cluster = FakeCluster()
    async with cluster.connect() as client:
        held = await client.lease("in asyncio").acquire()
    with pytest.raises(tenure.LeaseLost, match="'in asyncio' is over: closed"):
        await CALLS[call](held)

    def for_threads() -> tenure.SyncHeld:
        with cluster.connect_sync() as client:
            return client.lease("for threads").acquire()

    handle = await asyncio.to_thread(for_threads)
    with pytest.raises(tenure.LeaseLost, match="'for threads' is over: closed"):
        await asyncio.to_thread(CALLS[call], handle)


def test_a_block_whose_client_is_closed_within_it_says_nothing_of_a_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeCluster().connect_sync()
    with pytest.raises(tenure.LeaseLost, match="closed"), client.lease("k"):
        client.close()
    assert caplog.text == ""


def test_what_was_released_before_its_client_was_closed_may_be_released_again() -> None:
    with FakeCluster().connect_sync() as client:
        held = client.lease("k").acquire()
        held.release()
    held.release()
