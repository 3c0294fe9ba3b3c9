"""Handles against a real cluster, and against what really happens to processes and connections."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from client_programs import FORKING, HOLDING
from dev_process import DevProcess, environment
from tcp_relay import Relay

import tenure
from tenure import Client, State

pytestmark = pytest.mark.process

TTL_S = 3.0
"""The shortest that the cluster allows."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("leases")) as running:
        yield running


@pytest.fixture
async def client(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"leases/{request.node.name}"


async def test_a_lease_from_acquire_to_release(client: Client, key: str) -> None:
    async with client.lease(key, ttl=30, owner="a") as held:
        await held.commit("the result")
        assert await held.renew() > 28
        with pytest.raises(tenure.LeaseUnavailable):
            await client.lease(key, owner="b").acquire()
        waiting = asyncio.create_task(client.lease(key, owner="b").acquire(wait=20))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    second = await waiting
    assert second.token > held.token
    await second.release()
    record = await client.record(key)
    assert record is not None
    assert (record.value, record.token) == ("the result", held.token)


@pytest.mark.slow
async def test_t32_a_body_that_blocks_its_loop_for_ten_seconds_keeps_a_lease_of_three(
    client: Client, key: str
) -> None:
    """T32: renewal has its own thread, loop and connection."""
    async with client.lease(key, ttl=TTL_S) as held:
        time.sleep(10)  # noqa: ASYNC251 -- that is the case
        held.check()
        assert held.expires_in > 0
        assert (await client.validate(key, held.token)).valid
    assert held.state is State.RELEASED


async def test_t1_a_process_that_was_stopped_past_its_ttl_reads_lost_first_thing(
    dev: DevProcess, client: Client, key: str
) -> None:
    """T1, T24: on SIGCONT every handle reads LOST before any call returns; the guarded write is refused."""
    process = subprocess.Popen(  # noqa: ASYNC220 -- what is read from it comes at once
        [sys.executable, "-c", HOLDING, dev.endpoints, key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        began = json.loads(process.stdout.readline())
        assert began["states"] == ["held"] * 3
        os.kill(process.pid, signal.SIGSTOP)
        successor = await client.lease(f"{key}/0", ttl=30).acquire(wait=20)
        process.stdin.write("go\n")
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        after = json.loads(process.stdout.readline())
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
    assert after["states"] == ["lost"] * 3
    assert after["commit"] == "LeaseLost"
    assert after["plain commit"] == "stale_token"
    assert successor.token > began["tokens"][0]
    await successor.release()


async def test_t49_a_fork_leaves_the_parents_leases_and_connections_alone(
    dev: DevProcess, client: Client, key: str
) -> None:
    """T49: with five leases."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FORKING, dev.endpoints, key],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["child"] == ["lost"] * 5
    assert said["parent"] == ["held"] * 5
    assert said["valid"] == [True] * 5
    assert await client.get(f"{key}/0") is None


@pytest.mark.parametrize("fault", ["delayed", "half-open"])
async def test_t1_t10_without_answers_in_time_it_is_lost_before_the_cluster_grants_again(
    dev: DevProcess, client: Client, key: str, fault: str
) -> None:
    """T1, T10: answers that are late by 0.9 TTL, and connections over which nothing comes any more."""
    async with Relay(dev.urls[0]) as relay, tenure.connect(relay.url, timeout=2.0) as far:
        held = await far.lease(key, ttl=TTL_S, owner="far").acquire()
        if fault == "delayed":
            relay.delay_s = 0.9 * TTL_S
        else:
            relay.swallows = True
        waiting = asyncio.create_task(client.lease(key, ttl=30, owner="near").acquire(wait=20))
        seen_lost_at = None
        while not waiting.done():
            if not held.is_held and seen_lost_at is None:
                seen_lost_at = time.monotonic()
                assert held.lost_reason == "expired"
            await asyncio.sleep(0.005)
        granted_at = time.monotonic()
        assert seen_lost_at is not None
        assert seen_lost_at < granted_at
        successor = waiting.result()
        assert successor.token > held.token
        await successor.release()
        await asyncio.wait_for(held.lost.wait(), 5)


async def test_t22_the_loss_of_the_leader_costs_no_lease(
    tmp_path_factory: pytest.TempPathFactory, key: str
) -> None:
    """T22, T26: the leader is killed; the lease of three seconds is kept, over and over."""
    with DevProcess(tmp_path_factory.mktemp("leader")) as dev:
        async with tenure.connect(dev.urls) as client, client.lease(key, ttl=TTL_S) as held:
            leader = (await client.cluster()).leader
            assert leader is not None
            dev.kill(leader)
            until = time.monotonic() + 2 * TTL_S
            while time.monotonic() < until:
                assert held.is_held
                await asyncio.sleep(0.02)
            assert (await client.validate(key, held.token)).valid


async def test_contention_never_show_two_holders(dev: DevProcess, key: str) -> None:
    """Eight clients want one key; whoever has it writes it down, and nobody else has it meanwhile."""
    holders: set[str] = set()
    turns = 0

    async def contend(name: str) -> None:
        nonlocal turns
        async with tenure.connect(dev.urls) as client:
            for _ in range(10):
                async with client.lease(key, ttl=TTL_S, owner=name, wait=30) as held:
                    assert not holders
                    holders.add(name)
                    await asyncio.sleep(0.001)
                    held.check()
                    holders.remove(name)
                    turns += 1

    await asyncio.gather(*(contend(f"agent-{number}") for number in range(8)))
    assert turns == 80
