"""Accepts connections with TLS: a protocol is made, and hears of its connection, only after the handshake.

asyncio can listen with TLS by itself, but then its one context is fixed while it listens, a handshake that
fails is told to nobody, and nothing bounds how many are under way. Here connections are accepted one by one.
Every handshake asks for the context anew, so that certificates can change meanwhile; a refusal is reported
with the address that it came from; and when too many handshakes are under way, those that last longest make
room.
"""

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

SHUTDOWN_TIMEOUT_S: Final = 5.0
"""How long the other side may take to answer that a connection is being closed."""
ACCEPTS_PER_TURN_MAX: Final = 16
"""Connections accepted before everything else has its turn: each costs about a millisecond of handshake."""
FAIR_TIME_S: Final = 1.0
"""A handshake that has had this long makes room for another, when there is none."""
PAUSE_S: Final = 1.0
"""How long nothing is accepted after that failed: the process has no descriptors left, or no memory."""

_NOT_TLS: Final = frozenset(
    {
        "BAD_RECORD_TYPE",
        "HTTPS_PROXY_REQUEST",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
"""OpenSSL's reasons for bytes that are no TLS at all."""

_log = logging.getLogger("tenure.tls")


class TlsListener:
    """Listens on one address. `factory` makes the protocol of a connection whose handshake succeeded;
    `context` is asked once for each handshake; `on_refused` hears the address and why."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        *,
        handshake_timeout_s: float,
        handshakes_max: int,
        on_refused: Callable[[str, str], None],
    ) -> None:
        self.sockets: list[socket.socket] = []
        self._factory = factory
        self._context = context
        self._handshake_timeout_s = handshake_timeout_s
        self._handshakes_max = handshakes_max
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], _Caller] = {}
        """Those under way, the oldest first."""
        self._ended = asyncio.Event()

    async def listen(self, host: str, port: int, *, backlog: int = 1_024) -> None:
        """Begin to accept. Raises OSError if the address cannot be had."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
                self.sockets.append(_bound(family, address, backlog))
        except BaseException:
            self.close()
            raise
        self._accepting = [self._loop.create_task(self._accept(sock)) for sock in self.sockets]
        for task in self._accepting:
            task.add_done_callback(self._told)

    def close(self) -> None:
        """Accept nothing more, and break the handshakes that are under way. Idempotent."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for sock in self.sockets:
            if not self._loop.is_closed():
                self._loop.remove_reader(sock)
            sock.close()
        self.sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        for number in itertools.count(1):
            await self._room()
            try:
                connection, address = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue  # it has gone before it was accepted
            except OSError as error:
                _log.error("no connection can be accepted for now: %s", error.strerror)
                await asyncio.sleep(PAUSE_S)
                continue
            caller = _Caller(connection, f"{address[0]}:{address[1]}", self._loop.time())
            task = self._loop.create_task(self._handshake(caller))
            self._handshakes[task] = caller
            task.add_done_callback(self._done)
            if number % ACCEPTS_PER_TURN_MAX == 0:
                await asyncio.sleep(0)

    def _told(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("no connection is accepted any more", exc_info=error)

    async def _room(self) -> None:
        """Wait until one more handshake may begin."""
        while len(self._handshakes) >= self._handshakes_max:
            oldest, caller = next(iter(self._handshakes.items()))
            left = caller.since_s + FAIR_TIME_S - self._loop.time()
            if left <= 0:
                self._on_refused(caller.address, "its handshake takes too long while others wait")
                oldest.cancel()
                left = FAIR_TIME_S
            self._ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._ended.wait()

    def _done(self, task: asyncio.Task[None]) -> None:
        caller = self._handshakes.pop(task)
        self._ended.set()
        if task.cancelled():
            caller.connection.close()  # nobody has, if the handshake had not begun
        elif (error := task.exception()) is not None:
            _log.error("a connection failed as it was made", exc_info=error)

    async def _handshake(self, caller: "_Caller") -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                caller.connection,
                ssl=self._context(),
                ssl_handshake_timeout=self._handshake_timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            # Who connects and leaves again, as a port scan does or a health check, is not worth a word.
            if isinstance(error, ssl.SSLError | ConnectionAbortedError):
                self._on_refused(caller.address, why_refused(error))


class _Caller(NamedTuple):
    connection: socket.socket
    address: str
    since_s: float


def _bound(family: socket.AddressFamily, address: tuple[object, ...], backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def why_refused(error: OSError) -> str:
    """The fault of a handshake in words, of which either side may be the reader."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "the connection ended"
        if reason in _NOT_TLS:
            return "it does not speak TLS"
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "it shows no certificate"
        _, alert, what = reason.partition("_ALERT_")
        if alert:
            return f"it does not accept the certificate of this side: {what.replace('_', ' ').lower()}"
        return f"TLS failed: {reason.replace('_', ' ').lower()}"
    if isinstance(error, ConnectionAbortedError):
        return "its handshake takes too long"
    return error.strerror or str(error)
