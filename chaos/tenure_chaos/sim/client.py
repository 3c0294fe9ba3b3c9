"""A simulated client: the real protocol and retry logic, over links that delay, lose and cut."""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from tenure._endpoints import Endpoints
from tenure._protocol import Attempt, Call, Pause
from tenure._requests import Request
from tenure.errors import TenureError
from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.exchange import Exchange, HttpAnswer, NoAnswer, NotSent
from tenure_chaos.sim.loop import Process, VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_chaos.sim.node import SimNode

A = TypeVar("A")

CALL_TIMEOUT_S = 15.0
ATTEMPT_TIMEOUT_S = 3.0


class SimCall(Generic[A]):
    """One call under way, and what is known of it that its answer or error does not say."""

    def __init__(self, call: Call[A]) -> None:
        self.protocol = call
        self.duplicated = False
        """An attempt of it was or will be delivered twice, so it may arrive after its answer."""
        self.answered_by = ""
        self.problem: dict[str, Any] = {}
        """Body of the refusal."""

    @property
    def doubtful(self) -> bool:
        return self.protocol.doubtful or self.duplicated


class SimClient:
    """One program that uses the cluster. It can be paused, as a node can, and die and begin anew."""

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
        self.loop = loop
        self.network = network
        self.counts: Counter[str] = Counter()
        self.lose_reply = 0.0
        """Chance that an answer is lost on its way and its connection with it."""
        self.duplicate_request = 0.0
        """Chance that an attempt which may be repeated arrives a second time."""
        self.on_death: Callable[[], None] = lambda: None
        """What its death means to whoever watches it."""
        self._nodes = {f"http://{node}": nodes[node] for node in nodes}
        self._endpoints = self._fresh_endpoints()
        self._open: dict[Exchange, None] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        """Of the nodes that it knows."""
        return tuple(self._nodes)

    def _fresh_endpoints(self) -> Endpoints:
        return Endpoints(list(self._nodes), first=self.rng.randrange(len(self._nodes)))

    def begin(
        self,
        request: Request[A],
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        anywhere: bool = False,
    ) -> SimCall[A]:
        """A call that has not been attempted yet. ``anywhere`` asks any node first, not the leader."""
        return SimCall(
            Call(
                request,
                self._fresh_endpoints() if anywhere else self._endpoints,
                now=self.clock.monotonic(),
                timeout_s=timeout_s,
                attempt_timeout_s=attempt_timeout_s,
                draw=self.rng.random,
            )
        )

    async def drive(self, call: SimCall[A]) -> tuple[A, float]:
        """The answer, and when (by this client's clock) the very attempt was sent that was answered. Raises
        TenureError."""
        protocol = call.protocol
        while True:
            move = protocol.next(self.clock.monotonic())
            if isinstance(move, Pause):
                await asyncio.sleep(move.seconds / self.clock.rate)
                continue
            try:
                status, headers, body = await self._send(move, call)
            except NotSent as error:
                protocol.failed(move, self.clock.monotonic(), str(error), sent=False)
                continue
            except NoAnswer as error:
                protocol.failed(move, self.clock.monotonic(), str(error), sent=True)
                continue
            call.answered_by = move.url
            try:
                answer = protocol.received(move, self.clock.monotonic(), status, headers, body)
            except TenureError:
                call.problem = msgspec.json.decode(body, type=dict[str, Any])
                raise
            if answer is not None:
                return answer.value, answer.sent_at

    async def _send(self, attempt: Attempt, call: SimCall[A]) -> HttpAnswer:
        node = self._nodes[attempt.url]
        there, back = self.network.link(self.name, node.name), self.network.link(node.name, self.name)
        if there.cut or back.cut:
            # The connection can't be made; or it was open, and then the request may arrive later.
            if self.rng.random() < 0.5:
                await asyncio.sleep(min(1.0, attempt.timeout_s))
                raise NotSent("no way to the node")
        elif not node.up:
            await asyncio.sleep(there.delay_s(self.rng) + back.delay_s(self.rng))
            raise NotSent("connection refused")
        answered: asyncio.Future[HttpAnswer] = self.loop.create_future()
        exchange = Exchange(self, node, attempt, answered)
        exchange.depart()
        if not attempt.once and self.rng.random() < self.duplicate_request:
            call.duplicated = True
            self._deliver_again(node, attempt)
        self._open[exchange] = None
        try:
            async with asyncio.timeout(attempt.timeout_s / self.clock.rate):
                return await answered
        except TimeoutError:
            exchange.hang_up()
            raise NoAnswer("no answer in time") from None
        except asyncio.CancelledError:
            exchange.hang_up()
            raise
        finally:
            self._open.pop(exchange, None)

    def _deliver_again(self, node: SimNode, attempt: Attempt) -> None:
        """Something on the way, such as a proxy, sends the request a second time, soon or later."""
        again = Exchange(self, node, attempt, None)
        delay_s = self.rng.uniform(0.0, self.rng.choice((0.01, 0.2, 5.0)))
        contextvars.Context().run(self.loop.call_later, delay_s, again.depart)

    def die(self, *, silent: bool) -> None:
        """The process is killed and its memory gone; ``process`` is the one that may be started in its
        place. ``silent``: the whole machine stops, so nobody closes its connections."""
        self.on_death()
        self.loop.kill(self.process)
        left, self._open = self._open, {}
        if not silent:
            for exchange in left:
                exchange.hang_up()
        self.process = Process(self.name, self.process.incarnation + 1)
        self._endpoints = self._fresh_endpoints()
