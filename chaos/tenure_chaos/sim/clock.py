"""A node's or client's own clocks: off from true time by an offset, and by a rate."""

import random

from tenure_chaos.sim.loop import VirtualLoop

EPOCH_MS = 1_767_225_600_000
"""Where wall clocks stand when a world begins: the first of January 2026."""


class SimClock:
    """``rate`` 1.001 gains a millisecond a second. The monotonic clock never goes back; the wall clock can
    be stepped.
    """

    def __init__(
        self, loop: VirtualLoop, rng: random.Random, *, offset_s: float = 0.0, rate: float = 1.0
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._offset_s = offset_s
        self.rate = rate
        self._wall_step_ms = 0

    def monotonic(self) -> float:
        return self._offset_s + self._loop.now_s * self.rate

    def set_rate(self, rate: float) -> None:
        """Go on at another rate from now on."""
        self._offset_s += self._loop.time() * (self.rate - rate)
        self.rate = rate

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._loop.now_s * 1000) + self._wall_step_ms

    def step_wall(self, by_ms: int) -> None:
        self._wall_step_ms += by_ms

    def random(self) -> float:
        return self._rng.random()
