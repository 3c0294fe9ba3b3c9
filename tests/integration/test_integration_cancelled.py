"""An acquire on a real cluster, cancelled at every await: nothing is held afterwards, and nobody waits.

Each await is cancelled twice: as it begins to wait, and with the answer there and not yet looked at.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from dev_process import DevProcess

import tenure
from tenure import Client, Held

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client"))

from client_steps import cancelled_at_every_point

pytestmark = pytest.mark.process

Cancelled = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
TTL_S = 60.0
"""Nothing ends by itself while the test looks."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("cancelled")) as running:
        yield running


@pytest.fixture
async def looker(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


@pytest.fixture(params=[False, True], ids=["waiting", "answered"])
def late(request: pytest.FixtureRequest) -> bool:
    """Whether it is cancelled with the answer there."""
    return bool(request.param)


async def nothing_left(looker: Client, key: str) -> None:
    """Soon: what could not be given up at once is given up in the background."""
    async with asyncio.timeout(TTL_S / 3):
        while True:
            queue = await looker.queue(key)
            if not queue.holders and not queue.waiters:
                return
            await asyncio.sleep(0.01)


async def test_t38_an_acquire_of_a_free_key(dev: DevProcess, looker: Client, late: bool) -> None:
    """T38: the client is not closed before it is looked at, which would end its session and all in it."""
    keys = (f"cancelled/{late}/{number}" for number in itertools.count())
    clients: list[Client] = []
    got: list[Held] = []
    asked: list[str] = []

    async def scenario(cancelled: Cancelled) -> None:
        clients.append(tenure.connect(dev.urls))
        asked.append(next(keys))
        got.append(await cancelled(clients[-1].lease(asked[-1], ttl=TTL_S).acquire()))

    reached = 0
    async for _, was_cancelled in cancelled_at_every_point(scenario, late=late):
        reached += was_cancelled
        if got:
            await got.pop().release()
        await nothing_left(looker, asked[-1])
        await clients.pop().close()
    assert reached >= 2, "it was hardly ever cancelled"


async def test_t40_an_acquire_that_waits_and_is_granted(dev: DevProcess, looker: Client, late: bool) -> None:
    """T40: the key is held when it begins, and freed while it waits."""
    keys = (f"cancelled/waiting/{late}/{number}" for number in itertools.count())
    clients: list[Client] = []
    got: list[Held] = []
    asked: list[str] = []

    async def free_soon(holding: Held) -> None:
        for _ in range(50):
            if (await looker.queue(holding.key)).waiters:
                break
            await asyncio.sleep(0.002)
        # Longer than a grant may be under way without being confirmed.
        await asyncio.sleep(0.3)
        await holding.release()

    async def scenario(cancelled: Cancelled) -> None:
        clients.append(tenure.connect(dev.urls))
        asked.append(next(keys))
        holding = await looker.lease(asked[-1], ttl=TTL_S).acquire()
        freeing = asyncio.create_task(free_soon(holding))
        try:
            got.append(await cancelled(clients[-1].lease(asked[-1], ttl=TTL_S).acquire(wait=30)))
        finally:
            await freeing

    reached = 0
    async for _, was_cancelled in cancelled_at_every_point(scenario, late=late):
        reached += was_cancelled
        if got:
            await got.pop().release()
        await nothing_left(looker, asked[-1])
        await clients.pop().close()
    assert reached >= 3, "it was hardly ever cancelled"
