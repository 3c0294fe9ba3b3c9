"""Giving up at every point: a cancelled acquire or release leaves no lease, no waiter, and no doubt."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from client_front import Front, machine, serving
from client_steps import cancelled_at_every_point

import tenure
from tenure import Client, Held
from tenure.testing import FakeCluster

KEY = "job/7"
Cancelled = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


def drop_nothing(_: FakeCluster) -> None:
    """Every answer arrives."""


def drop_the_grant(cluster: FakeCluster) -> None:
    cluster.drop_next_reply("acquire")


def drop_the_session(cluster: FakeCluster) -> None:
    cluster.drop_next_reply("sessions")


@pytest.mark.parametrize("fault", [drop_nothing, drop_the_grant, drop_the_session], ids=lambda f: f.__name__)
async def test_t38_an_acquire_cancelled_at_any_point_leaves_nothing(
    fault: Callable[[FakeCluster], None],
) -> None:
    """T38, T40: a free key, with and without lost answers."""
    worlds: list[tuple[FakeCluster, Client, list[Held]]] = []

    async def scenario(cancelled: Cancelled) -> None:
        cluster = FakeCluster()
        client = cluster.connect(attempt_timeout=0.5)
        got: list[Held] = []
        worlds.append((cluster, client, got))
        fault(cluster)
        got.append(await cancelled(client.lease(KEY, ttl=30).acquire()))

    reached = 0
    async for _, was_cancelled in cancelled_at_every_point(scenario):
        cluster, client, got = worlds.pop()
        if got:
            await got.pop().release()
        reached += was_cancelled
        await client.close()
        assert cluster.left() == ([], [])
        cluster.check()
    assert reached >= 3, "it was hardly ever cancelled"


async def test_t40_a_waiting_acquire_cancelled_at_any_point_leaves_nothing() -> None:
    """T40: the key is held when it begins, and freed while it waits."""
    worlds: list[tuple[FakeCluster, Client, Client, list[Held]]] = []

    async def scenario(cancelled: Cancelled) -> None:
        cluster = FakeCluster()
        client, rival = cluster.connect(), cluster.connect()
        got: list[Held] = []
        worlds.append((cluster, client, rival, got))
        holding = await rival.lease(KEY, ttl=30).acquire()
        freeing = asyncio.create_task(free_soon(cluster, holding))
        try:
            got.append(await cancelled(client.lease(KEY, ttl=30).acquire(wait=30)))
        finally:
            await freeing

    async def free_soon(cluster: FakeCluster, holding: Held) -> None:
        for _ in range(2_000):
            if cluster.left()[1]:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        await holding.release()

    reached = 0
    async for _, was_cancelled in cancelled_at_every_point(scenario):
        cluster, client, rival, got = worlds.pop()
        if got:
            await got.pop().release()
        reached += was_cancelled
        await client.close()
        await rival.close()
        assert cluster.left() == ([], [])
        cluster.check()
    assert reached >= 5, "it was hardly ever cancelled"


async def test_a_block_cancelled_at_any_point_leaves_nothing() -> None:
    """On the way in, in the body, and on the way out."""
    worlds: list[tuple[FakeCluster, Client]] = []

    async def scenario(cancelled: Cancelled) -> None:
        cluster = FakeCluster()
        client = cluster.connect()
        worlds.append((cluster, client))

        async def block() -> None:
            async with client.lease(KEY, ttl=30) as held:
                await held.commit("v")

        await cancelled(block())

    async for _ in cancelled_at_every_point(scenario):
        cluster, client = worlds.pop()
        await client.close()
        assert cluster.left() == ([], [])


async def test_t39_a_release_cancelled_at_any_point_still_happens() -> None:
    """T39."""
    worlds: list[tuple[FakeCluster, Client]] = []

    async def scenario(cancelled: Cancelled) -> None:
        cluster = FakeCluster()
        client = cluster.connect()
        worlds.append((cluster, client))
        held = await client.lease(KEY, ttl=30).acquire()
        await cancelled(held.release())

    reached = 0
    async for _, was_cancelled in cancelled_at_every_point(scenario):
        cluster, client = worlds.pop()
        reached += was_cancelled
        await client.close()
        assert cluster.left() == ([], [])
    assert reached >= 1


async def test_t38_an_acquire_over_real_connections_cancelled_at_any_point_leaves_nothing() -> None:
    """T38."""
    server = machine()
    clients: list[Client] = []
    got: list[Held] = []
    async with serving(Front(server, "127.0.0.1")) as node:

        async def scenario(cancelled: Cancelled) -> None:
            clients.append(tenure.connect(node.url))
            got.append(await cancelled(clients[0].lease(KEY, ttl=30).acquire()))

        reached = 0
        async for _, was_cancelled in cancelled_at_every_point(scenario):
            reached += was_cancelled
            if got:
                await got.pop().release()
            await clients.pop().close()
            assert server.left() == ([], [])
        assert reached >= 2
