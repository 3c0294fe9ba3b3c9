"""A register outside the service: what passes its guard, and what its unguarded twin takes."""

import random

import pytest

from tenure_chaos.history import RegisterWrite
from tenure_chaos.sim.loop import Process, VirtualLoop
from tenure_chaos.sim.register import Register, Seen


class Scene:
    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.writes: list[RegisterWrite] = []
        self.register = Register("r", self.loop, random.Random(1), delay_s=1.0, write_down=self.writes.append)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_write_replaces_what_was_read(scene: Scene) -> None:
    async def story() -> None:
        assert await scene.register.arm(5)
        seen = await scene.register.read()
        put = await scene.register.write("a", 5, seen)
        assert put.accepted
        after = await scene.register.read()
        assert after.guarded == after.unguarded != seen.guarded

    scene.loop.run_until_complete(story())
    assert [(write.guarded, write.accepted, write.read, write.found) for write in scene.writes] == [
        (True, True, 0, 0),
        (False, True, 0, 0),
    ]
    scene.loop.close()


def test_once_armed_a_lower_token_changes_the_twin_alone(scene: Scene) -> None:
    async def story() -> None:
        late = await scene.register.read()
        assert await scene.register.arm(7)
        put = await scene.register.write("late", 6, late)
        assert not put.accepted
        assert put.floor == 7
        assert (await scene.register.read()).guarded == late.guarded
        assert (await scene.register.read()).unguarded != late.unguarded

    scene.loop.run_until_complete(story())
    scene.loop.close()


def test_whoever_arms_after_a_later_holder_is_told(scene: Scene) -> None:
    async def story() -> None:
        assert await scene.register.arm(7)
        assert not await scene.register.arm(6)
        assert scene.register.floor == 7

    scene.loop.run_until_complete(story())
    scene.loop.close()


def test_a_write_arrives_though_its_writer_has_died_meanwhile(scene: Scene) -> None:
    process = Process("writer")

    async def write() -> None:
        await scene.register.write("writer", 1, Seen(0, 0))
        raise AssertionError("the writer is dead")

    async def story() -> None:
        scene.loop.spawn(process, lambda: scene.loop.create_task(write()))
        scene.loop.call_later(0.0, scene.loop.kill, process)
        while not scene.writes:
            await scene.register.read()

    scene.loop.run_until_complete(story())
    assert scene.loop.failures == []
    assert scene.writes[0].accepted
    scene.loop.discard_tasks()
    scene.loop.close()
