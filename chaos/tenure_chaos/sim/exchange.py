"""One HTTP request on its way to a node, and its answer on its way back, over links that delay and cut.

A request that has departed arrives, whatever becomes of its sender, and may arrive twice. What the node does
with a connection that its client closes is what the real front does (api/dispatch.py): only an acquire that
waits or can't be asked for again is given up.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tenure._protocol import Attempt
from tenure_chaos.sim.loop import CURRENT, Process
from tenure_chaos.sim.node import SimNode

if TYPE_CHECKING:
    from tenure_chaos.sim.client import SimClient

HttpAnswer: TypeAlias = tuple[int, Mapping[str, str], bytes]

HELD_BACK_S = 0.25
"""How often a cut link is looked at by what waits to pass it."""


class NotSent(Exception):
    """The request did not reach the node."""


class NoAnswer(Exception):
    """The request may have reached the node; no answer came."""


class Exchange:
    """``answered`` None: a second delivery of a request, whose answer nobody waits for."""

    def __init__(
        self,
        client: SimClient,
        node: SimNode,
        attempt: Attempt,
        answered: asyncio.Future[HttpAnswer] | None,
    ) -> None:
        self._client, self._node, self._attempt, self._answered = client, node, attempt, answered
        self._sender = client.process
        self._served_by: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._hung_up = False

    def depart(self) -> None:
        self._pass(self._client.name, self._node.name, self._node.process, self._arrive)

    def hang_up(self) -> None:
        """The client's side closes the connection; the node hears of it a delay later."""
        self._hung_up = True
        self._pass(self._client.name, self._node.name, self._node.process, self._closed)

    def _pass(self, source: str, target: str, process: Process, call: Callable[..., Any], *args: Any) -> None:
        """Do this at the other side after the link's delay; try again later while the link is cut."""
        network, loop = self._client.network, self._client.loop
        link = network.link(source, target)

        def step() -> None:
            if link.cut:
                loop.call_later(HELD_BACK_S, step)
            else:
                context = contextvars.Context()
                context.run(CURRENT.set, process)
                loop.call_soon(call, *args, context=context)

        contextvars.Context().run(loop.call_later, link.delay_s(self._client.rng), step)

    # -- at the node

    def _arrive(self) -> None:
        node = self._node
        if not node.up or node.dispatcher is None:
            self._fail_from_node("reset")
            return
        if self._hung_up:
            return
        if self._answered is None:
            self._client.counts["duplicate request delivered"] += 1
        self._served_by = node.process
        self._served_by.at_death[self] = lambda: self._fail_from_node("closed")
        self._task = self._client.loop.create_task(self._serve())

    async def _serve(self) -> None:
        attempt, node = self._attempt, self._node
        answer = await node.serve(attempt.method, attempt.target, attempt.body)
        if self._served_by is not None:
            self._served_by.at_death.pop(self, None)
        if self._answered is None:
            return
        if self._client.rng.random() < self._client.lose_reply:
            self._fail_from_node("lost")
        else:
            self._pass(node.name, self._client.name, self._sender, self._succeed, answer)

    def _closed(self) -> None:
        if self._served_by is not None:
            self._served_by.at_death.pop(self, None)
        if self._task is not None and not self._task.done() and self._ends_with_connection():
            self._client.counts["request given up with its connection"] += 1
            self._task.cancel()

    def _ends_with_connection(self) -> bool:
        attempt, dispatcher = self._attempt, self._node.dispatcher
        if dispatcher is None:
            return False
        found = dispatcher.find(attempt.method, attempt.target.partition("?")[0])
        assert isinstance(found, tuple)
        endpoint, _ = found
        return endpoint.takes_body and endpoint.ends_with_connection(
            endpoint.decode_body(attempt.body or b"", "", "json")
        )

    # -- at the client

    def _fail_from_node(self, why: str) -> None:
        self._pass(self._node.name, self._client.name, self._sender, self._fail, NoAnswer(why))

    def _succeed(self, answer: HttpAnswer) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
