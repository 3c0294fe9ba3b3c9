"""For how long the event loop was held: on virtual time, and once on a real loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tenure_chaos.sim.loop import VirtualLoop
from tenure_cluster.observe.loop_holds import PERIOD_S, WINDOW_S, LoopHolds


class Held:
    """A loop whose time moves while a callback runs, and a thread that runs in a part of it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.ran_s = 0.0
        self.holds = LoopHolds(lambda: self.ran_s)

    def hold(self, wall_s: float, cpu_s: float) -> None:
        self.loop.now_s += wall_s
        self.ran_s += cpu_s


def on_virtual_time(story: Callable[[Held], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def play() -> None:
        held = Held(loop)
        await story(held)
        held.holds.stop()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def test_the_longest_hold_is_told_and_what_the_thread_ran_of_it() -> None:
    async def story(held: Held) -> None:
        for wall_s, cpu_s in ((0.1, 0.02), (0.3, 0.005), (0.05, 0.05)):
            await asyncio.sleep(0.5)
            held.hold(wall_s, cpu_s)
        await asyncio.sleep(0.5)
        assert held.holds.longest_s == pytest.approx(0.3, abs=PERIOD_S)
        assert held.holds.longest_cpu_s == pytest.approx(0.05, abs=PERIOD_S)

    on_virtual_time(story)


def test_a_loop_that_is_never_held_says_so() -> None:
    async def story(held: Held) -> None:
        for _ in range(100):
            await asyncio.sleep(0.013)
            held.ran_s += 0.001
        assert held.holds.longest_s == pytest.approx(0.0, abs=1e-6)

    on_virtual_time(story)


def test_a_hold_is_told_by_who_looks_at_its_end() -> None:
    async def story(held: Held) -> None:
        await asyncio.sleep(1)
        held.hold(0.2, 0.2)
        assert held.holds.longest_s == pytest.approx(0.2, abs=PERIOD_S)

    on_virtual_time(story)


def test_a_hold_is_told_throughout_the_window_and_not_for_ever() -> None:
    async def story(held: Held) -> None:
        await asyncio.sleep(1)
        held.hold(0.2, 0.2)
        await asyncio.sleep(WINDOW_S - 1)
        assert held.holds.longest_s > 0.1
        await asyncio.sleep(3)
        assert held.holds.longest_s < 0.001
        assert held.holds.longest_cpu_s < 0.001

    on_virtual_time(story)


async def test_a_callback_that_blocks_a_real_loop_is_seen() -> None:
    holds = LoopHolds(time.thread_time)
    await asyncio.sleep(2 * PERIOD_S)
    until_s = time.thread_time() + 0.06
    while time.thread_time() < until_s:
        pass
    ran = holds.longest_cpu_s
    time.sleep(0.2)  # noqa: ASYNC251 -- what is to be seen
    await asyncio.sleep(2 * PERIOD_S)
    holds.stop()
    assert ran >= 0.05
    assert holds.longest_s >= 0.2
