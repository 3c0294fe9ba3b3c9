"""What a client program finds around it in a live run: real time, a history of its own, shared registers.

It has what the simulation's world has for the work of its clients (sim/workloads), so that work is the same
here; ``as_world`` is where one is taken for the other.
"""

import asyncio
import contextvars
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tenure._clock import now_s
from tenure_chaos.history import Fault, History
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.register import Register
from tenure_chaos.sim.world import SUCCESSORS_MAX, World

A = TypeVar("A")

VIOLATIONS_MAX = 1_000


class LiveLoop:
    """The event loop's calls that the work uses. True time is the machine's, since the run began."""

    def __init__(self, began_at: float) -> None:
        """``began_at``: when the run began, by CLOCK_MONOTONIC."""
        self._began_at = began_at
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return time.monotonic() - self._began_at

    def call_soon(
        self, callback: Callable[..., Any], *given: Any, context: contextvars.Context | None = None
    ) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *given, context=context)
        except RuntimeError:
            pass  # at the end of the process, when nobody looks any more

    def call_later(self, seconds: float, callback: Callable[..., Any], *given: Any) -> None:
        self._loop.call_later(seconds, callback, *given)

    def create_task(self, work: Coroutine[Any, Any, A]) -> asyncio.Task[A]:
        return self._loop.create_task(work)

    def spawn(self, process: object, callback: Callable[..., Any], *given: Any) -> None:
        """There is one process: this one."""
        self.call_soon(callback, *given)


@dataclass
class LiveClock:
    """The clock that the client lives by."""

    rate: float = 1.0

    def monotonic(self) -> float:
        return now_s()


@dataclass
class Incarnation:
    """Which life of a node's process answered last."""

    incarnation: str = ""


@dataclass
class Node:
    """A node as a client knows it."""

    name: str
    process: Incarnation


class LiveWorld:
    """See the module's docstring."""

    def __init__(self, *, seed: int, began_at: float, options: Options, nodes: Mapping[str, str]) -> None:
        """``nodes``: name by URL."""
        self.seed = seed
        self.options = options
        self.loop = LiveLoop(began_at)
        self.history = History(clock_rate_bound=options.clock_rate_bound)
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.registers: dict[str, Register] = {}
        self.successors: deque[Any] = deque(maxlen=SUCCESSORS_MAX)
        self.nodes: dict[str, Node] = {}
        self.hosts = self.nodes
        """Those that may be members one day are among them as soon as they are known."""
        self.know(nodes)
        self.slots_known: dict[str, int] = {}
        self.lock = threading.Lock()

    def node_at(self, url: str) -> Node:
        """One that the client was told of."""
        return self.nodes[url.removeprefix("http://")]

    def know(self, nodes: Mapping[str, str]) -> None:
        """There are these nodes, too: name by URL."""
        for url, name in nodes.items():
            self.nodes.setdefault(url.removeprefix("http://"), Node(name, Incarnation()))

    def now(self) -> float:
        return self.loop.time()

    def count(self, what: str, by: int = 1) -> None:
        with self.lock:
            self.counts[what] += by

    def note(self, text: str) -> None:
        """There is no trace: the history says it all."""

    def violation(self, rule: str, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{rule}: {what}")
            # Into the log of the client's process at once: a run may have long to go.
            sys.stderr.write(f"{self.now():.2f} {rule}: {what}\n")

    def begin_fault(self, name: str, target: str) -> Fault:
        raise AssertionError("faults are begun by the bench")

    def end_fault(self, fault: Fault) -> None:
        raise AssertionError("faults are ended by the bench")


def as_world(world: LiveWorld) -> World:
    """It takes the place of a simulated one for a client's work, and for nothing else."""
    return cast(World, world)
