"""Drives calls over HTTP: the thin asyncio layer between the protocol without I/O and the client."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from tenure._endpoints import Endpoints, parse_endpoints
from tenure._http import Http, NoAnswer, NotSent
from tenure._problems import NotFound
from tenure._protocol import Answer, Call, Pause
from tenure._requests import Request

A = TypeVar("A")

FINISH_TIMEOUT_S: Final = 2.0
"""How long closing waits for work that its caller left behind."""

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where there is one, the clock that goes on while the machine is suspended: a lease does, too."""


def now_s() -> float:
    """Seconds of the client's clock."""
    return time.clock_gettime(CLOCK)


class Calls:
    """Makes calls to one cluster, from one event loop."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        credential: str | None,
        timeout_s: float,
        attempt_timeout_s: float,
    ) -> None:
        urls = parse_endpoints(endpoints)
        self.endpoints = Endpoints(urls, first=random.randrange(len(urls)))
        self.timeout_s = timeout_s
        self.attempt_timeout_s = attempt_timeout_s
        self._http = Http(credential=credential)
        self._left_behind: set[asyncio.Task[bool]] = set()

    def call(
        self, request: Request[A], *, endpoints: Endpoints | None = None, timeout_s: float | None = None
    ) -> Call[A]:
        """A call that is about to be performed."""
        return Call(
            request,
            endpoints or self.endpoints,
            now=now_s(),
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            attempt_timeout_s=self.attempt_timeout_s,
            draw=random.random,
        )

    async def perform(self, call: Call[A]) -> Answer[A]:
        """Have it answered. Raises the refusal, ClusterUnavailable or OutcomeUnknown."""
        while True:
            step = call.next(now_s())
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                status, headers, body = await self._http.send(step)
            except NotSent as error:
                call.failed(step, now_s(), str(error), sent=False)
            except NoAnswer as error:
                call.failed(step, now_s(), str(error), sent=True)
            else:
                answer = call.received(step, now_s(), status, headers, body)
                if answer is not None:
                    return answer

    async def ask(self, request: Request[A], *, timeout_s: float | None = None) -> A:
        """Just the value of the answer."""
        return (await self.perform(self.call(request, timeout_s=timeout_s))).value

    async def find(self, request: Request[A]) -> A | None:
        """The value, or None if what the call names is not there."""
        try:
            return await self.ask(request)
        except NotFound:
            return None

    async def finish(self, work: Coroutine[Any, Any, bool]) -> bool:
        """Do it to its end, also if the caller is cancelled meanwhile; `close` then waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Finish what was left behind, for FINISH_TIMEOUT_S at most, and close the connections."""
        if self._left_behind:
            _, late = await asyncio.wait(self._left_behind, timeout=FINISH_TIMEOUT_S)
            for task in late:
                task.cancel()
        await self._http.close()
