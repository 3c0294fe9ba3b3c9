"""A clock that a test can move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ManualClock:
    """Seconds that pass as they do outside, and faster when the test says so. Safe to use from any thread.

    With ``running=False`` they pass only when the test says so. Nothing that sleeps is woken by that except
    the renewal of leases and the cluster of the test.
    """

    def __init__(self, start: float = 1_000.0, *, running: bool = True) -> None:
        self._lock = threading.Lock()
        self._offset = start - time.monotonic() if running else start
        self._running = running
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> float:
        """Seconds of this clock."""
        with self._lock:
            return self._offset + time.monotonic() if self._running else self._offset

    def jump(self, seconds: float) -> None:
        """Let so much time have passed at once, as if the process had been suspended: nothing is renewed in
        between."""
        if seconds < 0:
            raise ValueError("a clock does not run back")
        with self._lock:
            self._offset += seconds
        for listener in list(self._listeners):
            listener()

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each jump."""
        self._listeners.append(listener)
