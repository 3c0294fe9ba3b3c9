"""Faults for somebody's own tests: ``chaos.partition(...)``, ``chaos.pause(...)``, ``chaos.kill_leader()``.

    chaos.endpoints                             where clients are to go: through the proxies
    with chaos.partition("n1"): ...             n1 alone, the others together; clients reach all
    with chaos.partition(["n1", "n2"], ["n3"]): ...
    with chaos.cut_client("n1"): ...            clients don't reach n1
    with chaos.lose_replies("n1"): ...          what clients ask of n1 is done; they don't hear of it
    with chaos.slow(latency_ms=200): ...
    with chaos.pause("n1"): ...
    name = chaos.kill_leader(); ...; chaos.start(name)
    chaos.heal()                                all of it; also what was begun without ``with``

Every call blocks until it is done, and works from any thread and from asyncio alike. A fault that was begun
ends at the end of its ``with`` block, by its own ``heal``, or with all others.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from tenure_chaos.live.network import Network

T = TypeVar("T")

CLIENT: Final = "client"
"""All clients are one: they share the lines to the nodes."""
PATIENCE_S: Final = 30.0


class ChaosError(Exception):
    """What was asked for can't be done: no such node, no leader."""


class Nodes(Protocol):
    """The processes of a cluster."""

    def names(self) -> Sequence[str]: ...
    def pause(self, name: str) -> None: ...
    def resume(self, name: str) -> None: ...
    def kill(self, name: str) -> None: ...
    def start(self, name: str) -> None: ...
    def leader(self) -> str | None: ...
    def offices(self) -> str:
        """What each node says of itself, for a person."""


class Strike:
    """A fault that is on. ``with`` it, or ``heal`` it."""

    def __init__(self, chaos: "Chaos", id_: str, what: str, undo: Callable[[], None]) -> None:
        self.id = id_
        self.what = what
        self._chaos = chaos
        self._undo: Callable[[], None] | None = undo

    def heal(self) -> None:
        """End it; a second time does nothing. If that fails, it is still on, and can be healed again."""
        undo, self._undo = self._undo, None
        if undo is None:
            return
        try:
            undo()
        except BaseException:
            self._undo = undo
            raise
        self._chaos.strikes.pop(self.id, None)

    def __enter__(self) -> "Strike":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()


class Chaos:
    """See the module's docstring. ``close`` ends it."""

    def __init__(self, network: Network, nodes: Nodes) -> None:
        """``network`` must have no event loop of its own yet; it gets this one's."""
        self.strikes: dict[str, Strike] = {}
        self._network = network
        self._nodes = nodes
        self._numbers = itertools.count(1)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="chaos", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done by the thread of the faults."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Heal everything, and end, also if something can't be healed; that is raised then."""
        try:
            self.heal()
        finally:
            self.run(self._network.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    # -- looking

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._nodes.names())

    @property
    def endpoints(self) -> str:
        """URLs of all nodes through the proxies, for a client."""
        return ",".join(self.endpoint(node) for node in self.nodes)

    def endpoint(self, node: str) -> str:
        """URL of one node through its proxy."""
        return f"http://{self._network.address(f'{CLIENT}>{self._known(node)}')}"

    def leader(self, timeout: float = PATIENCE_S) -> str:
        """Who leads, once somebody does. Raises ChaosError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (name := self._nodes.leader()) is None:
            if time.monotonic() > deadline:
                raise ChaosError(f"nobody leads within {timeout:.0f} s; {self._nodes.offices()}")
            time.sleep(0.05)
        return name

    # -- lines

    def partition(self, *groups: str | Sequence[str], clients_with: str | None = None) -> Strike:
        """Nodes of different groups don't reach each other, and nobody is told. Nodes that are in no group
        are in one together. Clients reach all nodes; with ``clients_with``, only the group of that node."""
        sides = [[group] if isinstance(group, str) else list(group) for group in groups]
        named = [self._known(node) for side in sides for node in side]
        rest = [node for node in self.nodes if node not in named]
        sides += [rest] if rest else []
        if len(sides) < 2 or len(set(named)) != len(named):
            raise ChaosError("a partition has two groups or more, and no node is in two of them")
        lines = [
            line
            for place, side in enumerate(sides)
            for other in sides[place + 1 :]
            for line in self._network.between(side, other)
        ]
        if clients_with is not None:
            reached = next(side for side in sides if self._known(clients_with) in side)
            lines += [f"{CLIENT}>{node}" for node in self.nodes if node not in reached]
        return self._silence(lines, f"partition {' | '.join(' '.join(side) for side in sides)}")

    def isolate_leader(self) -> Strike:
        """The leader is cut off from all other nodes, not from the clients."""
        return self.partition(self.leader())

    def cut(self, from_: str, to: str) -> Strike:
        """What one node sends does not reach another; the other way all is well."""
        line = f"{self._known(from_)}>{self._known(to)}"
        if from_ == to:
            raise ChaosError(f"{from_} sends nothing to itself: name two nodes")
        self._network.between([from_], [to])  # or there are no such lines
        return self._silence([line], f"cut {from_} > {to}")

    def cut_client(self, *nodes: str) -> Strike:
        """Clients don't reach these nodes (by default all)."""
        lines = self._client_lines(nodes)
        return self._silence(lines, f"cut clients from {' '.join(nodes) or 'all'}")

    def lose_replies(self, *nodes: str) -> Strike:
        """What clients ask of these nodes (by default of all) is done, and they don't hear of it."""
        what = f"lose replies of {' '.join(nodes) or 'all'}"
        lines = self._client_lines(nodes)
        return self._strike(what, lambda id_: self._network.silence(id_, lines, ["downstream"]), self._mend)

    def slow(self, *nodes: str, latency_ms: int = 100, jitter_ms: int = 0) -> Strike:
        """Whatever goes to or from these nodes (by default all) comes later by so much, each way."""
        chosen = [self._known(node) for node in nodes] or list(self.nodes)
        lines = [line for line in self._network.peer_lines() if set(line.split(">")) & set(chosen)]
        lines += self._client_lines(chosen)
        return self._strike(
            f"slow {' '.join(nodes) or 'all'} {latency_ms} ms",
            lambda id_: self._network.toxic(id_, lines, "latency", latency=latency_ms, jitter=jitter_ms),
            self._mend,
        )

    def refuse_client(self, *nodes: str) -> Strike:
        """Connections of clients to these nodes (by default all) are closed, and new ones refused."""
        lines = self._client_lines(nodes)
        return self._strike(
            f"refuse clients of {' '.join(nodes) or 'all'}",
            lambda id_: self._network.refuse(lines),
            lambda id_: self._network.allow(lines),
        )

    # -- processes

    def pause(self, node: str) -> Strike:
        """SIGSTOP, until it is healed."""
        self._nodes.pause(self._known(node))
        return self._begun(f"pause {node}", lambda: self._nodes.resume(node))

    def kill(self, node: str) -> Strike:
        """SIGKILL; healed by starting it again."""
        self._nodes.kill(self._known(node))
        return self._begun(f"kill {node}", lambda: self._nodes.start(node))

    def kill_leader(self) -> str:
        """SIGKILL of the node that leads; returns its name. ``start`` it, or ``heal`` all."""
        name = self.leader()
        self.kill(name)
        return name

    def start(self, node: str) -> None:
        """Start a node that was killed here."""
        for strike in list(self.strikes.values()):
            if strike.what == f"kill {node}":
                strike.heal()
                return
        raise ChaosError(f"{node} was not killed here")

    # -- all

    def heal(self) -> None:
        """End every fault, last first. What one of them raises is raised when all have been tried."""
        with contextlib.ExitStack() as all_of_it:
            all_of_it.callback(lambda: self.run(self._network.heal_everything()))
            for strike in list(self.strikes.values()):
                all_of_it.callback(strike.heal)

    def _known(self, node: str) -> str:
        if node not in self.nodes:
            raise ChaosError(f"there is no node {node!r}; there are: {', '.join(self.nodes)}")
        return node

    def _client_lines(self, nodes: Sequence[str]) -> list[str]:
        return [f"{CLIENT}>{self._known(node)}" for node in nodes or self.nodes]

    def _silence(self, lines: list[str], what: str) -> Strike:
        return self._strike(what, lambda id_: self._network.silence(id_, lines), self._mend)

    async def _mend(self, id_: str) -> None:
        """The connections of a node that is paused or dead are closed first: it may not read."""
        idle = {node for node in self.nodes for what in ("pause", "kill") if self._is_on(f"{what} {node}")}
        lines = [*self._network.client_lines(), *self._network.peer_lines()]
        await self._network.heal(id_, [line for line in lines if idle.intersection(line.split(">"))])

    def _is_on(self, what: str) -> bool:
        return any(strike.what == what for strike in list(self.strikes.values()))

    def _strike(
        self,
        what: str,
        do: Callable[[str], Coroutine[Any, Any, None]],
        undo: Callable[[str], Coroutine[Any, Any, None]],
    ) -> Strike:
        id_ = f"x{next(self._numbers)}"
        strike = self._begun(what, lambda: self.run(undo(id_)), id_)
        try:
            self.run(do(id_))
        except BaseException:
            strike.heal()
            raise
        return strike

    def _begun(self, what: str, undo: Callable[[], None], id_: str = "") -> Strike:
        strike = Strike(self, id_ or f"x{next(self._numbers)}", what, undo)
        self.strikes[strike.id] = strike
        return strike
