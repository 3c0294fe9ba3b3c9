"""Giving up at every point: a cancelled acquire or release leaves no lease, no waiter, and no doubt.

Each await is cancelled twice: as it begins to wait, and with the answer there and not yet looked at.
The second is where a grant is lost most easily: the cluster has granted, the answer has been read, and the
task is woken with a cancellation in its place.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from client_front import Front, machine, serving
from client_steps import cancelled_at_every_point, until

import tenure
from tenure import Client, Held
from tenure.testing import FakeCluster

KEY = "job/7"
Cancelled = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]

TERMS: dict[str, dict[str, Any]] = {
    "exclusive": {},
    "shared": {"mode": "shared"},
    "permit": {"mode": "permit", "slots": 1},
    "own session": {"own_session": True},
}


class World:
    """One cluster, the client that is cancelled, and a rival; what was got is given back."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.client = self.cluster.connect(attempt_timeout=0.5)
        self.rival = self.cluster.connect()
        self.got: list[Held] = []

    async def is_empty_in_the_end(self) -> None:
        if self.got:
            await self.got.pop().release()
        # Before the client is closed: that would end its session, and with it whatever was forgotten there.
        await until(lambda: self.cluster.left() == ([], []))
        await self.client.close()
        await self.rival.close()
        assert self.cluster.left() == ([], [])
        self.cluster.check()


async def everywhere(
    scenario: Callable[[World, Cancelled], Coroutine[Any, Any, object]], *, late: bool
) -> AsyncIterator[tuple[World, bool]]:
    """The scenario in a new world for each point: the world, and whether it was cancelled there."""
    worlds: list[World] = []

    async def played(cancelled: Cancelled) -> None:
        worlds.append(World())
        await scenario(worlds[-1], cancelled)

    async for _, was_cancelled in cancelled_at_every_point(played, late=late):
        yield worlds.pop(), was_cancelled


@pytest.fixture(params=[False, True], ids=["waiting", "answered"])
def late(request: pytest.FixtureRequest) -> bool:
    """Whether it is cancelled with the answer there."""
    return bool(request.param)


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS.keys())
async def test_t38_an_acquire_of_a_free_key_leaves_nothing(terms: dict[str, Any], late: bool) -> None:
    """T38, T40: in every mode."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        world.got.append(await cancelled(world.client.lease(KEY, ttl=30, **terms).acquire()))

    reached = 0
    async for world, was_cancelled in everywhere(scenario, late=late):
        reached += was_cancelled
        await world.is_empty_in_the_end()
    assert reached >= 3, "it was hardly ever cancelled"


@pytest.mark.parametrize("call", ["sessions", "acquire"])
async def test_t38_an_acquire_whose_answer_was_lost_leaves_nothing(call: str, late: bool) -> None:
    """T38."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        world.cluster.drop_next_reply(call)
        world.got.append(await cancelled(world.client.lease(KEY, ttl=30).acquire()))

    reached = 0
    async for world, was_cancelled in everywhere(scenario, late=late):
        reached += was_cancelled
        await world.is_empty_in_the_end()
    assert reached >= 3, "it was hardly ever cancelled"


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS.keys())
async def test_t40_an_acquire_that_waits_and_is_granted_leaves_nothing(
    terms: dict[str, Any], late: bool
) -> None:
    """T40: the key is held when it begins, and freed while it waits."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        holder_terms = terms if terms.get("mode") == "permit" else {}
        holding = await world.rival.lease(KEY, ttl=30, **holder_terms).acquire()
        acquiring = cancelled(world.client.lease(KEY, ttl=30, **terms).acquire(wait=30))
        freeing = asyncio.create_task(freed_soon(world, holding))
        try:
            world.got.append(await acquiring)
        finally:
            await freeing

    async def freed_soon(world: World, holding: Held) -> None:
        for _ in range(2_000):
            if world.cluster.left()[1]:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        await holding.release()

    reached = 0
    async for world, was_cancelled in everywhere(scenario, late=late):
        reached += was_cancelled
        await world.is_empty_in_the_end()
    assert reached >= 5, "it was hardly ever cancelled"


async def test_t40_a_grant_that_is_confirmed_leaves_nothing(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2, T40: every grant counts as an old one, so each is renewed before it is handed out."""
    monkeypatch.setattr("tenure._acquisition.CONFIRM_AFTER_S", -1.0)

    async def scenario(world: World, cancelled: Cancelled) -> None:
        world.got.append(await cancelled(world.client.lease(KEY, ttl=30).acquire()))
        assert world.cluster.calls["/v1/renew"] >= 1

    reached = 0
    async for world, was_cancelled in everywhere(scenario, late=late):
        reached += was_cancelled
        await world.is_empty_in_the_end()
    assert reached >= 5, "it was hardly ever cancelled"


async def test_a_block_leaves_nothing(late: bool) -> None:
    """On the way in, in the body, and on the way out."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        async def block() -> None:
            async with world.client.lease(KEY, ttl=30) as held:
                await held.commit("v")

        await cancelled(block())

    async for world, _ in everywhere(scenario, late=late):
        await world.is_empty_in_the_end()


async def test_an_office_leaves_nothing(late: bool) -> None:
    async def scenario(world: World, cancelled: Cancelled) -> None:
        async def lead(held: Held) -> None:
            await held.renew()

        await cancelled(world.client.election(KEY, ttl=30).run(lead))

    async for world, _ in everywhere(scenario, late=late):
        await world.is_empty_in_the_end()


async def test_t39_a_release_still_happens(late: bool) -> None:
    """T39."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        held = await world.client.lease(KEY, ttl=30).acquire()
        await cancelled(held.release())

    async for world, _ in everywhere(scenario, late=late):
        await world.is_empty_in_the_end()


async def test_whoever_shares_the_session_is_not_harmed(late: bool) -> None:
    """A second lease of the same owner is held all the while."""

    async def scenario(world: World, cancelled: Cancelled) -> None:
        other = await world.client.lease("other", ttl=30).acquire()
        with contextlib.suppress(asyncio.CancelledError):
            await (await cancelled(world.client.lease(KEY, ttl=30).acquire())).release()
        assert await other.renew() > 0
        await until(lambda: world.cluster.left()[0] == ["other"])
        await other.release()

    async for world, _ in everywhere(scenario, late=late):
        await world.is_empty_in_the_end()


async def test_t38_an_acquire_over_real_connections_leaves_nothing(late: bool) -> None:
    """T38."""
    server = machine()
    clients: list[Client] = []
    got: list[Held] = []
    async with serving(Front(server, "127.0.0.1")) as node:

        async def scenario(cancelled: Cancelled) -> None:
            clients.append(tenure.connect(node.url))
            got.append(await cancelled(clients[0].lease(KEY, ttl=30).acquire()))

        reached = 0
        async for _, was_cancelled in cancelled_at_every_point(scenario, late=late):
            reached += was_cancelled
            if got:
                await got.pop().release()
            await until(lambda: server.left() == ([], []))
            await clients.pop().close()
        assert reached >= 2
