"""`GET /v1/events`: what happens, as Server-Sent Events.

Each event has the revision as its ``id``, its kind as its ``event`` and a JSON object as its ``data``; a sign
of life is a comment. A client that reconnects sends the id that it saw last, as every EventSource does, and
so goes on without a gap or a repetition, on any node. What else is told stands in service/watch_messages.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import HttpVersion11, web

from tenure_cluster.api.answer import Answer, refusal
from tenure_cluster.api.exchange import RECHECK_S, Exchange, LongEndpoint, Outflow
from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.routes import Route
from tenure_cluster.lease.events import Event
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import EventsRequest
from tenure_cluster.service.watch import Subscription
from tenure_cluster.service.watch_messages import Notice, event_body

CONTENT_TYPE: Final = b"text/event-stream"

RETRY: Final = b"retry: 1000\n\n"
"""How long an EventSource waits until it connects again."""

_LAST_EVENT_ID: Final = "Last-Event-ID"

_encode = msgspec.json.Encoder().encode


class _SseEncoder:
    """Server-Sent Events. A notice that names a place to go on after moves the id on as events do."""

    def events(self, events: Sequence[Event]) -> bytes:
        return b"".join(
            b"id: %d\nevent: %b\ndata: %b\n\n"
            % (event.revision, event.kind.encode(), _encode(event_body(event)))
            for event in events
        )

    def notice(self, notice: Notice) -> bytes:
        if notice.kind == "alive":
            return b": alive\n\n"
        place = b"" if notice.place is None else b"id: %d\n" % notice.place
        return b"%bevent: %b\ndata: %b\n\n" % (place, notice.kind.encode(), _encode(notice.body))


SSE: Final = _SseEncoder()


class EventsEndpoint(LongEndpoint):
    """Watches for as long as the connection lasts."""

    def __init__(self, route: Route, service: LeasePort) -> None:
        super().__init__(route)
        self._service = service

    async def serve(self, exchange: Exchange, request: Any) -> Answer | web.StreamResponse:
        asked = _resumed(request, exchange.request.headers.get(_LAST_EVENT_ID))
        if isinstance(asked, Problem):
            return refusal(asked, exchange.answer_format)
        if exchange.request.method == "HEAD":
            return Answer(200, CONTENT_TYPE, b"")
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow = Outflow(exchange, chunked=True)
        watch = self._service.watch(exchange.caller.tenant, asked, SSE, flow.write, lambda: _settle(over))
        if isinstance(watch, Problem):
            return refusal(watch, exchange.answer_format)
        try:
            await self._watch(exchange, flow, watch, over)
        finally:
            watch.close()
            flow.close()
            exchange.connection.on_writable = None
        return exchange.writer.nothing()

    async def _watch(
        self, exchange: Exchange, flow: Outflow, watch: Subscription, over: asyncio.Future[None]
    ) -> None:
        chunked = exchange.request.version >= HttpVersion11
        exchange.writer.begin(exchange.request, CONTENT_TYPE, exchange.request_id, chunked=chunked)
        if not flow.write(RETRY):
            return

        def writable() -> None:
            flow.takes_more()
            watch.resume()

        exchange.connection.on_writable = writable
        while exchange.still_allowed() and not over.done():
            await asyncio.wait([over], timeout=None if exchange.gate is None else RECHECK_S)
        exchange.writer.end(exchange.request, chunked=chunked)
        if exchange.connection.writing_paused:
            await exchange.writer.drain(exchange.request)


def _resumed(request: EventsRequest, last_event_id: str | None) -> EventsRequest | Problem:
    """The request with the id that the client saw last, which counts for more than where it once began."""
    if last_event_id is None or last_event_id == "":
        return request
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 16):
        return invalid("Last-Event-ID is the revision that was told last, a number", "$.from")
    return msgspec.structs.replace(request, after=int(last_event_id))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
