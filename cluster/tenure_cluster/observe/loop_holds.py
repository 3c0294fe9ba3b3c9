"""For how long the event loop was held, lately.

A timer that runs out every few milliseconds tells by how late it comes for how long nobody else came to run.
That is a callback that took long, a pause of the garbage collector, or a machine that had no time for this
process. The processor time that the loop's thread used meanwhile tells the two apart: only what it really
ran is the node's own doing.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.01
"""Of the timer. A hold may have begun so much earlier than the timer was due, and is told shorter by that."""

WINDOW_S: Final = 15
"""The longest hold is told of so many seconds, so that who looks every 15 s sees each one once at least."""


class LoopHolds:
    """The longest holds of each of the last seconds. Belongs to the event loop."""

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        """Begins at once and goes on until `stop`. `cpu_s` tells the processor time of the calling thread."""
        self._loop = asyncio.get_running_loop()
        self._cpu_s = cpu_s
        self._seconds: dict[int, tuple[float, float]] = {}
        """By second: the longest hold, and the longest of the thread's own part."""
        self._due_s = 0.0
        self._used_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._wind()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def longest_s(self) -> float:
        """Of the last WINDOW_S, the one that is under way included."""
        return max((held for held, _ in self._recent()), default=0.0)

    @property
    def longest_cpu_s(self) -> float:
        """The most that the thread itself ran in one hold of the last WINDOW_S."""
        return max((ran for _, ran in self._recent()), default=0.0)

    def _recent(self) -> list[tuple[float, float]]:
        now_s = self._loop.time()
        self._note(now_s)
        first = math.floor(now_s) - WINDOW_S
        return [longest for second, longest in self._seconds.items() if second >= first]

    def _wind(self) -> None:
        self._due_s = self._loop.time() + PERIOD_S
        self._used_s = self._cpu_s()
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        self._note(self._loop.time())
        self._wind()

    def _note(self, now_s: float) -> None:
        held_s = now_s - self._due_s
        if held_s <= 0:
            return
        ran_s = min(held_s, self._cpu_s() - self._used_s)
        second = math.floor(now_s)
        known = self._seconds.get(second)
        if known is None:
            self._forget(second - WINDOW_S)
            self._seconds[second] = (held_s, ran_s)
        elif held_s > known[0] or ran_s > known[1]:
            self._seconds[second] = (max(held_s, known[0]), max(ran_s, known[1]))

    def _forget(self, before: int) -> None:
        for second in [second for second in self._seconds if second < before]:
            del self._seconds[second]
