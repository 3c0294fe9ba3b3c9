"""Following what happens, from both fronts, through the death of the node that tells."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess
from live_cluster import LiveCluster

import tenure
from tenure._watch import SseReader

pytestmark = pytest.mark.process


@pytest.fixture
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("watch")) as running:
        yield running


def test_events_are_read_however_the_bytes_come() -> None:
    stream = b": alive\n\nid: 7\nevent: granted\ndata: {}\n\nretry: 1\n\n"
    stream += b"id: 8\r\nevent: released\r\ndata: x\r\n\r\n"
    expected = [("7", "granted", "{}"), ("8", "released", "x")]
    for size in range(1, len(stream)):
        reader = SseReader()
        parts = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert list(itertools.chain.from_iterable(map(reader.feed, parts))) == expected


async def test_t35_each_event_is_told_once_though_the_nodes_that_tell_die(tmp_path: Path) -> None:
    """T35: the leader is killed three times and started again."""
    seen: list[tenure.Event] = []

    async def follow(urls: list[str]) -> None:
        async with tenure.connect(urls) as client:
            async for event in client.watch("watch/", after=0):
                seen.append(event)
                if sum(event.kind == "released" for event in seen) == 30:
                    return

    async with LiveCluster(tmp_path) as cluster:
        urls = [node.url for node in cluster.nodes.values()]
        async with asyncio.timeout(90), asyncio.TaskGroup() as tasks, tenure.connect(urls) as client:
            tasks.create_task(follow(urls))
            for turn in range(3):
                for number in range(10):
                    grant = await client.acquire(f"watch/{turn}/{number}", owner="a", ttl=30)
                    await client.release(grant.lease_id)
                leader = await cluster.leader()
                cluster.kill(leader)
                cluster.start(leader)
                await cluster.ready()
    assert "gap" not in {event.kind for event in seen}
    revisions = [event.revision for event in seen]
    assert revisions == sorted(set(revisions))
    for kind in ("granted", "released"):
        keys = [event.key for event in seen if event.kind == kind]
        assert keys == [f"watch/{turn}/{number}" for turn in range(3) for number in range(10)]


def test_threads_watch_too(dev: DevProcess) -> None:
    with tenure.connect_sync(dev.urls) as client:
        with client.lease("watch/a"):
            pass
        kinds = [event.kind for event in itertools.islice(client.watch("watch/", after=0), 2)]
        assert kinds == ["granted", "released"]
