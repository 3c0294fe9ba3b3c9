"""Drives calls over HTTP: the thin asyncio layer between the protocol without I/O and the client."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from tenure._endpoints import Endpoints
from tenure._http import Http, NoAnswer, NotSent
from tenure._options import Options, Transport
from tenure._problems import NotFound
from tenure._protocol import Answer, Call, Pause
from tenure._requests import Request
from tenure._stream import StreamFirst
from tenure.errors import InvalidRequest

A = TypeVar("A")

FINISH_TIMEOUT_S: Final = 2.0
"""How long closing waits for work that its caller left behind."""


def _over_the_network(options: Options) -> Transport:
    http = Http(credential=options.credential, tls=options.tls)
    return StreamFirst(http) if options.stream else http


class Calls:
    """Makes calls to one cluster, from one event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.endpoints = Endpoints(options.urls, first=random.randrange(len(options.urls)))
        self.clock = options.clock
        self.timeout_s = options.timeout_s
        self.attempt_timeout_s = options.attempt_timeout_s
        self.http: Transport = options.transport() if options.transport else _over_the_network(options)
        self._left_behind: set[asyncio.Task[Any]] = set()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def call(
        self,
        request: Request[A],
        *,
        endpoints: Endpoints | None = None,
        timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
    ) -> Call[A]:
        """A call that is about to be performed."""
        return Call(
            request,
            endpoints or self.endpoints,
            now=self.clock(),
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            attempt_timeout_s=self.attempt_timeout_s if attempt_timeout_s is None else attempt_timeout_s,
            draw=random.random,
        )

    def check_usable(self) -> None:
        """Raises InvalidRequest that says what is the matter with the client."""
        if os.getpid() != self._pid:
            raise InvalidRequest(detail="this client was made before a fork: connect anew in the child")
        if self._closed:
            raise InvalidRequest(detail="this client is closed")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            # Its connections belong to the first loop, and would hang or break in any other.
            detail = "this client belongs to another event loop: connect in each, or take tenure.connect_sync"
            raise InvalidRequest(detail=detail)
        self._loop = loop

    async def perform(self, call: Call[A]) -> Answer[A]:
        """Have it answered. Raises the refusal, ClusterUnavailable or OutcomeUnknown."""
        while True:
            # Also for what was under way: another attempt would open connections that nobody closes.
            self.check_usable()
            step = call.next(self.clock())
            if isinstance(step, Pause):
                await self.options.sleep(step.seconds)
                continue
            try:
                status, headers, body = await self.http.send(step)
            except NotSent as error:
                call.failed(step, self.clock(), str(error), sent=False)
            except NoAnswer as error:
                call.failed(step, self.clock(), str(error), sent=True)
            else:
                answer = call.received(step, self.clock(), status, headers, body)
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

    async def finish(self, work: Coroutine[Any, Any, A]) -> A:
        """Do it to its end, also if the caller is cancelled meanwhile; `close` then waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._left_behind.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.discard(task)
        if not task.cancelled():
            # Whoever still waits is told; if nobody does, asyncio must not log it as never retrieved.
            task.exception()

    async def finish_left_behind(self) -> None:
        """Finish what was left behind, for FINISH_TIMEOUT_S at most."""
        if self._left_behind:
            _, late = await asyncio.wait(self._left_behind, timeout=FINISH_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def close(self) -> None:
        """Finish what was left behind, and close the connections."""
        await self.finish_left_behind()
        self._closed = True
        # After a fork they are the parent's.
        if os.getpid() == self._pid:
            await self.http.close()
