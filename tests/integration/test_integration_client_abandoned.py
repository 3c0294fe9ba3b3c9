"""Watches of a real cluster that are left without being closed: the program ends without a word."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from dev_process import DevProcess, environment

pytestmark = pytest.mark.process

ASYNCIO = """
import asyncio, sys
import tenure

kept = []

async def endlessly(events):
    async for _ in events:
        pass

async def main(endpoints, way):
    client = tenure.connect(endpoints)
    async with client.lease("job"):
        pass
    for _ in range(5):
        for events in (client.watch("job", after=0), client.election("job").observe()):
            await anext(events)
            if way == "kept":
                kept.append(events)
            elif way == "in a task":
                kept.append(asyncio.create_task(endlessly(events)))
    if way == "dropped":
        del events
    await asyncio.sleep(0.1)
    await client.close()
    print("done")

asyncio.run(main(*sys.argv[1:]))
"""

THREADS = """
import sys
import tenure

with tenure.connect_sync(sys.argv[1]) as client:
    with client.lease("job"):
        pass
    kept = [client.watch("job", after=0) for _ in range(5)] + [client.election("job").observe()]
    for events in kept:
        next(events)
print("done")
"""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("abandoned")) as running:
        yield running


def said_by(program: str, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "always::ResourceWarning", "-c", program, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("way", ["kept", "dropped", "in a task", "at the end"])
def test_a_program_that_leaves_its_watches_open_ends_without_a_word(dev: DevProcess, way: str) -> None:
    assert said_by(ASYNCIO, dev.endpoints, way) == ("done\n", "")


def test_threads_may_leave_theirs_too(dev: DevProcess) -> None:
    assert said_by(THREADS, dev.endpoints) == ("done\n", "")
