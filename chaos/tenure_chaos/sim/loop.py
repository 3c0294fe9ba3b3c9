"""An asyncio event loop on virtual time.

Theory of operation. Callbacks run in the order in which they became due; when nothing is ready, time jumps
to the next timer. Nothing here asks the operating system for anything, so a run is a pure function of its
inputs.

Every callback belongs to a process: the one in whose context it was scheduled (a context variable, which
asyncio copies into tasks and callbacks by itself). A paused process keeps its callbacks parked until it
goes on, as SIGSTOP does; the callbacks of a killed one are discarded, as SIGKILL does. Sockets are the
network's (see network.py), reached through create_server and create_connection.
"""

import asyncio
import collections
import contextlib
import contextvars
import gc
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, Protocol


class Process:
    """One incarnation of a simulated program: a node or a client."""

    __slots__ = ("alive", "at_death", "context", "incarnation", "name", "parked", "paused")

    def __init__(self, name: str, incarnation: int = 0) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.parked: list[Scheduled] = []
        self.at_death: dict[object, Callable[[], None]] = {}
        """What the world does when it dies, by whose concern it is: a kernel closes connections, for one."""
        self.context = contextvars.Context()
        """What its kernel calls it in, when bytes arrive or a disk has finished."""
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"{self.name}#{self.incarnation}"


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
"""The process in whose name code runs; None is the world itself."""


class Scheduled:
    """A callback to come: what asyncio.Handle and TimerHandle are, without what only a real loop needs."""

    __slots__ = ("_when_s", "args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when_s = when_s
        self.callback = callback
        self.args = args
        self.is_cancelled = False
        if context is None:
            self.context = contextvars.copy_context()
            self.process = CURRENT.get()
        else:
            self.context = context
            self.process = context.get(CURRENT)

    def when(self) -> float:
        return self._when_s

    def cancel(self) -> None:
        self.is_cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled


class Sockets(Protocol):
    """What the loop needs of a network."""

    def listen(
        self, owner: Process, host: str, port: int, factory: Callable[[], Any]
    ) -> asyncio.AbstractServer: ...

    async def dial(
        self, owner: Process, host: str, port: int, factory: Callable[[], Any]
    ) -> tuple[Any, Any]: ...


CALLBACKS_MAX = 1_000_000
"""At one instant; more are taken for a loop without end."""


class Stalled(RuntimeError):
    """Time does not go on: nothing is ready and no timer is set, or callbacks make callbacks for ever."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's docstring. ``steps`` counts the callbacks that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._queue: collections.deque[Scheduled] = collections.deque()
        self._timers: list[tuple[float, int, Scheduled]] = []
        self._timer_number = 0
        self.sockets: Sockets | None = None
        self.steps = 0
        self._stopping = False
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _loop, context: self.failures.append(context))
        self._tasks: list[asyncio.Task[Any]] = []
        self.unbegun: dict[object, Coroutine[Any, Any, Any]] = {}
        """What is to begin soon, by whose concern it is: it must be closed if it never does."""
        self.set_task_factory(self._make_task)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Every task is kept to the end: to collect one of a killed process would run its cleanup."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    def discard_tasks(self) -> None:
        """At the very end: close what never ended, as the death of a process would, without a word."""
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
        finally:
            asyncio._set_running_loop(None)
            self._tasks.clear()
            for work in self.unbegun.values():
                work.close()
            self.unbegun.clear()

    def run_until_complete(self, future: Any) -> Any:
        """Without the collector: it takes a tenth of the time, and what it finds depends on the process."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            return super().run_until_complete(future)
        finally:
            if was_on:
                gc.enable()

    # -- time and callbacks

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Scheduled:
        handle = Scheduled(self.now_s, callback, args, context)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Scheduled:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Scheduled:
        handle = Scheduled(when, callback, args, context)
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, handle))
        return handle

    def _run_once(self) -> None:
        """Everything up to the callback that stops the loop."""
        queue, timers, pop = self._queue, self._timers, heapq.heappop
        left = CALLBACKS_MAX
        while not self._stopping:
            if not queue:
                while timers and timers[0][2].is_cancelled:
                    pop(timers)
                if not timers:
                    raise Stalled("no callback is ready and no timer is set")
                now_s = timers[0][0]
                if now_s > self.now_s:
                    self.now_s = now_s
                    left = CALLBACKS_MAX
                while timers and timers[0][0] <= self.now_s:
                    queue.append(pop(timers)[2])
            handle = queue.popleft()
            if handle.is_cancelled:
                continue
            process = handle.process
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.parked.append(handle)
                    continue
            self.steps += 1
            left -= 1
            if not left:
                raise Stalled(f"callbacks without end at {self.now_s} s; the last is {handle.callback!r}")
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler(
                    {"message": f"exception in {handle.callback!r}", "exception": error}
                )

    # -- processes

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        """Everything that had become due meanwhile is ready now, in the order in which it became due."""
        process.paused = False
        parked, process.parked = process.parked, []
        self._queue.extend(parked)

    def kill(self, process: Process) -> None:
        process.alive = False
        process.parked.clear()
        concerns, process.at_death = process.at_death, {}
        for call in concerns.values():
            call()

    def spawn(self, process: Process, call: Callable[..., Any], *args: Any) -> None:
        """Run ``call(*args)`` soon, as that process."""
        self.call_soon(call, *args, context=process.context)

    # -- sockets

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_options: Any
    ) -> Any:
        return self._sockets().listen(self._process(), host, port, protocol_factory)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_options: Any
    ) -> Any:
        return await self._sockets().dial(self._process(), host, port, protocol_factory)

    def _sockets(self) -> Sockets:
        assert self.sockets is not None, "the world has no network"
        return self.sockets

    def _process(self) -> Process:
        process = CURRENT.get()
        assert process is not None, "only a process may open sockets"
        return process

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("a simulated process has no threads")

    # -- what BaseEventLoop expects of a real loop

    def _process_events(self, event_list: Any) -> None:
        """There are no events but callbacks and timers."""

    def _write_to_self(self) -> None:
        """Nothing sleeps, so nothing has to be woken."""
