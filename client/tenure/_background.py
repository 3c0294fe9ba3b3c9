"""The thread on which everything is renewed: one per process, with an event loop of its own.

It runs while anybody needs it. A body that blocks its own event loop, or its thread, does not hold it up. If
it ends, however it ends, every task on it is cancelled, and the tasks see to it that no handle is believed
in any longer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

THREAD_NAME = "tenure-renewer"


class LoopThread:
    """A daemon thread that runs an event loop until ``stop``."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self.loop = runner.get_loop()
            self._stopped = asyncio.Event()
            self.loop.call_soon(self._ready.set)
            runner.run(self._stopped_by_somebody())
        # Runner.close has cancelled every task and waited for it.

    async def _stopped_by_somebody(self) -> None:
        await self._stopped.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run it on the loop. Raises RuntimeError if the thread has ended."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Run it on the loop, soon; false if the thread has ended."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def stop(self, *, wait: bool) -> None:
        self.call_soon(lambda: self._stopped.set())
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()


class _Shared:
    """The one thread of this process, and how many need it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.users = 0


_shared = _Shared()
_left_to_the_parent: list[LoopThread] = []
"""After a fork the parent's loop must not even be closed here: its selector is the parent's, too."""


def take() -> LoopThread:
    """The shared thread, started if need be; to be given back."""
    with _shared.lock:
        if _shared.thread is None or not _shared.thread.is_alive:
            _shared.thread = LoopThread(THREAD_NAME)
        _shared.users += 1
        return _shared.thread


def give_back(thread: LoopThread) -> None:
    """Nothing of the caller runs on it any more. The last one ends it."""
    with _shared.lock:
        if _shared.thread is not thread:
            return
        _shared.users -= 1
        if _shared.users > 0:
            return
        _shared.thread = None
    thread.stop(wait=False)


def _after_fork_in_child() -> None:
    global _shared
    if _shared.thread is not None:
        _left_to_the_parent.append(_shared.thread)
    _shared = _Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
