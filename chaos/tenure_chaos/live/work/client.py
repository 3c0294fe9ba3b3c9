"""One client of a live run: the real protocol and transport, each attempt through the proxy of its line."""

import random
import threading
from collections import Counter
from dataclasses import replace
from typing import Any, TypeVar

from tenure import _http
from tenure._endpoints import Endpoints
from tenure._http import Http
from tenure._protocol import Attempt, Call
from tenure._requests import Request
from tenure_chaos.live.work.routes import Routes
from tenure_chaos.live.work.world import LiveClock, LiveWorld
from tenure_chaos.sim.client import ATTEMPT_TIMEOUT_S, CALL_TIMEOUT_S, SimCall, SimClient
from tenure_chaos.sim.exchange import HttpAnswer, NoAnswer, NotSent
from tenure_chaos.sim.loop import Process

A = TypeVar("A")


class LiveClient(SimClient):
    """It knows the nodes by their own URLs; ``routes`` are the addresses at which it really reaches them.

    Each thread has connections and a knowledge of the nodes of its own, as the client's parts have.
    """

    def __init__(self, *, name: str, world: LiveWorld, routes: Routes, rng: random.Random) -> None:
        # Of what a simulated client has, all that stays: there are no simulated nodes and links.
        self.name = name
        self.process = Process(name)
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.lose_reply = self.duplicate_request = 0.0
        self.on_death = lambda: None
        self.clock = LiveClock()  # type: ignore[assignment]
        self._world = world
        self._routes = routes
        self._own = threading.local()

    @property
    def urls(self) -> tuple[str, ...]:
        return self._routes.urls

    def _fresh_endpoints(self) -> Endpoints:
        urls = self._routes.urls
        return Endpoints(urls, first=self.rng.randrange(len(urls)))

    def begin(
        self,
        request: Request[A],
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        anywhere: bool = False,
    ) -> SimCall[A]:
        version = self._routes.version
        if getattr(self._own, "version", None) != version:
            self._own.version, self._own.endpoints = version, self._fresh_endpoints()
        return SimCall(
            Call(
                request,
                self._fresh_endpoints() if anywhere else self._own.endpoints,
                now=self.clock.monotonic(),
                timeout_s=timeout_s,
                attempt_timeout_s=attempt_timeout_s,
                draw=self.rng.random,
            )
        )

    async def _send(self, attempt: Attempt, call: SimCall[Any]) -> HttpAnswer:
        if not hasattr(self._own, "http"):
            self._own.http = Http(credential=None)
        http: Http = self._own.http
        self.counts["attempts"] += 1
        route = self._routes.get(attempt.url)
        if route is None:
            raise NotSent(f"{attempt.url} is a node that this client was not told of")
        try:
            answer = await http.send(replace(attempt, url=route))
        except _http.NotSent as error:
            raise NotSent(str(error)) from error
        except _http.NoAnswer as error:
            raise NoAnswer(str(error)) from error
        node = self._world.node_at(attempt.url)
        # Drawn anew whenever the node's process starts.
        node.process.incarnation = answer[1].get("X-Request-Id", "").rpartition("-")[0]
        return answer

    async def close(self) -> None:
        """The connections of this thread."""
        if hasattr(self._own, "http"):
            await self._own.http.close()

    def die(self, *, silent: bool) -> None:
        raise AssertionError("a live client dies with its process")
