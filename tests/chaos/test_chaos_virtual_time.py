"""The virtual loop and network behave as processes, clocks and sockets do."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tenure_chaos.sim.loop import CURRENT, Process, Stalled, VirtualLoop
from tenure_chaos.sim.network import Network


class World:
    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = self.loop.sockets = Network(self.loop, random.Random(seed))
        self.trace: list[tuple[float, str, str]] = []

    def note(self, what: str) -> None:
        self.trace.append((round(self.loop.time(), 6), repr(CURRENT.get()), what))

    def start(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.spawn(process, self.loop.create_task, work)

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        assert self.loop.failures == []


class Ear(asyncio.Protocol):
    def __init__(self, world: World) -> None:
        self.world = world

    def data_received(self, data: bytes) -> None:
        self.world.note(data.decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.world.note("lost")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


async def listen(world: World) -> None:
    await world.loop.create_server(lambda: Ear(world), "host", 1)


async def talk(world: World, words: list[str], every_s: float) -> None:
    await asyncio.sleep(0.01)
    transport, _ = await world.loop.create_connection(lambda: Ear(world), "host", 1)
    for word in words:
        transport.write(word.encode())
        await asyncio.sleep(every_s)


def heard(world: World, by: str) -> list[str]:
    return [what for _, who, what in world.trace if who.startswith(by)]


def test_time_jumps_to_the_next_timer(world: World) -> None:
    steps = world.loop.steps
    world.run(3600.0)
    assert world.loop.time() == 3600.0
    assert world.loop.steps - steps < 20


def test_waiting_for_what_can_never_happen_is_an_error(world: World) -> None:
    with pytest.raises(Stalled):
        world.loop.run_until_complete(world.loop.create_future())


def test_a_paused_process_does_nothing_and_then_everything_that_came_meanwhile(world: World) -> None:
    server, client = Process("server"), Process("client")
    world.start(server, listen(world))
    world.start(client, talk(world, ["one", "two", "three"], 1.0))
    world.run(0.5)
    world.loop.pause(server)
    world.run(5.0)
    assert heard(world, "server") == ["one"]
    world.loop.resume(server)
    world.run(0.001)
    assert heard(world, "server") == ["one", "two", "three"]


def test_a_killed_process_runs_no_more_and_its_peers_are_told(world: World) -> None:
    server, client = Process("server"), Process("client")
    world.start(server, listen(world))
    world.start(client, talk(world, ["one", "two", "three"], 1.0))
    world.run(0.5)
    world.loop.kill(server)
    world.network.process_died(server)
    world.run(5.0)
    assert heard(world, "server") == ["one"]
    assert heard(world, "client") == ["lost"]


def test_a_cut_direction_holds_bytes_back_until_it_is_mended(world: World) -> None:
    world.start(Process("server"), listen(world))
    world.start(Process("client"), talk(world, ["one", "two", "three"], 1.0))
    world.run(0.5)
    world.network.cut("client", "server")
    world.run(5.0)
    assert heard(world, "server") == ["one"]
    world.network.mend("client", "server")
    world.run(1.0)
    assert "".join(heard(world, "server")) == "onetwothree"


def test_a_reset_loses_what_was_on_its_way(world: World) -> None:
    world.start(Process("server"), listen(world))
    world.start(Process("client"), talk(world, ["one", "two"], 1.0))
    world.run(0.5)
    world.network.cut("client", "server")
    world.run(5.0)
    world.network.reset("client", "server")
    world.network.mend_all()
    world.run(1.0)
    assert heard(world, "server") == ["one", "lost"]


def test_one_seed_gives_one_trace() -> None:
    def trace(seed: int) -> list[tuple[float, str, str]]:
        world = World(seed)
        world.network.slicing = 0.5
        world.start(Process("server"), listen(world))
        for name in ("a", "b", "c"):
            world.start(Process(name), talk(world, [f"{name}{n}" for n in range(20)], 0.001))
        world.run(1.0)
        world.loop.close()
        return world.trace

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)
