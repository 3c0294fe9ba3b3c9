"""Deadlines of calls under way, looked through a few times a second.

A timer per call would cost more than the call's other bookkeeping, and no call needs its time-out to the
millisecond.
"""

import asyncio
from typing import Final, Generic, Protocol, TypeVar

SWEEP_S: Final = 0.25
"""How late a time-out can be noticed."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Settled(Protocol[T_contra]):
    """A future, or what can be settled like one."""

    def done(self) -> bool: ...

    def set_result(self, result: T_contra, /) -> None: ...


class Deadlines(Generic[T]):
    """Futures that get the result `overdue` if nothing else has settled them in time."""

    def __init__(self, overdue: T) -> None:
        self._overdue = overdue
        self._futures: dict[Settled[T], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, future: Settled[T], deadline: float) -> None:
        """`deadline` is the loop's time."""
        self._futures[future] = deadline
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def remove(self, future: Settled[T]) -> None:
        self._futures.pop(future, None)

    def settle_all(self) -> None:
        """Let every call end now, as if its time were over."""
        for future in list(self._futures):
            if not future.done():
                future.set_result(self._overdue)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for future, deadline in list(self._futures.items()):
            if deadline <= now and not future.done():
                future.set_result(self._overdue)
        self._timer = loop.call_later(SWEEP_S, self._sweep) if self._futures else None
