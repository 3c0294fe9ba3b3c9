"""A bound on the wall-clock time of what may never end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Hangs(BaseException):
    """The time is over. Not an Exception: what hangs shall not catch it."""


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raises Hangs when the time is over; only the main thread of a process has a limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hangs(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
