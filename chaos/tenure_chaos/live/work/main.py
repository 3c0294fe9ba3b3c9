"""A client's process. Its first line of input says what it is to be, those that are JSON which nodes there
are now; it works until "stop" comes, or the input ends, and leaves its history in a file.
"""

import asyncio
import json
import logging
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tenure_chaos.live.work.client import LiveClient
from tenure_chaos.live.work.program import LiveProgram
from tenure_chaos.live.work.routes import Routes
from tenure_chaos.live.work.watcher import watch
from tenure_chaos.live.work.world import LiveWorld
from tenure_chaos.mutants.catalogue import BY_NAME
from tenure_chaos.mutants.edits import made
from tenure_chaos.sim.options import Options

FINISH_S: Final = 45.0
"""How long work that has begun may take after the end of the run: longer than any wait for a key."""


@dataclass
class Task:
    """What a process is to be."""

    name: str
    seed: int
    began_at: float
    nodes: dict[str, str]
    """Name by URL."""
    routes: dict[str, str]
    """Where each URL is really reached."""
    options: Options
    registers: tuple[str, int]
    output: str
    programs: int = 2
    watches: list[str] = field(default_factory=list)
    """Prefixes that are followed."""
    mutant: str = ""


@dataclass
class NodesNow:
    """Which nodes there are from now on."""

    nodes: dict[str, str]
    """Name by URL."""
    routes: dict[str, str]
    """Where each URL is really reached."""


async def _listen(world: LiveWorld, routes: Routes, ended: asyncio.Event) -> None:
    """What the bench says, until it says that it is over."""
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).startswith("{"):
        now = msgspec.json.decode(line, type=NodesNow)
        world.know(now.nodes)
        routes.change(now.routes)
    ended.set()


async def work(task: Task) -> None:
    """All of it."""
    world = LiveWorld(seed=task.seed, began_at=task.began_at, options=task.options, nodes=task.nodes)
    routes, ended = Routes(task.routes), asyncio.Event()
    listening = asyncio.ensure_future(_listen(world, routes, ended))
    programs = []
    for number in range(1, 1 + task.programs):
        name = f"{task.name}.{number}"
        rng = random.Random(f"{name} of {task.seed}")
        client = LiveClient(name=name, world=world, routes=routes, rng=rng)
        programs.append(LiveProgram(world, client, task.registers))
    watching = [
        asyncio.ensure_future(watch(world, f"{task.name}.w{number}", routes, prefix))
        for number, prefix in enumerate(task.watches)
    ]
    running = [asyncio.ensure_future(program.run()) for program in programs]
    print("ready", flush=True)  # noqa: T201
    await ended.wait()
    await listening
    for program in programs:
        program.stopping = True
    _, late = await asyncio.wait(running, timeout=FINISH_S)
    for one in late:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for program in programs:
        await program.close()
    print("finished", flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for one in watching:
        one.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    history = world.history
    history.save(Path(task.output))
    said = {"counts": dict(world.counts), "violations": world.violations, "seed": task.seed}
    Path(task.output).with_suffix(".json").write_text(json.dumps(said))


async def _main() -> None:
    loop = asyncio.get_running_loop()
    task = msgspec.json.decode(await loop.run_in_executor(None, sys.stdin.readline), type=Task)
    with made(BY_NAME[task.mutant].edits if task.mutant else ()):
        await work(task)


def main() -> None:
    logging.disable(logging.WARNING)
    asyncio.run(_main())


if __name__ == "__main__":
    main()
