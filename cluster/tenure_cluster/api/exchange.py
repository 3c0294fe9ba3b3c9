"""Calls that keep their connection: the answer is a stream, which goes on until one of the two ends it."""

import asyncio
from abc import abstractmethod
from typing import Any, Final

from aiohttp import HttpVersion11, web

from tenure_cluster.api.answer import Answer, Writer
from tenure_cluster.api.codec import Format
from tenure_cluster.api.connections import Connection
from tenure_cluster.api.dispatch import Endpoint
from tenure_cluster.api.fairness import Fairness
from tenure_cluster.api.limits import HttpLimits
from tenure_cluster.auth.gate import EVERYBODY, Caller, Gate

RECHECK_S: Final = 5.0
"""How often it is looked whether the credential of a call that goes on is valid still."""


class Exchange:
    """One request and the connection that it keeps."""

    __slots__ = (
        "answer_format",
        "caller",
        "connection",
        "fairness",
        "gate",
        "limits",
        "request",
        "request_id",
        "writer",
    )

    def __init__(
        self,
        request: web.BaseRequest,
        connection: Connection,
        writer: Writer,
        limits: HttpLimits,
        request_id: bytes,
        answer_format: Format,
        caller: Caller = EVERYBODY,
        gate: Gate | None = None,
        fairness: Fairness | None = None,
    ) -> None:
        self.request = request
        self.connection = connection
        self.writer = writer
        self.limits = limits
        self.request_id = request_id
        self.answer_format = answer_format
        self.caller = caller
        self.gate = gate
        self.fairness = fairness

    def still_allowed(self) -> bool:
        """Whether the credential that opened this is valid still."""
        return self.gate is None or self.gate.still(self.caller)


class LongEndpoint(Endpoint):
    """An endpoint that serves its connection itself."""

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        raise NotImplementedError("it needs the connection: see serve")

    @abstractmethod
    async def serve(self, exchange: Exchange, request: Any) -> Answer | web.StreamResponse:
        """Serve until the stream ends; an Answer if it does not begin. Cancelled when the connection is
        lost."""


class Outflow:
    """What is written to one connection, which is closed when it has taken nothing for too long."""

    __slots__ = ("_connection", "_loop", "_timeout_s", "_timer", "chunked")

    def __init__(self, exchange: Exchange, *, chunked: bool = False) -> None:
        self._connection = exchange.connection
        self._timeout_s = exchange.limits.write_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.chunked = chunked and exchange.request.version >= HttpVersion11

    def write(self, data: bytes) -> bool:
        """Write; false if nothing more should be written until the connection says that it takes more."""
        connection = self._connection
        transport = connection.transport
        if transport is None or transport.is_closing():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)
        if not connection.writing_paused:
            return True
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, connection.abort)
        return False

    def takes_more(self) -> None:
        """The connection has taken what it was written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    close = takes_more
