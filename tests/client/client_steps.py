"""Steps that the tests of the client share: waiting for a condition, and cancelling a coroutine at a chosen
point: at its first suspension, its second, and so on to its last."""

import asyncio
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

SUSPENSIONS_MAX = 500


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until it holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 -- what is awaited happens on other threads
            await asyncio.sleep(0.001)


class Suspended:
    """How often a coroutine was suspended, and whether it was cancelled: as it is suspended, or ``late``:
    when what it waits for is there and it was not yet told."""

    def __init__(self, cancel_at: int, *, late: bool = False) -> None:
        self.cancel_at = cancel_at
        self.late = late
        self.count = 0

    @property
    def was_cancelled(self) -> bool:
        return self.count >= self.cancel_at

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """As ``await work``, with the task cancelled as it suspends for the chosen time."""
        inner = work.__await__()
        step: Callable[[], Any] = lambda: next(inner)  # noqa: E731
        while True:
            try:
                waits_for = step()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            self.count += 1
            if self.count == self.cancel_at:
                task = asyncio.current_task()
                assert task is not None
                if self.late and asyncio.isfuture(waits_for):
                    # Called before the task is woken, because it was asked for before.
                    waits_for.add_done_callback(lambda _, task=task: task.cancel())
                else:
                    task.cancel()
            try:
                value = yield waits_for
            except BaseException as error:
                step = lambda error=error: inner.throw(error)  # noqa: E731
            else:
                step = lambda value=value: inner.send(value)  # noqa: E731


async def cancelled_at_every_point(
    scenario: Callable[[Callable[[Coroutine[Any, Any, T]], Awaitable[T]]], Coroutine[Any, Any, object]],
    *,
    late: bool = False,
) -> AsyncIterator[tuple[int, bool]]:
    """Run the scenario again and again, with what it gives to its argument cancelled one suspension later
    each time, until that ends before it is cancelled. Yields the point, and whether it was reached."""
    for point in range(1, SUSPENSIONS_MAX):
        suspended = Suspended(point, late=late)
        task = asyncio.ensure_future(scenario(suspended.run))
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        yield point, suspended.was_cancelled
        if not suspended.was_cancelled:
            return
    raise AssertionError("it never ended")
