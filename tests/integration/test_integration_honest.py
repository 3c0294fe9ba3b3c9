"""No handle says that it is held when it may not be: stopped, killed and cut off, by signals and on wires."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from client_paused import CALLING, HOLDING
from dev_process import DevProcess, environment
from tcp_relay import Relay

import tenure
from tenure import Client, State
from tenure.fencing.sql import SqlGuard

pytestmark = pytest.mark.process

TTL_S = 3.0
"""The shortest that the cluster allows."""
STOPPED_S = 12.0
"""How long a program is stopped: longer than any call takes on a slow machine, so that it can tell."""
CALLS = {"get", "renew", "commit", "validate", "sync get", "sync renew"}


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("honest")) as running:
        yield running


@pytest.fixture
async def client(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"honest/{request.node.name}"


@contextlib.asynccontextmanager
async def program(text: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", text, *arguments), stdout=asyncio.subprocess.PIPE, env=environment()
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def said_by(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
    assert line, "it has ended"
    return json.loads(line)


@pytest.mark.slow
async def test_t1_t24_after_a_stop_every_handle_reads_lost_as_the_first_call_returns(
    dev: DevProcess, client: Client, key: str, tmp_path: Path
) -> None:
    """T1, T24: whichever call it is, and also if its answer came while the program was stopped. Then every
    way to write through a guard is tried."""
    bank = tmp_path / "bank"
    guard = SqlGuard()
    with contextlib.closing(sqlite3.connect(bank)) as connection, connection:
        guard.create(connection)
        connection.execute("CREATE TABLE balance (amount)")
        connection.execute("INSERT INTO balance VALUES (100)")
    async with program(CALLING, dev.endpoints, key, str(bank)) as stopped:
        began = await said_by(stopped)
        assert began["states"] == ["held"] * 4
        os.kill(stopped.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        async with client.lease(f"{key}/0", ttl=30, wait=20) as successor:
            with contextlib.closing(sqlite3.connect(bank)) as connection, connection:
                guard.arm(connection, successor.key, successor.token)
            await asyncio.sleep(STOPPED_S - (time.monotonic() - stopped_at))
            os.kill(stopped.pid, signal.SIGCONT)
            after = await said_by(stopped)
            successor.check()
        async with asyncio.timeout(30):
            assert await stopped.wait() == 0
    assert successor.token > began["token"]
    assert after["seen"].keys() == CALLS
    assert {name: states for name, states in after["seen"].items() if states != ["lost"] * 4} == {}
    assert after["refused"] == {
        "by the handle": ["LeaseLost", "lost"],
        "past the handle": ["CommitRefused", "stale_token"],
        "of a key that nobody took": ["CommitRefused", "not_live"],
        "in SQLite": ["CommitRefused", "stale_token"],
    }
    with contextlib.closing(sqlite3.connect(bank)) as connection:
        assert connection.execute("SELECT amount FROM balance").fetchall() == [(100,)]


async def test_t69_the_lease_of_a_program_that_was_killed_ends_with_its_ttl(
    dev: DevProcess, client: Client, key: str
) -> None:
    """T69: not earlier, and not much later."""
    async with program(HOLDING, dev.endpoints, key) as holder:
        token = await said_by(holder)
        await asyncio.sleep(1.5 * TTL_S)
        assert (await client.validate(key, token)).valid, "there is a heartbeat"
        holder.kill()
        await holder.wait()
        killed_at = time.monotonic()
        held = await client.lease(key, ttl=30).acquire(wait=30)
        assert held.token > token
        # It was renewed a third of its TTL ago at most, or a little more on a slow machine.
        assert time.monotonic() - killed_at > TTL_S / 3
        assert time.monotonic() - killed_at < TTL_S + 10
        await held.release()


def begin(fault: str, relay: Relay) -> None:
    """What is wrong with the wire from now on."""
    if fault == "delayed":
        relay.delay_s = 0.9 * TTL_S
    else:
        relay.swallows = True


@contextlib.asynccontextmanager
async def holding(front: str, url: str, key: str) -> AsyncIterator[Any]:
    """A handle from either front."""
    if front == "asyncio":
        async with tenure.connect(url, timeout=2.0) as client:
            yield await client.lease(key, ttl=TTL_S, owner="far").acquire()
    else:
        client = tenure.connect_sync(url, timeout=2.0)
        try:
            lease = client.lease(key, ttl=TTL_S, owner="far")
            yield await asyncio.to_thread(lease.acquire)
        finally:
            await asyncio.to_thread(client.close)


@pytest.mark.parametrize("front", ["asyncio", "threads"])
@pytest.mark.parametrize("fault", ["delayed", "half-open"])
async def test_t1_t10_it_is_lost_by_its_own_clock_before_the_server_grants_again(
    dev: DevProcess, client: Client, key: str, front: str, fault: str
) -> None:
    """T1, T10: compared with the moment that the server gives for its grant, by the clock that both have."""
    async with Relay(dev.urls[0]) as relay, holding(front, relay.url, key) as held:
        await asyncio.sleep(1.2 * TTL_S)
        assert held.state is State.HELD, "it is renewed through the relay"
        begin(fault, relay)
        waiting = asyncio.create_task(client.lease(key, ttl=30, owner="near").acquire(wait=30))
        last_held_at = valid_until = 0.0
        while not waiting.done():
            # In this order: whatever time passes in between makes it seem to end earlier, not later.
            now = time.time()
            left_s = held.expires_in
            if held.is_held:
                last_held_at, valid_until = now, max(valid_until, now + left_s)
            else:
                assert held.lost_reason == "expired"
            await asyncio.sleep(0.005)
        successor = waiting.result()
        granted_at = datetime.fromisoformat(successor.grants[0].granted_at).timestamp()
        assert 0 < last_held_at < granted_at
        assert valid_until < granted_at
        assert held.state is State.LOST
        assert successor.token > held.token
        await successor.release()
        for _ in range(500):
            if held.lost.is_set():
                break
            await asyncio.sleep(0.01)
        assert held.lost.is_set()


async def test_t35_a_loss_is_told_by_the_events_and_by_the_handle(client: Client, key: str) -> None:
    """T35: why, and when."""
    before = time.time()
    held = await client.lease(key, ttl=TTL_S, owner="a").acquire()
    cluster = await client.get(key)
    assert cluster is not None
    await client.break_(key, reason="by hand")
    async with asyncio.timeout(30):
        async for event in client.watch(key, after=cluster.revision - 1):
            if event.kind == "broken":
                break
        await held.lost.wait()
    assert (event.key, event.owner, event.token) == (key, "a", held.token)
    assert event.detail == "by hand"
    assert before - 1 < datetime.fromisoformat(event.at).timestamp() < time.time() + 1
    assert (held.state, held.lost_reason) == (State.LOST, "broken")
    with pytest.raises(tenure.LeaseLost) as lost:
        held.check()
    assert lost.value.reason == "broken"
