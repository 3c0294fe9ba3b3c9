"""Links between members over TCP.

Links are directed. A node dials every peer and sends only on the connections that it dialled; it receives
only on those that it accepted. So each direction of each pair has its own connection, its own fate and, if
wanted, its own proxy, and "can I send?" never depends on who happened to dial first.

A dialled connection begins with a Hello that says who dials whom, of which cluster, in which life of the
process and on which attempt. The acceptor answers Welcome, and the link is up, or Refused, and closes. From
then on frames flow in one direction; only the acceptor's pongs come back.

A new connection of a peer replaces the one before it, of which nothing is read any more, not even what the
kernel had already received: late data of an old connection is how acknowledged entries get lost (S2). A
connection of the same life with an older attempt number is refused for the same reason.

With TLS both sides of a connection prove by a certificate which node they are (peer_tls.py), and there is a
connection only when its handshake has succeeded. Certificates that change concern new connections.

A connection that closes by itself is reported as such: its process has probably ended (see election.py). One
that is given up here (link.py) is not: silence is not the end of a process.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tenure_cluster.addresses import split_address
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.admission import Admission, Place, place_told
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.link import HELLO_TIMEOUT_S, Accepted, Dialled
from tenure_cluster.raft.membership import Membership
from tenure_cluster.raft.peer_tls import PeerTls, why_not
from tenure_cluster.tls_listener import TlsListener, why_refused

logger = logging.getLogger(__name__)

DIAL_TIMEOUT_S: Final = 2.0
BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
ACCEPTED_MAX: Final = 256
"""Connections that may be open at a time, those that have not yet said who they are among them."""
HANDSHAKES_MAX: Final = 128
"""TLS handshakes of strangers that may be under way at a time."""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long a stopping node waits until its peers have taken, over TLS, what was written to them."""
STRANGERS_REMEMBERED_MAX: Final = 1024
"""Addresses whose refusal has been logged once."""
REFUSALS_PER_STRANGER_MAX: Final = 8
"""Reasons that are logged for one address, each once."""


class TransportUser(Protocol):
    """All calls come from the event loop."""

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None: ...

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None: ...

    def on_linked(self, peer: str, up: bool) -> None:
        """The connection that this node dialled, on which it sends."""

    def on_heard_anew(self, peer: str, epoch: int) -> None:
        """A peer sends over a new connection from now on. Nothing more comes over the one before."""

    def on_removed(self, peer: str, why: str) -> None:
        """A peer refuses links of this node, since it has been removed from the cluster."""

    def on_gone(self, peer: str) -> None:
        """The connection on which this peer sent has been closed by the other side."""


class Transport:
    """The links of one member. `peers`: where the configuration says that each other member is dialled;
    `address`: where this node is dialled."""

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
        tls: PeerTls | None = None,
        knows: tuple[int, str] = (0, ""),
        address: str = "",
    ) -> None:
        self.user = user
        self.frame_bytes_max = frame_bytes_max
        self.outbox_bytes_max = outbox_bytes_max
        self.accepted: dict[Accepted, None] = {}
        self.admission = Admission(
            node_id=node_id,
            cluster_id=cluster_id,
            incarnation=int(clock.random() * (1 << 53)),
            peers=peers,
            address=address,
            knows=knows,
            tls=tls is not None,
            ask_about_strangers=self._ask_about_strangers,
        )
        self._peers = {peer: split_address(where) for peer, where in peers.items()}
        """Whom to dial, and where."""
        self._listen = split_address(listen, any_port=True)
        self._clock = clock
        self._links: dict[str, Dialled] = {}
        self._inbound: dict[str, Accepted] = {}
        self.on_refused: Callable[[str, str], None] | None = None
        self._epoch = int(clock.random() * (1 << 40))
        """Of the last connection dialled. No other life of this node has had one of the same number."""
        self._diallers: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._wake: dict[str, asyncio.Event] = {}
        self._server: asyncio.Server | TlsListener | None = None
        self._tls = tls
        self._strangers: dict[str, set[str]] = {}
        self._dial_faults: dict[str, str] = {}
        """Why the last connection to a peer failed by its TLS, told once while it stays the same."""
        self._paused = False
        self._stopped = False

    # -- life

    async def start(self) -> None:
        """Listen, and begin to dial. Raises OSError if the address cannot be had."""
        host, port = self._listen
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._server = await loop.create_server(lambda: Accepted(self), host, port, backlog=ACCEPTED_MAX)
        else:
            self._server = TlsListener(
                lambda: Accepted(self),
                self._tls.accepting,
                handshake_timeout_s=HELLO_TIMEOUT_S,
                handshakes_max=HANDSHAKES_MAX,
                on_refused=self.log_stranger,
            )
            await self._server.listen(host, port)
        self._started = True
        self._dial_all()

    async def stop(self) -> None:
        """Flush what has been written and close all connections. Idempotent."""
        self._stopped = True
        for link in list(self._links.values()):
            link.flush()
            if link.transport is not None:
                link.transport.close()
        if self._tls is not None and self._links:
            # A close takes an exchange with the peer, which may be gone.
            closing = {link.closed for link in self._links.values()}
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
            self.cut()
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
        diallers = list(self._diallers.values())
        self._diallers.clear()
        for task in diallers:
            task.cancel()
        await asyncio.gather(*diallers, return_exceptions=True)
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

    # -- members

    def set_members(self, current: Membership, committed: Membership) -> None:
        """Keep links to the members of both, and to guests; see admission.py."""
        self._set_peers(self.admission.set_members(current, committed))
        for connection in [c for peer, c in self._inbound.items() if peer in self.admission.removed]:
            connection.abort()

    def _set_peers(self, peers: dict[str, Place]) -> None:
        before, self._peers = self._peers, peers
        for peer, where in before.items():
            if peers.get(peer) == where:
                continue
            link = self._links.get(peer)
            if peer not in peers and (dialler := self._diallers.pop(peer, None)) is not None:
                dialler.cancel()
            if link is not None:
                # What has been written may be the answer for which a removed node waits.
                link.close()
        if self._started and not self._stopped:
            self._dial_all()

    def _dial_all(self) -> None:
        loop = asyncio.get_running_loop()
        for peer in self._peers:
            if peer not in self._diallers:
                self._wake[peer] = asyncio.Event()
                self._diallers[peer] = loop.create_task(self._dial_for_ever(peer), name=f"dial {peer}")

    def told_removed(self, peer: str, why: str) -> None:
        """A peer says that this node has been."""
        if not self._stopped:
            self.user.on_removed(peer, why)

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
                elif self._tls is not None and link.was_lost:
                    # With TLS 1.3 the peer judges this node's certificate when the dialler is done already,
                    # and asyncio sends no alert.
                    self.dial_failed(peer, "it ended the connection; its log says why")
            self._wake[peer].clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_s * (1 + self._clock.random())):
                    await self._wake[peer].wait()
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _dial(self, peer: str) -> Dialled | None:
        if self._tls is not None and self._stopped:
            return None  # links are being closed, which takes a while
        host, port = self._peers[peer]
        self._epoch += 1
        link = Dialled(self, peer, self._epoch)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                context = None if self._tls is None else self._tls.dialling()
                loop = asyncio.get_running_loop()
                if context is None:
                    await loop.create_connection(lambda: link, host, port)
                else:
                    await loop.create_connection(lambda: link, host, port, ssl=context)
        except (OSError, TimeoutError) as error:
            if isinstance(error, ssl.SSLError):
                self.dial_failed(peer, why_refused(error))
            elif isinstance(error, socket.gaierror):
                self.dial_failed(peer, f"{host} can't be found: {error.strerror}")
            link.abort()
            return None
        return link

    def why_not_reached(self, peer: str, transport: asyncio.Transport) -> str | None:
        """Why the node that was dialled is another than meant, as far as it has shown."""
        return None if self._tls is None else why_not(peer, transport)

    def dial_failed(self, peer: str, why: str) -> None:
        if self._dial_faults.get(peer) != why and not self._stopped:
            self._dial_faults[peer] = why
            logger.warning("no link to %s: %s (said once while it stays so)", peer, why)

    def refused(self, peer: str, why: str) -> None:
        if self.on_refused is not None and not self._stopped:
            self.on_refused(peer, why)

    def link_changed(self, link: Dialled) -> None:
        if link.up:
            self._links[link.peer] = link
            self._dial_faults.pop(link.peer, None)
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
        """Whole frames; dropped if there is no link. They leave at the end of this turn of the loop."""
        link = self._links.get(peer)
        if link is not None and not self._stopped:
            link.write_soon(data)

    def put(self, peer: str, data: bytes) -> None:
        """As `send`, but they leave with the next `flush`."""
        link = self._links.get(peer)
        if link is not None and not self._stopped:
            link.write(data)

    def flush(self) -> None:
        """What was put leaves now."""
        for link in self._links.values():
            link.flush()

    def has_room(self, peer: str, size: int) -> bool:
        """Whether something that may be refused still fits: half of the outbox is kept for consensus."""
        link = self._links.get(peer)
        return link is not None and link.outbox_bytes + size <= self.outbox_bytes_max // 2

    # -- accepting

    def admits(self, connection: Accepted) -> bool:
        """L7: strangers cannot take all the descriptors of the process, nor the place of a member: who has
        not greeted for longest makes room."""
        if self._stopped:
            return False
        if len(self.accepted) >= ACCEPTED_MAX:
            silent = next((each for each in self.accepted if each.greeting is None), None)
            if silent is None:
                return False
            del self.accepted[silent]
            silent.fail("made room for another, having said nothing: too many connections")
        self.accepted[connection] = None
        return True

    def _ask_about_strangers(self) -> None:
        admission = self.admission
        peer = admission.vouching.whom_to_ask(admission.known & self._links.keys(), self._clock.monotonic())
        if peer is not None:
            self._links[peer].close()

    def log_stranger(self, address: str, why: str) -> None:
        host = address.rpartition(":")[0]
        if host not in self._strangers and len(self._strangers) >= STRANGERS_REMEMBERED_MAX:
            return
        told = self._strangers.setdefault(host, set())
        if why not in told and len(told) < REFUSALS_PER_STRANGER_MAX:
            told.add(why)
            logger.warning("connection from %s refused: %s (said once for each address)", address, why)

    def welcomed(self, connection: Accepted) -> None:
        greeting = connection.greeting
        assert greeting is not None
        peer = greeting.node_id
        old = self._inbound.get(peer)
        place = place_told(greeting)
        dialled = peer in self._peers or place is None
        connection.double = self.admission.let_in(greeting, is_dialled=dialled)
        if not dialled and place is not None:
            self._set_peers({**self._peers, peer: place})
        self._inbound[peer] = connection
        if old is not None:
            old.abort()
        if self._paused and connection.transport is not None:
            connection.transport.pause_reading()
        self.user.on_heard_anew(peer, greeting.epoch)
        if peer not in self._links and peer in self._wake:
            self._wake[peer].set()

    def proved_double(self, peer: str, incarnation: int) -> None:
        logger.error("two processes run as %s: the later one is refused from now on", peer)
        self.admission.refuse_double(peer, incarnation)

    def is_current(self, connection: Accepted) -> bool:
        greeting = connection.greeting
        return greeting is not None and self._inbound.get(greeting.node_id) is connection

    def received(self, hello: wire.Hello, message: wire.Payload | wire.Consensus, size: int) -> None:
        if isinstance(message, wire.Payload):
            self.user.on_payload(hello.node_id, hello.epoch, message.body)
        else:
            self.user.on_consensus(hello.node_id, message, size)

    def lost(self, connection: Accepted, *, by_peer: bool) -> None:
        self.accepted.pop(connection, None)
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
