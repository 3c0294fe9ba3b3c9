"""Time and chance for everything in this package. The simulation puts its own in their place."""

import random
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back and do not count suspension; the origin means nothing."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds, for people. Decides nothing."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1). Good enough to spread timers and to tell files apart, not for secrets."""
        ...


class SystemClock:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        return self._random.random()
