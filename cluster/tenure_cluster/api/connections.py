"""Connections of the HTTP front: how many there may be, and how long each may keep us waiting.

aiohttp bounds neither the number of connections nor the time in which a request must arrive. Here
every connection is in one of three states::

    idle     no byte of a request has come        closed after idle_timeout_ms
    reading  a request has begun to come          closed read_timeout_ms after its first byte
    busy     the handler has a whole request      bounded by the operation itself

Idle and reading connections stand in one ordered table each. A connection enters a table at its end
with the time of entry, so the longest waiting is always first: the sweep, once a second, looks only
at connections that are overdue, and ten thousand idle ones cost nothing.

When all places are taken a newcomer gets somebody's: first that of a stranger, whoever has been one for
longest, and then that of the longest idle connection of the tenant that has most. A stranger is who has sent
no whole request yet, or shown no valid credential where one is needed. So neither idle nor slow connections
keep anybody out, and whoever is known loses nothing to strangers between two requests, however many come.
Of tenants that are told apart none has more than SHARE of the places: beyond that its new connections take
the places of its own idle ones, and if there are none, serve one request that is short.

If nobody's place can be had, a few newcomers are let in beyond the most all the same, each for one request
that is short: a node that is full is asked by probes whether it lives, and is not to be ended for it.

Overdue connections are aborted, not closed: a close would wait for a peer that does not read.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias, cast

from aiohttp import web
from msgspec.structs import replace

from tenure_cluster.api.limits import (
    DROPS_PER_SWEEP_MAX,
    READ_BUFFER_BYTES,
    SHARE,
    SPARE_CONNECTIONS,
    SWEEP_PERIOD_S,
    HttpLimits,
)
from tenure_cluster.api.refusals import Kind, Refusals
from tenure_cluster.auth.gate import EVERYBODY, Caller

_log = logging.getLogger("tenure.api")

Place: TypeAlias = Literal["own", "spare", "none"]

_IDLE: Final = 0
_READING: Final = 1
_BUSY: Final = 2


class Connection(web.RequestHandler):
    """One client's connection. Its handler calls ``arrived`` and ``answered`` around its work."""

    __slots__ = (
        "_anybody",
        "_bytes_behind",
        "_share",
        "_state",
        "_table",
        "_wire",
        "beyond_share",
        "cancel_when_lost",
        "on_writable",
        "spare",
        "told_apart_by",
    )

    def __init__(self, server: "ConnectionServer", table: "ConnectionTable") -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast(logging.Logger, None),  # aiohttp takes None for "no access log"
            logger=_log,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            lingering_time=5.0,
        )
        self._table = table
        self._state: int | None = None
        self._bytes_behind = False
        self._share: str | None = None
        self.beyond_share = False
        """Whether its tenant has more connections than one may, and none of them is idle."""
        self.spare = False
        """Whether it was let in beyond the most, for one request that is short."""
        self._anybody: Caller | None = None
        self._wire: asyncio.Transport | None = None  # aiohttp forgets its own when it begins to close
        self.told_apart_by = ""
        """The tenant of the last request, or the address if nobody was let in."""
        self.cancel_when_lost: asyncio.Task[Any] | None = None
        """The task of a request that is of no use to anybody once this connection is gone."""
        self.on_writable: Callable[[], None] | None = None
        """Called when the client has taken what was written, after writing was paused."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)
        place = self._table.admit(self.origin)
        if place != "none":
            self.spare = place == "spare"
            self._state = _IDLE
            self._table.idle[self] = self._loop.time()
            self._table.strangers[self] = None
            super().connection_made(transport)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._state is not None:
            self._table.open -= 1
            self._table.idle.pop(self, None)
            self._table.reading.pop(self, None)
            self._table.leave(self, self._share)
            self._state = None
        self._wire = None
        if self.cancel_when_lost is not None:
            self.cancel_when_lost.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp looks again at what it has
            pass
        elif self._state is _IDLE:
            self._table.idle.pop(self, None)
            self._table.reading[self] = self._loop.time()
            self._state = _READING
        elif self._state is _BUSY:
            self._bytes_behind = True
        super().data_received(data)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def arrived(self) -> None:
        """The request that is being handled is here, head and body."""
        if self._state is _READING:
            self._table.reading.pop(self, None)
        elif self._state is _IDLE:  # it had come behind the one before
            self._table.idle.pop(self, None)
        else:
            return
        self._state = _BUSY
        self._bytes_behind = False
        if self._share is None and not self._table.told_apart:
            self.proved("")

    def proved(self, tenant: str) -> None:
        """It is no stranger's: a credential of the tenant was shown, or none is needed."""
        if self._share != tenant and self._state is not None:
            self._table.leave(self, self._share)
            self._share = tenant
            self.beyond_share = not self._table.join(tenant)

    @property
    def share(self) -> str | None:
        """The tenant that it is of; None: a stranger's."""
        return self._share

    def answered(self) -> None:
        """The answer has been written. If part of the next request is already here, its time runs."""
        if self._state is _BUSY:
            state = _READING if self._bytes_behind else _IDLE
            table = self._table.reading if self._bytes_behind else self._table.idle
            table[self] = self._loop.time()
            self._state = state

    @property
    def origin(self) -> str:
        """The address of the other end, a proxy's where there is one."""
        name = self._wire.get_extra_info("peername") if self._wire is not None else None
        return str(name[0]) if name else ""

    @property
    def anybody(self) -> Caller:
        """Whoever asks over it, where nobody is asked who it is."""
        if self._anybody is None:
            self._anybody = replace(EVERYBODY, origin=self.origin)
        return self._anybody

    def abort(self) -> None:
        """Close at once, dropping whatever was not sent."""
        if self._wire is not None:
            self._wire.abort()

    def refused(self, kind: Kind) -> None:
        """Something that came over it was refused: have it logged."""
        self._table.refusals.note(kind, self.origin)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp could not parse a request. Answered as a problem."""
        if status >= 500:
            _log.error("a request failed in aiohttp: %s", message or exc, exc_info=exc)
        else:
            self.refused("requests refused that are not HTTP/1.1")
        return self._table.answer_broken(request, message or "The request is not HTTP/1.1")


class ConnectionTable:
    """The open connections by state, and the sweep over them."""

    def __init__(
        self,
        limits: HttpLimits,
        answer_broken: Callable[[web.BaseRequest, str], web.StreamResponse],
        *,
        told_apart: bool = False,
    ) -> None:
        """``told_apart``: callers show credentials, and connections are their tenants'."""
        self.limits = limits
        self.answer_broken = answer_broken
        self.told_apart = told_apart
        self.strangers: OrderedDict[Connection, None] = OrderedDict()
        """In the order in which they came."""
        self._shares: dict[str, int] = {}
        """Connections of each tenant."""
        self._share_max = (
            max(1, int(limits.connections_max * SHARE)) if told_apart else limits.connections_max
        )
        self.open = 0
        self.idle: OrderedDict[Connection, float] = OrderedDict()
        self.reading: OrderedDict[Connection, float] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.refusals = Refusals(self._loop.time)

    def admit(self, origin: str) -> Place:
        """Count a newcomer in, making room for it if need be; none if every connection is in use."""
        place: Place = "own"
        if self.open >= self.limits.connections_max:
            spare = self.open < self.limits.connections_max + SPARE_CONNECTIONS
            stranger = next(iter(self.strangers), None)
            if stranger is not None and not (stranger.spare and spare):
                self._evict(stranger)
                place = "spare" if stranger.spare else "own"
            elif not self._make_room(max(self._shares, key=self._shares.__getitem__, default="")):
                place = "spare" if spare else "none"
        if place == "none":
            self.refusals.note("connections refused, all in use", origin)
        else:
            self.open += 1
        return place

    def join(self, tenant: str) -> bool:
        """Count a connection as the tenant's; false if it has more than one may, and none of them is idle."""
        self._shares[tenant] = count = self._shares.get(tenant, 0) + 1
        return count <= self._share_max or self._make_room(tenant)

    def leave(self, connection: Connection, tenant: str | None) -> None:
        """The connection is a stranger's, or the tenant's, no longer."""
        if tenant is None:
            self.strangers.pop(connection, None)
        elif self._shares[tenant] > 1:
            self._shares[tenant] -= 1
        else:
            del self._shares[tenant]

    def _make_room(self, tenant: str) -> bool:
        """Close the longest idle connection of a tenant; false if none is idle."""
        for connection in self.idle:
            if connection.share == tenant:
                self._evict(connection)
                return True
        return False

    def _evict(self, connection: Connection) -> None:
        # They are lost a little later, and are nobody's until then.
        self.strangers.pop(connection, None)
        self.idle.pop(connection, None)
        self.reading.pop(connection, None)
        connection.abort()

    def start(self) -> None:
        self._timer = self._loop.call_later(SWEEP_PERIOD_S, self._sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def drop_unfinished(self) -> None:
        """Close the connections whose request is not here yet: nothing is owed to them."""
        for connection in list(self.reading):
            connection.abort()

    def _sweep(self) -> None:
        drops = self._drop_overdue(self.reading, self.limits.read_timeout_ms, DROPS_PER_SWEEP_MAX)
        drops += self._drop_overdue(self.idle, self.limits.idle_timeout_ms, DROPS_PER_SWEEP_MAX - drops)
        again_in_s = SWEEP_PERIOD_S if drops < DROPS_PER_SWEEP_MAX else 0.0
        self._timer = self._loop.call_later(again_in_s, self._sweep)

    def _drop_overdue(self, table: OrderedDict[Connection, float], timeout_ms: int, drops_max: int) -> int:
        overdue_before = self._loop.time() - timeout_ms / 1000
        drops = 0
        while table and drops < drops_max:
            connection = next(iter(table))
            if table[connection] > overdue_before:
                break
            del table[connection]
            if table is self.reading:
                self.refusals.note("requests cut off that did not come in time", connection.origin)
            connection.abort()
            drops += 1
        return drops


class ConnectionServer(web.Server):
    """aiohttp's low-level server with our connections.

    A closed connection does not in general cancel the handler at work for it: whether an operation has an
    effect must not hang on whether its answer can still be delivered. See ``Connection.cancel_when_lost``.
    """

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], table: ConnectionTable
    ) -> None:
        super().__init__(handler, handler_cancellation=False)
        self.table = table

    def __call__(self, *_: Any) -> web.RequestHandler:
        return Connection(self, self.table)
