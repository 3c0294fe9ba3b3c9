"""Simulated connections over directed links.

A connection is two one-way streams. Bytes arrive in order, after the link's delay, in slices of any size. A
link that is cut holds its bytes back (as TCP does while it retransmits) until it is mended or the
connection is reset; a link that is clogged delivers late. The two directions of a pair are separate links.
"""

import asyncio
import collections
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenure_chaos.sim.loop import Process, VirtualLoop

WORLD = contextvars.Context()
"""In which no process runs: what happens here happens whoever is paused or dead."""

REPEATED_MAX = 4
"""Writes of a connection that can arrive a second time."""


@dataclass
class Link:
    """The way from one host to another."""

    delay_min_s: float = 0.0001
    delay_max_s: float = 0.001
    cut: bool = False
    slow_s: float = 0.0
    tears_next: bool = False
    """The next write arrives in part, and its connection breaks."""

    def delay_s(self, rng: random.Random) -> float:
        return self.delay_min_s + (self.delay_max_s - self.delay_min_s) * rng.random() + self.slow_s


class Endpoint(asyncio.Transport):
    """One end of a connection: what a protocol writes to."""

    def __init__(self, network: "Network", owner: Process, local: str, remote: str) -> None:
        super().__init__()
        self._network = network
        self.owner = owner
        self._local, self._remote = local, remote
        self._link = network.link(local, remote)
        self.protocol: Any = None
        self.peer: Endpoint | None = None
        self.open = True
        self._closing = False
        self._held: list[bytes | None] = []
        self._written: collections.deque[bytes] = collections.deque(maxlen=REPEATED_MAX)
        self._last_arrival = 0.0
        self._reading = True
        self._unread: list[bytes] = []

    # -- what the owner calls

    def write(self, data: Any) -> None:
        if self.open and not self._closing and data:
            data = bytes(data)
            self._written.append(data)
            self._network.carry(self, data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self.open and not self._closing:
            self._closing = True
            self._network.carry(self, None)
            self._network.later(self, 0.0, self.lost, None)

    def abort(self) -> None:
        if self.open:
            self._closing = True
            self._network.carry(self, None)
            self._network.later(self, 0.0, self.lost, None)

    def is_closing(self) -> bool:
        return self._closing or not self.open

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self.arrive(data)

    def get_write_buffer_size(self) -> int:
        return sum([len(data) for data in self._held if data is not None]) if self._held else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Flow control is the owner's: it reads get_write_buffer_size()."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self._remote, 0), "sockname": (self._local, 0)}.get(name, default)

    # -- what the network calls

    def arrive(self, data: bytes | None) -> None:
        if not self.open or self._closing:
            return
        if data is None:
            self._closing = True
            self.lost(None)
        elif not self._reading:
            self._unread.append(data)
        elif not self._network.slices_now(data):
            self.protocol.data_received(data)
        else:
            for piece in self._network.slices(data):
                if not self.open or self._closing:
                    return
                self.protocol.data_received(piece)

    def lost(self, error: Exception | None) -> None:
        if self.open:
            self.open = False
            self._network.forget(self)
            self.protocol.connection_lost(error)


class Listener(asyncio.AbstractServer):
    """A listening address of one process."""

    def __init__(self, network: "Network", owner: Process, port: int, factory: Callable[[], Any]) -> None:
        self._network = network
        self.owner, self.port, self.factory = owner, port, factory

    def close(self) -> None:
        if self._network.listeners.get(self.port) is self:
            del self._network.listeners[self.port]

    async def wait_closed(self) -> None:
        return None

    async def start_serving(self) -> None:
        """It serves from the moment it was made."""

    async def serve_forever(self) -> None:
        await asyncio.Event().wait()

    def is_serving(self) -> bool:
        return self._network.listeners.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class Network:
    """All links and connections of a world. Hosts are named by their processes' names; ports are global."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self._rng = rng
        self._links: dict[tuple[str, str], Link] = {}
        self.listeners: dict[int, Listener] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.slicing = 0.05
        self.usual_delay_s = (Link.delay_min_s, Link.delay_max_s)
        """Shortest and longest delay of a link that nothing is wrong with."""

    # -- links

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(*self.usual_delay_s)
        return found

    def cut(self, source: str, target: str) -> None:
        self.link(source, target).cut = True

    def mend(self, source: str, target: str) -> None:
        self.link(source, target).cut = False
        for endpoint in self.between(source, target):
            held, endpoint._held = endpoint._held, []
            for data in held:
                self.carry(endpoint, data)

    def mend_all(self) -> None:
        for link in self._links.values():
            link.slow_s = 0.0
            link.tears_next = False
        for source, target in list(self._links):
            self.mend(source, target)

    def between(self, source: str, target: str) -> list[Endpoint]:
        """The ends at ``source`` of its connections with ``target``."""
        return [end for end in self.endpoints if (end._local, end._remote) == (source, target)]

    def reset(self, one: str, other: str) -> None:
        """Break every connection of the pair at both ends; what was on its way is gone."""
        for endpoint in [*self.between(one, other), *self.between(other, one)]:
            endpoint._closing = True
            self.later(endpoint, 0.0, endpoint.lost, ConnectionResetError("reset"))

    def lose_at_one_end(self, source: str, target: str, repeat_after_s: float | None = None) -> int:
        """``source`` takes its connections with ``target`` for lost. ``target`` is not told: what was on its
        way to it still arrives, whatever new connection there is by then; and the last writes once more, if
        wanted, so much later. Answers how many connections they were.
        """
        ends = self.between(source, target)
        for endpoint in ends:
            self.later(endpoint, 0.0, endpoint.lost, ConnectionResetError("lost at one end"))
            if repeat_after_s is not None:
                for data in self._last_writes(endpoint):
                    self.loop.call_later(repeat_after_s, self.carry, endpoint, data, context=WORLD)
        return len(ends)

    def _last_writes(self, endpoint: Endpoint) -> list[bytes]:
        return list(endpoint._written)[-self._rng.randint(1, REPEATED_MAX) :]

    def tear_next(self, source: str, target: str) -> None:
        """The next write of ``source`` to ``target`` arrives in part; then all connections of the pair break,
        at both ends.
        """
        self.link(source, target).tears_next = True

    def repeat_and_reset(self, source: str, target: str) -> int:
        """The last writes of ``source`` to ``target``, in each connection, arrive once more on that very
        connection, and then it breaks at both ends: the worst of a relay that is not sure of what it has
        passed on. Answers how many writes they were.
        """
        count = 0
        for endpoint in self.between(source, target):
            again = self._last_writes(endpoint)
            count += len(again)
            for data in again:
                self.carry(endpoint, data)
            endpoint._closing = True
            assert endpoint.peer is not None
            for end in (endpoint, endpoint.peer):
                error = ConnectionResetError("reset after a repetition")
                self._after_arrivals(endpoint, end.owner.context, end.lost, error)
        return count

    def process_died(self, process: Process) -> None:
        """The kernel of a killed process closes its sockets: the peers are told, unless the way there is
        cut.
        """
        for listener in [item for item in self.listeners.values() if item.owner is process]:
            listener.close()
        for endpoint in [item for item in self.endpoints if item.owner is process]:
            self.carry(endpoint, None)
            endpoint.open = False
            self.forget(endpoint)

    # -- what loops and endpoints call

    def listen(self, owner: Process, host: str, port: int, factory: Callable[[], Any]) -> Listener:
        if port in self.listeners:
            raise OSError(98, f"address {host}:{port} is in use")
        listener = self.listeners[port] = Listener(self, owner, port, factory)
        return listener

    async def dial(self, owner: Process, host: str, port: int, factory: Callable[[], Any]) -> tuple[Any, Any]:
        listener = self.listeners.get(port)
        target = listener.owner.name if listener is not None else ""
        there, back = self.link(owner.name, target), self.link(target, owner.name)
        await asyncio.sleep(there.delay_s(self._rng) + back.delay_s(self._rng))
        listener = self.listeners.get(port)
        if listener is None or not listener.owner.alive:
            raise ConnectionRefusedError(111, f"nobody listens on port {port}")
        if there.cut or back.cut:
            await asyncio.sleep(1.0)
            raise TimeoutError(110, f"port {port} does not answer")
        near = Endpoint(self, owner, owner.name, target)
        far = Endpoint(self, listener.owner, target, owner.name)
        near.peer, far.peer = far, near
        self.endpoints[near] = self.endpoints[far] = None
        far.protocol = listener.factory()
        near.protocol = factory()
        self.later(far, 0.0, far.protocol.connection_made, far)
        near.protocol.connection_made(near)
        return near, near.protocol

    def carry(self, source: Endpoint, data: bytes | None) -> None:
        """Take bytes (None: the end) from one endpoint on their way to the other."""
        link, target = source._link, source.peer
        if link.cut:
            source._held.append(data)
            return
        assert target is not None
        if link.tears_next and data is not None and len(data) > 1:
            link.tears_next = False
            self._tear(source, data)
            return
        arrival_s = max(source._last_arrival, self.loop.now_s + link.delay_s(self._rng))
        source._last_arrival = arrival_s
        self.loop.call_at(arrival_s, target.arrive, data, context=target.owner.context)

    def _tear(self, source: Endpoint, data: bytes) -> None:
        self.carry(source, data[: self._rng.randrange(1, len(data))])
        source._closing = True
        self._after_arrivals(source, WORLD, self.reset, source._local, source._remote)

    def _after_arrivals(
        self, source: Endpoint, context: contextvars.Context, call: Callable[..., Any], *args: Any
    ) -> None:
        """Once all that ``source`` has written has arrived, unless its link is cut."""
        when_s = max(source._last_arrival, self.loop.now_s)
        self.loop.call_at(when_s, call, *args, context=context)

    def later(self, endpoint: Endpoint, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        self.loop.call_later(delay_s, call, *args, context=endpoint.owner.context)

    def forget(self, endpoint: Endpoint) -> None:
        self.endpoints.pop(endpoint, None)

    def slices_now(self, data: bytes) -> bool:
        """Mostly not; sometimes, since no reader may rely on the bounds of a write."""
        return self._rng.random() < self.slicing and len(data) > 1

    def slices(self, data: bytes) -> list[bytes]:
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]
