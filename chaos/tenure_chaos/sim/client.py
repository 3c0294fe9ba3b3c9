"""A simulated client: the real protocol and retry logic, over links that delay, lose and cut."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tenure._endpoints import Endpoints
from tenure._protocol import Attempt, Call, Pause
from tenure._requests import Request
from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.loop import CURRENT, Process, VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_chaos.sim.node import SimNode

A = TypeVar("A")

CALL_TIMEOUT_S = 15.0
ATTEMPT_TIMEOUT_S = 3.0


class NotSent(Exception):
    """The request did not reach the node."""


class NoAnswer(Exception):
    """The request may have reached the node; no answer came."""


class SimClient:
    """One program that uses the cluster. It can be paused, as a node can."""

    def __init__(
        self,
        *,
        name: str,
        loop: VirtualLoop,
        network: Network,
        nodes: Mapping[str, SimNode],
        clock: SimClock,
        rng: random.Random,
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.clock = clock
        self.rng = rng
        self._loop = loop
        self._network = network
        self._nodes = {f"http://{node}": nodes[node] for node in nodes}
        self._endpoints = Endpoints(list(self._nodes), first=rng.randrange(len(nodes)))
        self.lose_reply = 0.0
        """Chance that an answer is lost on its way and its connection with it."""

    def begin(self, request: Request[A]) -> Call[A]:
        """A call that has not been attempted yet. ``doubtful`` of it tells whether an attempt is in doubt."""
        return Call(
            request,
            self._endpoints,
            now=self.clock.monotonic(),
            timeout_s=CALL_TIMEOUT_S,
            attempt_timeout_s=ATTEMPT_TIMEOUT_S,
            draw=self.rng.random,
        )

    async def drive(self, call: Call[A]) -> tuple[A, float]:
        """The answer, and when (by this client's clock) the very attempt was sent that was answered. Raises
        TenureError."""
        while True:
            move = call.next(self.clock.monotonic())
            if isinstance(move, Pause):
                await asyncio.sleep(move.seconds / self.clock.rate)
                continue
            try:
                status, headers, body = await self._send(move)
            except NotSent as error:
                call.failed(move, self.clock.monotonic(), str(error), sent=False)
                continue
            except NoAnswer as error:
                call.failed(move, self.clock.monotonic(), str(error), sent=True)
                continue
            answer = call.received(move, self.clock.monotonic(), status, headers, body)
            if answer is not None:
                return answer.value, answer.sent_at

    async def _send(self, attempt: Attempt) -> tuple[int, Mapping[str, str], bytes]:
        node = self._nodes[attempt.url]
        there, back = self._network.link(self.name, node.name), self._network.link(node.name, self.name)
        answered: asyncio.Future[tuple[int, Mapping[str, str], bytes]] = self._loop.create_future()
        exchange = _Exchange(self, node, attempt, answered)
        if there.cut or back.cut:
            # The connection can't be made; or it was open, and then the request may arrive later.
            if self.rng.random() < 0.5:
                await asyncio.sleep(min(1.0, attempt.timeout_s))
                raise NotSent("no way to the node")
        elif not node.up:
            await asyncio.sleep(there.delay_s(self.rng) + back.delay_s(self.rng))
            raise NotSent("connection refused")
        exchange.depart()
        try:
            async with asyncio.timeout(attempt.timeout_s / self.clock.rate):
                return await answered
        except TimeoutError:
            exchange.hang_up()
            raise NoAnswer("no answer in time") from None
        except asyncio.CancelledError:
            exchange.hang_up()
            raise


class _Exchange:
    """One request on its way to a node, and its answer on its way back."""

    def __init__(
        self, client: SimClient, node: SimNode, attempt: Attempt, answered: asyncio.Future[Any]
    ) -> None:
        self._client, self._node, self._attempt, self._answered = client, node, attempt, answered
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._hung_up = False

    def depart(self) -> None:
        self._after(self._client.name, self._node.name, self._node.process, self._arrive)

    def _after(
        self, source: str, target: str, process: Process, call: Callable[..., Any], *args: Any
    ) -> None:
        """Do this at the other side after the link's delay; try again later while the link is cut."""
        network, loop = self._client._network, self._client._loop
        link = network.link(source, target)

        def step() -> None:
            if link.cut:
                loop.call_later(0.25, step)
            else:
                context = contextvars.copy_context()
                context.run(CURRENT.set, process)
                loop.call_soon(call, *args, context=context)

        contextvars.Context().run(loop.call_later, link.delay_s(self._client.rng), step)

    def _arrive(self) -> None:
        node = self._node
        if not node.up or node.dispatcher is None:
            self._after(node.name, self._client.name, self._client.process, self._fail, NoAnswer("reset"))
            return
        self._process = node.process
        if not self._hung_up:
            self._task = self._client._loop.create_task(self._serve())
            self._watch()

    def _watch(self) -> None:
        """Tell the client when the node's process has gone: the kernel closes its connections."""

        def look() -> None:
            if self._answered.done():
                return
            if self._process is not None and not self._process.alive:
                self._after(
                    self._node.name, self._client.name, self._client.process, self._fail, NoAnswer("closed")
                )
            else:
                self._client._loop.call_later(0.05, look)

        contextvars.Context().run(self._client._loop.call_later, 0.05, look)

    async def _serve(self) -> None:
        attempt = self._attempt
        answer = await self._node.serve(attempt.method, attempt.target, attempt.body)
        if self._client.rng.random() < self._client.lose_reply:
            self._after(
                self._node.name, self._client.name, self._client.process, self._fail, NoAnswer("lost")
            )
        else:
            self._after(self._node.name, self._client.name, self._client.process, self._succeed, answer)

    def _succeed(self, answer: tuple[int, Mapping[str, str], bytes]) -> None:
        if not self._answered.done():
            self._answered.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)

    def hang_up(self) -> None:
        """The client closes its connection: the node's handler is cancelled when it hears of it."""
        self._hung_up = True

        def closed() -> None:
            if self._task is not None:
                self._task.cancel()

        self._after(self._client.name, self._node.name, self._node.process, closed)
