"""The client over streams of real nodes, also while the leader dies."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess

import tenure
from tenure._stream import StreamFirst

pytestmark = pytest.mark.process


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[DevProcess]:
    with DevProcess(tmp_path) as running:
        yield running


async def test_every_acquire_is_answered_once_though_the_leader_dies(dev: DevProcess) -> None:
    async with tenure.connect(dev.urls, timeout=60) as client:
        leader = (await client.cluster()).leader
        assert leader is not None

        async def acquire(number: int) -> tenure.Grant:
            return await client.acquire(f"k/{number}", owner="a", ttl=600)

        first = await asyncio.gather(*(acquire(number) for number in range(100)))
        transport = client._calls.http
        assert isinstance(transport, StreamFirst)
        assert transport._streams, "they went over a stream"
        running = [asyncio.create_task(acquire(number)) for number in range(100, 400)]
        await running[0]
        dev.kill(leader)
        more = [asyncio.create_task(acquire(number)) for number in range(400, 500)]
        grants = [*first, *await asyncio.gather(*running, *more)]
        assert len({grant.token for grant in grants}) == 500
        held = [lease async for lease in client.leases("k/")]
        assert {lease.key: lease.token for lease in held} == {grant.key: grant.token for grant in grants}
