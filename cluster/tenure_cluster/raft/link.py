"""The two ends of one connection between members: framing, greeting, pings.

transport.py says what a link is; here is what happens on its bytes. Frames are length-prefixed and bounded,
the first one to much less, since whoever sends it is not known yet.

Half-open connections are found by counting, not by timing, so that a process that was paused itself accuses
nobody: a dialler gives up after three pings without a pong, an acceptor after five seconds of its own timer
without a frame.
"""

import asyncio
import logging
import struct
from typing import Final, Protocol, cast

import msgspec

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.admission import Admission

logger = logging.getLogger(__name__)

HELLO_BYTES_MAX: Final = 16_384
HELLO_TIMEOUT_S: Final = 3.0
PING_INTERVAL_S: Final = 1.0
UNANSWERED_PINGS_MAX: Final = 3
SILENT_INTERVALS_MAX: Final = 5

_LENGTH = struct.Struct("<I")


def frame(message: wire.Inbound | wire.Greeting | wire.Answer) -> bytes:
    body = wire.encode(message)
    return _LENGTH.pack(len(body)) + body


class DialledOwner(Protocol):
    """What the sending end needs of its transport."""

    @property
    def admission(self) -> Admission: ...

    @property
    def outbox_bytes_max(self) -> int: ...

    def why_not_reached(self, peer: str, transport: asyncio.Transport) -> str | None: ...

    def dial_failed(self, peer: str, why: str) -> None: ...

    def refused(self, peer: str, why: str) -> None:
        """The node that was dialled does not want this one."""

    def told_removed(self, peer: str, why: str) -> None: ...

    def link_changed(self, link: "Dialled") -> None:
        """The link is up, or it was and is not any more."""


class AcceptedOwner(Protocol):
    """What the receiving end needs of its transport."""

    @property
    def admission(self) -> Admission: ...

    @property
    def frame_bytes_max(self) -> int: ...

    def admits(self, connection: "Accepted") -> bool: ...

    def log_stranger(self, address: str, why: str) -> None: ...

    def welcomed(self, connection: "Accepted") -> None: ...

    def proved_double(self, peer: str, incarnation: int) -> None: ...

    def is_current(self, connection: "Accepted") -> bool:
        """Whether this is the youngest connection of its peer."""

    def received(self, hello: wire.Hello, message: wire.Payload | wire.Consensus, size: int) -> None: ...

    def lost(self, connection: "Accepted", *, by_peer: bool) -> None: ...


class Framed(asyncio.Protocol):
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
        if not buffer and len(data) >= _LENGTH.size:
            # Mostly what comes is one whole frame.
            (length,) = _LENGTH.unpack_from(data)
            if len(data) == _LENGTH.size + length and length <= self.frame_bytes_max:
                self._take(bytes(memoryview(data)[_LENGTH.size :]))
                return
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
            if not self._take(body):
                return
        del buffer[:position]

    def _take(self, body: bytes) -> bool:
        """Whether to go on with the next frame."""
        try:
            self.frame_received(body)
        except (msgspec.DecodeError, RecursionError) as error:
            self.fail(f"a frame that is not of this protocol: {error}")
            return False
        return self.is_open

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


class Dialled(Framed):
    """The sending end."""

    def __init__(self, owner: DialledOwner, peer: str, epoch: int) -> None:
        super().__init__(HELLO_BYTES_MAX)
        self.peer = peer
        self.epoch = epoch
        self.up = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self.was_welcomed = False
        self.was_lost = False
        """The other side has ended the connection."""
        self._given_up = False
        self._pings = 0
        self._pongs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        reason = self._owner.why_not_reached(self.peer, self.transport)
        if reason is not None:
            self._owner.dial_failed(self.peer, reason)
            self.abort()
            return
        self.transport.write(frame(self._owner.admission.hello(self.peer, self.epoch)))
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self.fail, "no answer to Hello")

    def frame_received(self, body: bytes) -> None:
        answer = wire.decode_answer(body)
        if isinstance(answer, wire.Pong):
            self._pongs = max(self._pongs, min(answer.count, self._pings))
        elif isinstance(answer, wire.Refused):
            self._owner.refused(self.peer, answer.reason)
            self._owner.dial_failed(self.peer, f"refused: {answer.reason}")
            self.abort()
            if answer.removed:
                self._owner.told_removed(self.peer, answer.reason)
        elif not self.up:
            self._owner.admission.told_members(self.peer, answer.members, answer.members_index)
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
        self.flush()
        self._timer = asyncio.get_running_loop().call_later(PING_INTERVAL_S, self._ping)

    def write(self, data: bytes) -> None:
        """Leaves with the next `flush`, together with all else that is written until then."""
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self.outbox_bytes > self._owner.outbox_bytes_max:
            self.fail(f"more than {self._owner.outbox_bytes_max} bytes wait to be sent")

    def flush(self) -> None:
        unwritten = self._unwritten
        if unwritten:
            data = unwritten[0] if len(unwritten) == 1 else b"".join(unwritten)
            self._unwritten, self._unwritten_bytes = [], 0
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Leaves at the end of this turn of the loop, together with all else that is written until then."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self.flush)
        self.write(data)

    @property
    def outbox_bytes(self) -> int:
        buffered = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return buffered + self._unwritten_bytes

    def close(self) -> None:
        """Close it when all that was written has left."""
        self._given_up = True
        self.flush()
        if self.transport is not None:
            self.transport.close()

    def fail(self, why: str) -> None:
        if self.is_open:
            logger.warning("link to %s dropped: %s", self.peer, why)
        self.abort()

    def abort(self) -> None:
        self._given_up = True
        self._unwritten.clear()
        self._unwritten_bytes = 0
        super().abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.was_lost = not self._given_up
        was_up, self.up = self.up, False
        if not self.closed.done():
            self.closed.set_result(None)
        if was_up:
            self._owner.link_changed(self)


class Accepted(Framed):
    """The receiving end."""

    def __init__(self, owner: AcceptedOwner) -> None:
        super().__init__(HELLO_BYTES_MAX)
        self.greeting: wire.Hello | None = None
        self.double: int | None = None
        """The life of another process of the same node, if the next frame proves that this one lives too."""
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
        if self._aborted:
            return  # refused already: over TLS a close takes a while, and the peer may have more to say
        if self.greeting is None:
            self._greeted(wire.decode_greeting(body))
            return
        if not self._owner.is_current(self):
            self.abort()
            return
        message = wire.decode_inbound(body)
        if self.double is not None:
            self._owner.proved_double(self.greeting.node_id, self.double)
            self.double = None
        if isinstance(message, wire.Ping):
            assert self.transport is not None
            self.transport.write(frame(wire.Pong(message.count)))
        else:
            self._owner.received(self.greeting, message, len(body))

    def _greeted(self, hello: wire.Hello) -> None:
        assert self.transport is not None
        reason = self._owner.admission.why_refuse(hello, self.transport)
        if reason is not None:
            self._owner.log_stranger(self.address, reason)
            self.transport.write(frame(self._owner.admission.refusal(hello, reason)))
            self._aborted = True
            self.transport.close()
            return
        self.greeting = hello
        self.frame_bytes_max = self._owner.frame_bytes_max
        self.transport.write(frame(self._owner.admission.welcome()))
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
        self._owner.lost(self, by_peer=not self._aborted)
