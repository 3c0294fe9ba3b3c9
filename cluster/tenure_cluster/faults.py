"""Named places where a test can make this process misbehave. Nothing happens at any of them unless it was
armed.

Only for tests: a point is armed by code, or in a process of its own by the environment variable
``TENURE_FAULTS``, for example ``journal.before_sync=kill:3``, which kills the process by SIGKILL the third
time it comes there, or ``journal.before_sync=delay:200``, which holds each sync up for 200 ms.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

POINTS: Final = frozenset(
    {
        "journal.before_sync",
        "journal.after_sync",
        "journal.segment_rename",
        "journal.segment_remove",
        "snapshot.before_rename",
        "snapshot.after_rename",
        "snapshot.before_remove",
    }
)

_armed: dict[str, Callable[[], None]] = {}


def hit(point: str) -> None:
    """The process has come to this point."""
    if _armed and (action := _armed.get(point)) is not None:
        action()


def arm(point: str, action: Callable[[], None]) -> None:
    """Do ``action`` each time the process comes to ``point``, on whatever thread that is."""
    if point not in POINTS:
        raise ValueError(f"there is no fault point {point!r}")
    _armed[point] = action


def disarm(point: str | None = None) -> None:
    """Nothing happens at ``point`` any more, or at any point."""
    if point is None:
        _armed.clear()
    else:
        _armed.pop(point, None)


def arm_from(specification: str) -> None:
    """Arm what ``TENURE_FAULTS`` asks for: ``point=kill:n`` or ``point=delay:ms``, several separated by
    commas."""
    for item in filter(None, specification.split(",")):
        point, _, action = item.partition("=")
        verb, _, count = action.partition(":")
        if verb not in _ACTIONS or not count.isdecimal():
            raise ValueError(f"{item!r} is not of the form point=kill:n or point=delay:ms")
        arm(point, _ACTIONS[verb](int(count)))


def _killer(count: int) -> Callable[[], None]:
    left = count

    def action() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return action


def _delayer(milliseconds: int) -> Callable[[], None]:
    def action() -> None:
        # The thread that came here alone is held up: a sync has one of its own.
        threading.Event().wait(milliseconds / 1000)

    return action


_ACTIONS: Final[dict[str, Callable[[int], Callable[[], None]]]] = {"kill": _killer, "delay": _delayer}
