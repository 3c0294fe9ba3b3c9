"""Links between members over TCP.

Links are directed. A node dials every peer and sends only on the connections that it dialled; it receives
only on those that it accepted. So each direction of each pair has its own connection, its own fate and, if
wanted, its own proxy, and "can I send?" never depends on who happened to dial first.

A dialled connection begins with a Hello that says who dials whom, of which cluster, in which life of the
process and on which attempt. The acceptor answers Welcome, and the link is up, or Refused, and closes. From
then on frames flow in one direction; only the acceptor's pongs come back. Frames are length-prefixed and
bounded, the first one to much less, since whoever sends it is not known yet.

A new connection of a peer replaces the one before it, of which nothing is read any more, not even what the
kernel had already received: late data of an old connection is how acknowledged entries get lost (S2). A
connection of the same life with an older attempt number is refused for the same reason.

Half-open connections are found by counting, not by timing, so that a process that was paused itself accuses
nobody: a dialler gives up after three pings without a pong, an acceptor after five seconds of its own timer
without a frame. A connection that closes by itself is reported as such: its process has probably ended (see
election.py).
"""

import asyncio
import contextlib
import logging
import struct
from collections.abc import Mapping
from typing import Final, Protocol, cast

import msgspec

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.clock import Clock

logger = logging.getLogger(__name__)

HELLO_BYTES_MAX: Final = 1024
DIAL_TIMEOUT_S: Final = 2.0
HELLO_TIMEOUT_S: Final = 3.0
BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
PING_INTERVAL_S: Final = 1.0
UNANSWERED_PINGS_MAX: Final = 3
SILENT_INTERVALS_MAX: Final = 5
ACCEPTED_MAX: Final = 256
"""Connections that may be open at a time, those that have not yet said who they are among them."""
STRANGERS_REMEMBERED_MAX: Final = 1024
"""Addresses whose refusal has been logged once."""

_LENGTH = struct.Struct("<I")


def frame(message: wire.Inbound | wire.Greeting | wire.Answer) -> bytes:
    body = wire.encode(message)
    return _LENGTH.pack(len(body)) + body


class TransportUser(Protocol):
    """All calls come from the event loop."""

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None: ...

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None: ...

    def on_linked(self, peer: str, up: bool) -> None:
        """The connection that this node dialled, on which it sends."""

    def on_gone(self, peer: str) -> None:
        """The connection on which this peer sent has been closed by the other side."""


class _Framed(asyncio.Protocol):
    """Splits a stream into frames. A frame above the limit, or one that cannot be decoded, ends the
    connection."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.transport: asyncio.Transport | None = None
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if length > self.frame_bytes_max:
                self.fail(f"a frame of {length} bytes, at most {self.frame_bytes_max} are accepted")
                return
            end = position + _LENGTH.size + length
            if len(buffer) < end:
                break
            body = bytes(memoryview(buffer)[position + _LENGTH.size : end])
            position = end
            try:
                self.frame_received(body)
            except msgspec.DecodeError as error:
                self.fail(f"a frame that is not of this protocol: {error}")
                return
            if not self.is_open:
                return
        del buffer[:position]

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def frame_received(self, body: bytes) -> None:
        raise NotImplementedError

    def fail(self, why: str) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()


class _Dialled(_Framed):
    """The sending end."""

    def __init__(self, owner: "Transport", peer: str, epoch: int) -> None:
        super().__init__(HELLO_BYTES_MAX)
        self.peer = peer
        self.epoch = epoch
        self.up = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self.was_welcomed = False
        self._pings = 0
        self._pongs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.write(frame(self._owner.hello(self.peer, self.epoch)))
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self.fail, "no answer to Hello")

    def frame_received(self, body: bytes) -> None:
        answer = wire.decode_answer(body)
        if isinstance(answer, wire.Pong):
            self._pongs = max(self._pongs, min(answer.count, self._pings))
        elif isinstance(answer, wire.Refused):
            self.fail(f"refused: {answer.reason}")
        elif not self.up:
            self.up = self.was_welcomed = True
            self._ping()
            self._owner.link_changed(self)

    def _ping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pings - self._pongs >= UNANSWERED_PINGS_MAX:
            self.fail(f"{UNANSWERED_PINGS_MAX} pings without a pong")
            return
        self._pings += 1
        self.write(frame(wire.Ping(self._pings)))
        self._timer = asyncio.get_running_loop().call_later(PING_INTERVAL_S, self._ping)

    def write(self, data: bytes) -> None:
        """Leaves together with all else that is written in this turn of the loop."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self.outbox_bytes > self._owner.outbox_bytes_max:
            self.fail(f"more than {self._owner.outbox_bytes_max} bytes wait to be sent")

    def flush(self) -> None:
        data, self._unwritten, self._unwritten_bytes = b"".join(self._unwritten), [], 0
        if data and self.transport is not None and self.is_open:
            self.transport.write(data)

    @property
    def outbox_bytes(self) -> int:
        buffered = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return buffered + self._unwritten_bytes

    def fail(self, why: str) -> None:
        if self.is_open:
            logger.warning("link to %s dropped: %s", self.peer, why)
        self.abort()

    def abort(self) -> None:
        self._unwritten.clear()
        self._unwritten_bytes = 0
        super().abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        was_up, self.up = self.up, False
        if not self.closed.done():
            self.closed.set_result(None)
        if was_up:
            self._owner.link_changed(self)


class _Accepted(_Framed):
    """The receiving end."""

    def __init__(self, owner: "Transport") -> None:
        super().__init__(HELLO_BYTES_MAX)
        self.greeting: wire.Hello | None = None
        self._owner = owner
        self._silent_intervals = 0
        self._timer: asyncio.TimerHandle | None = None
        self._aborted = False

    @property
    def address(self) -> str:
        name = self.transport.get_extra_info("peername") if self.transport is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unknown"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._owner.admits(self):
            self.fail("too many connections")
            return
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self.fail, "no Hello")

    def frame_received(self, body: bytes) -> None:
        self._silent_intervals = 0
        if self.greeting is None:
            self._greeted(wire.decode_greeting(body))
            return
        if not self._owner.is_current(self):
            self.abort()
            return
        message = wire.decode_inbound(body)
        if isinstance(message, wire.Ping):
            assert self.transport is not None
            self.transport.write(frame(wire.Pong(message.count)))
        elif isinstance(message, wire.Payload):
            self._owner.user.on_payload(self.greeting.node_id, self.greeting.epoch, message.body)
        else:
            self._owner.user.on_consensus(self.greeting.node_id, message, len(body))

    def _greeted(self, hello: wire.Hello) -> None:
        assert self.transport is not None
        reason = self._owner.why_refuse(hello)
        if reason is not None:
            self._owner.log_stranger(self.address, reason)
            self.transport.write(frame(wire.Refused(reason)))
            self._aborted = True
            self.transport.close()
            return
        self.greeting = hello
        self.frame_bytes_max = self._owner.frame_bytes_max
        self.transport.write(frame(wire.Welcome(self._owner.incarnation)))
        self._watch()
        self._owner.welcomed(self)

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._silent_intervals >= SILENT_INTERVALS_MAX:
            self.fail(f"nothing heard for {SILENT_INTERVALS_MAX} s")
            return
        self._silent_intervals += 1
        self._timer = asyncio.get_running_loop().call_later(PING_INTERVAL_S, self._watch)

    def fail(self, why: str) -> None:
        if self.greeting is None:
            self._owner.log_stranger(self.address, why)
        else:
            logger.warning("connection of %s from %s dropped: %s", self.greeting.node_id, self.address, why)
        self.abort()

    def abort(self) -> None:
        self._aborted = True
        super().abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.accepted.pop(self, None)
        self._owner.inbound_lost(self, by_peer=not self._aborted)


class Transport:
    """The links of one member. `peers`: where to dial each other member."""

    def __init__(
        self,
        *,
        node_id: str,
        cluster_id: str,
        peers: Mapping[str, str],
        listen: str,
        clock: Clock,
        frame_bytes_max: int,
        outbox_bytes_max: int,
        user: TransportUser,
    ) -> None:
        self.user = user
        self.frame_bytes_max = frame_bytes_max
        self.outbox_bytes_max = outbox_bytes_max
        self.incarnation = int(clock.random() * (1 << 53))
        self.accepted: dict[_Accepted, None] = {}
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._peers = {peer: split_address(address) for peer, address in peers.items()}
        self._listen = split_address(listen)
        self._clock = clock
        self._links: dict[str, _Dialled] = {}
        self._inbound: dict[str, _Accepted] = {}
        self._greetings: dict[str, wire.Hello] = {}
        self._epoch = 0
        self._diallers: list[asyncio.Task[None]] = []
        self._wake: dict[str, asyncio.Event] = {}
        self._server: asyncio.Server | None = None
        self._strangers: set[str] = set()
        self._paused = False
        self._stopped = False

    # -- life

    async def start(self) -> None:
        """Listen, and begin to dial. Raises OSError if the address cannot be had."""
        host, port = self._listen
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Accepted(self), host, port)
        for peer in self._peers:
            self._wake[peer] = asyncio.Event()
            self._diallers.append(loop.create_task(self._dial_for_ever(peer), name=f"dial {peer}"))

    async def stop(self) -> None:
        """Flush what has been written and close all connections. Idempotent."""
        self._stopped = True
        for link in list(self._links.values()):
            link.flush()
            if link.transport is not None:
                link.transport.close()
        await self._end()

    async def abandon(self) -> None:
        """Drop all connections as they are: nothing more leaves this node."""
        self.cut()
        await self._end()

    def cut(self) -> None:
        """The part of `abandon` that takes effect at once."""
        self._stopped = True
        for link in list(self._links.values()):
            link.abort()
        for connection in list(self.accepted):
            connection.abort()

    async def _end(self) -> None:
        for task in self._diallers:
            task.cancel()
        await asyncio.gather(*self._diallers, return_exceptions=True)
        self._diallers.clear()
        for connection in list(self.accepted):
            connection.abort()
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(0)

    @property
    def port(self) -> int:
        """The port that was bound, of use when the configured one is 0."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    # -- dialling

    async def _dial_for_ever(self, peer: str) -> None:
        backoff_s = BACKOFF_MIN_S
        while True:
            link = await self._dial(peer)
            if link is not None:
                try:
                    await link.closed
                finally:
                    if link.is_open:
                        link.abort()
                if link.was_welcomed:
                    backoff_s = BACKOFF_MIN_S
            self._wake[peer].clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_s * (1 + self._clock.random())):
                    await self._wake[peer].wait()
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _dial(self, peer: str) -> _Dialled | None:
        host, port = self._peers[peer]
        self._epoch += 1
        link = _Dialled(self, peer, self._epoch)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        except (OSError, TimeoutError):
            link.abort()
            return None
        return link

    def hello(self, peer: str, epoch: int) -> wire.Hello:
        return wire.Hello(
            wire.PROTOCOL_VERSION, self._cluster_id, self._node_id, peer, self.incarnation, epoch
        )

    def link_changed(self, link: _Dialled) -> None:
        if link.up:
            self._links[link.peer] = link
        elif self._links.get(link.peer) is link:
            del self._links[link.peer]
        else:
            return
        if not self._stopped:
            self.user.on_linked(link.peer, link.up)

    # -- sending

    def linked(self) -> list[str]:
        return sorted(self._links)

    def epoch(self, peer: str) -> int | None:
        link = self._links.get(peer)
        return None if link is None else link.epoch

    def send(self, peer: str, data: bytes) -> None:
        """Whole frames; dropped if there is no link."""
        link = self._links.get(peer)
        if link is not None and not self._stopped:
            link.write(data)

    def has_room(self, peer: str, size: int) -> bool:
        """Whether something that may be refused still fits: half of the outbox is kept for consensus."""
        link = self._links.get(peer)
        return link is not None and link.outbox_bytes + size <= self.outbox_bytes_max // 2

    # -- accepting

    def admits(self, connection: _Accepted) -> bool:
        """L7: strangers cannot take all the descriptors of the process."""
        if self._stopped or len(self.accepted) >= ACCEPTED_MAX:
            return False
        self.accepted[connection] = None
        return True

    def why_refuse(self, hello: wire.Hello) -> str | None:
        if hello.version != wire.PROTOCOL_VERSION:
            return f"protocol version {hello.version}, this node speaks {wire.PROTOCOL_VERSION}"
        if hello.cluster_id != self._cluster_id:
            return f"cluster_id {hello.cluster_id!r}, this node is of {self._cluster_id!r}"
        if hello.node_id not in self._peers:
            return f"{hello.node_id!r} is not another member of this cluster"
        if hello.to != self._node_id:
            return f"meant for {hello.to!r}, this is {self._node_id!r}"
        known = self._greetings.get(hello.node_id)
        if known is not None and known.incarnation == hello.incarnation and known.epoch >= hello.epoch:
            return f"connection {hello.epoch} is not younger than {known.epoch}"
        return None

    def log_stranger(self, address: str, why: str) -> None:
        host = address.rpartition(":")[0]
        if host not in self._strangers and len(self._strangers) < STRANGERS_REMEMBERED_MAX:
            self._strangers.add(host)
            logger.warning("connection from %s refused: %s (said once for each address)", address, why)

    def welcomed(self, connection: _Accepted) -> None:
        assert connection.greeting is not None
        peer = connection.greeting.node_id
        old = self._inbound.get(peer)
        self._inbound[peer] = connection
        self._greetings[peer] = connection.greeting
        if old is not None:
            old.abort()
        if self._paused and connection.transport is not None:
            connection.transport.pause_reading()
        if peer not in self._links:
            self._wake[peer].set()

    def is_current(self, connection: _Accepted) -> bool:
        greeting = connection.greeting
        return greeting is not None and self._inbound.get(greeting.node_id) is connection

    def inbound_lost(self, connection: _Accepted, *, by_peer: bool) -> None:
        if self.is_current(connection):
            assert connection.greeting is not None
            peer = connection.greeting.node_id
            del self._inbound[peer]
            if by_peer and not self._stopped:
                self.user.on_gone(peer)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading from all peers, when more has come than can be worked off."""
        if paused == self._paused:
            return
        self._paused = paused
        for connection in self._inbound.values():
            if connection.is_open:
                assert connection.transport is not None
                if paused:
                    connection.transport.pause_reading()
                else:
                    connection.transport.resume_reading()


def split_address(address: str) -> tuple[str, int]:
    """ "host:port", also "[::1]:port". Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
