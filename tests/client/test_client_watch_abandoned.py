"""A watch that its caller leaves without closing it: nothing is logged, whenever its loop ends."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from tenure import Client
from tenure.testing import FakeCluster

Endless = AsyncGenerator[Any, None]
KEY = "job"


def run(main: Coroutine[Any, Any, object]) -> list[str]:
    """As `asyncio.run`; what it would have logged."""
    told: list[str] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: told.append(repr(context)))
        runner.run(main)
    gc.collect()
    return told


def watched(client: Client) -> Endless:
    return client.watch(after=0)


def observed(client: Client) -> Endless:
    return client.election(KEY).observe()


@pytest.fixture(params=[watched, observed], ids=["watch", "observe"])
def follow(request: pytest.FixtureRequest) -> Callable[[Client], Endless]:
    follow: Callable[[Client], Endless] = request.param
    return follow


async def something_happens(client: Client) -> None:
    async with client.lease(KEY):
        pass


def test_one_that_is_kept_until_the_loop_ends_is_closed_with_it(follow: Callable[[Client], Endless]) -> None:
    kept: list[Endless] = []

    async def main() -> None:
        async with FakeCluster().connect() as client:
            await something_happens(client)
            for _ in range(20):
                kept.append(follow(client))
                await anext(kept[-1])

    assert run(main()) == []
    assert len(kept) == 20


def test_one_that_nobody_has_any_more_is_closed_by_the_loop(follow: Callable[[Client], Endless]) -> None:
    async def main() -> None:
        async with FakeCluster().connect() as client:
            await something_happens(client)
            for _ in range(20):
                async for _ in follow(client):
                    break
                await asyncio.sleep(0)

    assert run(main()) == []


def test_one_that_is_dropped_as_the_loop_ends_is_closed_with_it(follow: Callable[[Client], Endless]) -> None:
    async def main() -> None:
        client = FakeCluster().connect()
        await something_happens(client)
        followed = [follow(client) for _ in range(20)]
        for events in followed:
            await anext(events)
        await client.close()

    assert run(main()) == []


def test_one_whose_task_is_cancelled_as_the_loop_ends_is_closed_with_it(
    follow: Callable[[Client], Endless],
) -> None:
    async def main() -> None:
        client = FakeCluster().connect()

        async def endlessly(events: Endless) -> None:
            async for _ in events:
                pass

        tasks = [asyncio.create_task(endlessly(follow(client))) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        await client.close()

    assert run(main()) == []


def test_threads_may_leave_one_too(caplog: pytest.LogCaptureFixture) -> None:
    with FakeCluster().connect_sync() as client:
        with client.lease(KEY):
            pass
        followed = [client.watch(after=0) for _ in range(20)] + [client.election(KEY).observe()]
        for events in followed:
            next(events)
    del followed, events
    gc.collect()
    assert caplog.records == []
