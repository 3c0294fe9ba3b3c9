"""The client's clock: seconds, of which only differences matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where there is one, the clock that goes on while the machine is suspended: a lease does, too."""


def now_s() -> float:
    """Seconds of the client's clock."""
    return time.clock_gettime(CLOCK)
