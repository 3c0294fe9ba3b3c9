"""A client program of a live run: the simulation's worker, with the client's own renewal thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tenure import _background
from tenure._renewer import Renewer, _Work
from tenure._sessions import Sessions
from tenure_chaos.history import CallRecord
from tenure_chaos.live.work.client import LiveClient
from tenure_chaos.live.work.registers import RemoteRegister
from tenure_chaos.live.work.world import LiveWorld, as_world
from tenure_chaos.sim.register import Register
from tenure_chaos.sim.workload import Worker
from tenure_chaos.sim.workloads.front import Front
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.real_client import RecordedCalls

KEYS_LAST_S: Final = 30.0


class LiveProgram(Worker):
    """Its calls may be made on several threads."""

    def __init__(self, world: LiveWorld, client: LiveClient, registers: tuple[str, int] | None) -> None:
        super().__init__(as_world(world), client)
        self._live = world
        self._registers = registers

    @property
    def calls(self) -> RecordedCalls:
        if self._calls is None:
            self._calls = LiveCalls(self)
        return self._calls

    @property
    def front(self) -> Front:
        if self._front is None:
            self._front = LiveFront(self)
        return self._front

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = super().begin(work)
        # Cancelled before its first step it would be complained about in the log as never awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def write_down(self, name: str, asked: dict[str, Any]) -> CallRecord:
        with self._live.lock:
            return super().write_down(name, asked)

    def key_now(self, key: str) -> str:
        """Every so often another, so that a long run has keys whose histories can be searched."""
        age = int(self._live.now() / KEYS_LAST_S)
        return f"{key}.{age}" if age else key

    def register(self, key: str) -> Register:
        assert self._registers is not None
        return RemoteRegister(f"register of {key}", self._registers)

    async def close(self) -> None:
        """The connections and the renewal thread."""
        if self._front is not None:
            await self._front.close()
        assert isinstance(self.client, LiveClient)
        await self.client.close()


class LiveCalls(RecordedCalls):
    """The calls of one thread."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._client = program.client

    async def close(self) -> None:
        await self.finish_left_behind()
        assert isinstance(self._client, LiveClient)
        await self._client.close()


class LiveFront(Front):
    """The whole client, with renewals on their own thread, as in the field."""

    def __init__(self, program: LiveProgram) -> None:
        super().__init__(program)
        self._renewer = LiveRenewer(program)
        self._sessions = Sessions(self._calls, self._renewer)
        self._dropped = weakref.finalize(self, self._renewer.close)
        self._dropped.atexit = False


class LiveRenewer(Renewer):
    """The client's, whose calls are written down."""

    def __init__(self, program: LiveProgram) -> None:
        super().__init__(program.calls.options)
        self._program = program

    def _submit(self, begin: Callable[[_Work], None], *, otherwise: Callable[[], None]) -> None:
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive):
                self._thread = _background.take()
                self._work = _Work(self._options)
                self._work._calls = LiveCalls(self._program)
        super()._submit(begin, otherwise=otherwise)
