"""The HTTP front: from a request's bytes to a call of the service and back.

The front keeps no state about leases. It is one handler under aiohttp's low-level server, without an
application, a router or middlewares: a dictionary finds the route, prebuilt decoders read the body, and one
write answers.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Protocol, cast

from aiohttp import EMPTY_PAYLOAD, HttpVersion11, hdrs, web
from aiohttp.http import HttpProcessingError

from tenure_cluster.api import authorize, codec, openapi, target
from tenure_cluster.api.answer import Answer, Writer, refusal
from tenure_cluster.api.backup import BackupEndpoint
from tenure_cluster.api.codec import Format
from tenure_cluster.api.connections import Connection, ConnectionServer, ConnectionTable
from tenure_cluster.api.credentials import CreateEndpoint, RotateEndpoint
from tenure_cluster.api.dashboard import Dashboard, is_dashboard
from tenure_cluster.api.dispatch import Dispatcher, Endpoint, Unrouted
from tenure_cluster.api.events import EventsEndpoint
from tenure_cluster.api.exchange import Exchange, LongEndpoint
from tenure_cluster.api.fairness import STRANGERS, Fairness
from tenure_cluster.api.hosts import FOREIGN, Hosts
from tenure_cluster.api.limits import DETAIL_CHARS_MAX, REQUEST_ID_BYTES_MAX, HttpLimits
from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.routes import Route
from tenure_cluster.api.stream import Stream, StreamEndpoint
from tenure_cluster.api.tls_site import TlsSite
from tenure_cluster.api.while_allowed import while_allowed
from tenure_cluster.auth.gate import Caller, Gate
from tenure_cluster.observe.request_context import REQUEST_ID, SPAN
from tenure_cluster.observe.request_log import SERVER_ERROR, RequestLog
from tenure_cluster.service.backups import Opener
from tenure_cluster.service.errors import Problem

_log = logging.getLogger("tenure.api")

_SANE_REQUEST_ID: Final = re.compile(rf"[A-Za-z0-9._~:/+=@-]{{1,{REQUEST_ID_BYTES_MAX}}}")
_X_REQUEST_ID: Final = "X-Request-Id"
_TRACED: Final = "/v1/"
_CHALLENGE: Final = b"WWW-Authenticate: Bearer\r\n"
_SENT_BY_BROWSERS: Final = (hdrs.ORIGIN, "Sec-Fetch-Site")
_BEYOND_SHARE: Final = Problem(
    "overloaded", "The tenant's connections are too many of this node's, and all of them are in use", {}, 5.0
)
_NO_BODY: Final = invalid("This call takes no body; its fields stand in its path and query", "$")


class Traced(Protocol):
    """The span of a request."""

    @property
    def parent(self) -> object:
        """What is done for it belongs to this; for SPAN."""

    def answered(self, operation: str, status: int) -> None: ...

    def end(self) -> None: ...


class Traces(Protocol):
    """Makes them; see tracing."""

    def request(self, method: str, headers: Mapping[str, str], request_id: bytes) -> Traced: ...


class _ClientGone(Exception):
    """The client left, or was cut off, before its request was here: there is nobody to answer."""


class HttpFront:
    """Serves the public interface of one node."""

    def __init__(
        self,
        service: LeasePort,
        *,
        version: str,
        wall_ms: Callable[[], int],
        request_id_prefix: str,
        limits: HttpLimits,
        metrics: Callable[[], bytes] | None = None,
        request_log: RequestLog | None = None,
        gate: Gate | None = None,
        draw: Callable[[int], bytes] | None = None,
        metrics_open: bool = False,
        backup: Opener | None = None,
        traces: Traces | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """``gate`` tells callers by their credentials; without it everybody has all rights. ``draw`` gives
        random bytes for secrets; without it no credential can be made here. ``metrics_open``: /metrics needs
        no credential. ``backup`` opens backups; without it there are none. ``hosts``: names by which it is
        asked; without them any will do.

        ``request_id_prefix`` must differ between processes; ``wall_ms`` serves the ``Date`` header.
        ``metrics`` makes the body of /metrics."""
        self._request_log = request_log
        self._traces = traces
        self._hosts = hosts
        self._limits = limits
        self._service = service
        self._gate = gate
        self._fairness: Fairness | None = None
        """Where callers are told apart."""
        self._open = frozenset({"metrics"} if metrics_open else ())
        self._streams: dict[Stream, None] = {}
        more_calls: dict[str, Callable[[Route], Endpoint]] = {
            "events": lambda route: EventsEndpoint(route, service),
            "stream": lambda route: StreamEndpoint(route, service, self._streams),
        }
        if backup is not None:
            more_calls["backup"] = lambda route: BackupEndpoint(route, backup)
        if draw is not None:
            more_calls["create_credential"] = lambda route: CreateEndpoint(route, service, draw)
            more_calls["rotate_credential"] = lambda route: RotateEndpoint(route, service, draw)
        self._dispatcher = Dispatcher(
            service, openapi.document(version), self._is_stopping, more_calls, metrics
        )
        self._dashboard = Dashboard()
        self._writer = Writer(wall_ms, lambda: service.leader_url, limits.write_timeout_ms)
        self._request_id_prefix = request_id_prefix.encode()
        self._request_numbers = count(1)
        self._stopping = False
        self._table: ConnectionTable | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self, listen: str, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """Serve on ``host:port``; port 0 takes a free one. ``tls`` gives the context of each handshake;
        without it the front speaks plain HTTP. Raises OSError if the address cannot be had."""
        host, _, port = listen.rpartition(":")
        if self._gate is not None:
            self._fairness = Fairness()
        self._table = ConnectionTable(self._limits, self._answer_broken, told_apart=self._gate is not None)
        server = ConnectionServer(self._handle, self._table)
        self._runner = web.ServerRunner(server, shutdown_timeout=self._limits.stop_timeout_ms / 1000)
        await self._runner.setup()
        host = host.strip("[]")
        site: web.BaseSite
        if tls is None:
            site = web.TCPSite(self._runner, host, int(port), backlog=self._limits.backlog)
        else:
            site = TlsSite(self._runner, host, int(port), tls, self._limits)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self._table.start()

    @property
    def port(self) -> int:
        """The port served on."""
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._table.open if self._table is not None else 0

    @property
    def connections_max(self) -> int:
        """How many may be."""
        return self._limits.connections_max

    @property
    def answered(self) -> Mapping[int, int]:
        """How many requests were answered with each status. What answers bit by bit isn't counted."""
        return self._writer.answered

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight be answered, close everything.

        Polls in flight are answered when the service ends them: stop it first, or at the same time.
        """
        self._stopping = True
        if self._table is not None:
            self._table.drop_unfinished()
        elsewhere = self._service.elsewhere
        for stream in list(self._streams):
            stream.going_away(f"the node stops; go on at {elsewhere[0]}" if elsewhere else "the node stops")
        if self._runner is not None:
            await self._runner.cleanup()
        if self._table is not None:
            self._table.stop()

    def _is_stopping(self) -> bool:
        return self._stopping

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = request.headers
        request_id = self._request_id(headers)
        REQUEST_ID.set(request_id)  # each request is handled by a task of its own, and so in its own context
        if self._traces is None or not request.raw_path.startswith(_TRACED):
            return await self._handle_known(request, request_id, None)
        span = self._traces.request(request.method, headers, request_id)
        SPAN.set(span.parent)
        try:
            return await self._handle_known(request, request_id, span)
        finally:
            span.end()

    async def _handle_known(
        self, request: web.BaseRequest, request_id: bytes, span: Traced | None
    ) -> web.StreamResponse:
        connection = cast(Connection, request.protocol)
        headers = request.headers
        content_type = headers.get(hdrs.CONTENT_TYPE, "")
        answer_format = codec.answer_format(headers.get(hdrs.ACCEPT, ""), content_type)
        log = self._request_log
        started_s = log.now_s() if log is not None and log.all else None
        try:
            answer = await self._answer(request, connection, content_type, answer_format, request_id)
            if self._fairness is not None and type(answer) is Answer and answer.refused:
                await self._fairness.hold(connection.told_apart_by, answer.refused)
        except _ClientGone:
            return self._writer.nothing()
        except Exception:
            failed = "a request failed: %s %.200s"
            _log.exception(failed, request.method, ascii(request.raw_path))
            answer = refusal(Problem("internal", "The server failed; its log says why"), answer_format)
        if isinstance(answer, web.StreamResponse):
            return answer
        if span is not None:
            span.answered(self._operation(request), answer.status)
        keep_alive = (
            request.keep_alive
            and not self._stopping
            and not connection.beyond_share
            and not connection.spare
            and request.content.is_eof()
        )
        written = self._writer.write(request, answer, request_id, keep_alive=keep_alive)
        if connection.writing_paused:
            await self._writer.drain(request)
        if request.content.is_eof():
            connection.arrived()  # also what was refused before its body was looked at
        connection.answered()
        if log is not None and (answer.status >= SERVER_ERROR or log.all):
            log.note(request.method, lambda: self._operation(request), answer.status, request_id, started_s)
        return written

    def _operation(self, request: web.BaseRequest) -> str:
        path = target.split(request.raw_path)[0]
        if is_dashboard(path):
            return "dashboard"
        found = self._dispatcher.find(request.method, path)
        return "none" if isinstance(found, Unrouted) else found[0].route.operation

    async def _answer(
        self,
        request: web.BaseRequest,
        connection: Connection,
        content_type: str,
        answer_format: Format,
        request_id: bytes,
    ) -> Answer | web.StreamResponse:
        path, query = target.split(request.raw_path)
        if self._hosts is not None and not self._hosts.allows(request.headers.get(hdrs.HOST, "")):
            connection.refused("requests refused under a foreign name")
            return refusal(FOREIGN, answer_format)
        if is_dashboard(path):
            connection.arrived()
            known = request.headers.get(hdrs.IF_NONE_MATCH)
            return self._dashboard.answer(request.method, path, known, answer_format)
        found = self._dispatcher.find(request.method, path)
        if isinstance(found, Unrouted):
            return refusal(found.problem, answer_format, found.headers)
        endpoint, rest = found
        caller = connection.anybody
        if self._gate is not None:
            caller, refused = await self._caller(self._gate, request, endpoint.route, connection)
            if refused is not None:
                named = await self._named(endpoint, rest, query, request, content_type, caller)
                authorize.tell(self._service, refused, endpoint.route.operation, caller, named)
                return refusal(refused, answer_format, _CHALLENGE if refused.status == 401 else b"")
            if self._fairness is not None and endpoint.route.access != "open":
                await self._fairness.turn(caller.tenant)
        if endpoint.takes_body:
            body_format = self._body_format(request, content_type)
            if isinstance(body_format, Problem):
                return refusal(body_format, answer_format)
            body = await self._body(request)
            connection.arrived()
            asked = body if isinstance(body, Problem) else endpoint.decode_body(body, query, body_format)
        else:
            connection.arrived()
            asked = endpoint.decode_target(rest, query) if request.content is EMPTY_PAYLOAD else _NO_BODY
        if isinstance(asked, Problem):
            if asked.code == "too_large":
                connection.refused("requests refused for their size")
            return refusal(asked, answer_format)
        if caller.prefixes and (refused := authorize.key_refusal(caller, asked)) is not None:
            authorize.tell(self._service, refused, endpoint.route.operation, caller, asked)
            return refusal(refused, answer_format)
        if self._fairness is not None and (cost := endpoint.cost(asked)) > 1:
            await self._fairness.turn(caller.tenant, cost - 1)  # how much it is only its body has told
        long = isinstance(endpoint, LongEndpoint)
        if connection.spare and (long or endpoint.ends_with_connection(asked)):
            connection.refused("connections refused, all in use")
            connection.abort()  # not an answer: the next node may have a place
            raise _ClientGone
        if connection.beyond_share and (long or endpoint.ends_with_connection(asked)):
            return refusal(_BEYOND_SHARE, answer_format)
        if not long and not endpoint.ends_with_connection(asked):
            return await endpoint.answer(asked, answer_format, caller)
        if long:
            SPAN.set(None)  # it goes on for hours, and what it asks for is no part of one request
        connection.cancel_when_lost = asyncio.current_task()
        try:
            if isinstance(endpoint, LongEndpoint):
                exchange = Exchange(
                    request,
                    connection,
                    self._writer,
                    self._limits,
                    request_id,
                    answer_format,
                    caller,
                    self._gate,
                    self._fairness,
                )
                return await endpoint.serve(exchange, asked)
            if (gate := self._gate) is None or not getattr(asked, "wait_ms", 0):
                return await endpoint.answer(asked, answer_format, caller)
            waiting = endpoint.answer(asked, answer_format, caller)
            if (answered := await while_allowed(waiting, lambda: gate.still(caller))) is not None:
                return answered
            refused = authorize.UNAUTHENTICATED
            authorize.tell(self._service, refused, endpoint.route.operation, caller, asked)
            return refusal(refused, answer_format, _CHALLENGE)
        finally:
            connection.cancel_when_lost = None

    async def _caller(
        self, gate: Gate, request: web.BaseRequest, route: Route, connection: Connection
    ) -> tuple[Caller, Problem | None]:
        """On whose behalf a route is asked for, and why that is not enough for it. Before anything of the
        body is read."""
        if route.access == "open" or route.operation in self._open:
            return connection.anybody, None
        headers = request.headers.getall(hdrs.AUTHORIZATION, ())
        shown = headers[0] if len(headers) == 1 else None  # of several it is not clear which one counts
        origin = connection.origin
        caller = gate.caller(shown, origin) or await gate.late_caller(shown, origin)
        connection.told_apart_by = STRANGERS + origin if caller is None else caller.tenant
        if caller is None:
            connection.refused("requests refused without a valid credential")
            return connection.anybody, authorize.UNAUTHENTICATED
        connection.proved(caller.tenant)
        return caller, authorize.right_refusal(caller, route.operation)

    async def _named(
        self,
        endpoint: Endpoint,
        rest: str,
        query: str | None,
        request: web.BaseRequest,
        content_type: str,
        caller: Caller,
    ) -> object:
        """What a refused call was for, for the audit; None if that can't be told. A stranger's body is not
        read, nor is one that has not been sent yet."""
        if not caller.credential_id:
            return None
        if not endpoint.takes_body:
            return endpoint.decode_target(rest, query)
        body_format = self._body_format(request, content_type)
        if isinstance(body_format, Problem) or _expects_continue(request):
            return None
        body = await self._body(request)
        return None if isinstance(body, Problem) else endpoint.decode_body(body, query, body_format)

    def _body_format(self, request: web.BaseRequest, content_type: str) -> Format | Problem:
        headers = request.headers
        if hdrs.CONTENT_ENCODING in headers and headers[hdrs.CONTENT_ENCODING].lower() != "identity":
            return Problem(
                "unsupported_media_type", "Bodies are taken as they are, without a Content-Encoding"
            )
        if content_type == "application/json":
            return "json"
        from_browser = any(header in headers for header in _SENT_BY_BROWSERS)
        return codec.body_format(content_type, from_browser) or Problem(
            "unsupported_media_type", "Say Content-Type: application/json, or application/msgpack"
        )

    async def _body(self, request: web.BaseRequest) -> bytes | Problem:
        """The whole body. How long it may take is the connection table's concern."""
        content, limit = request.content, self._limits.body_bytes_max
        if content.is_eof():
            body = content.read_nowait(-1)
            return body if len(body) <= limit else self._too_large()
        if (request.content_length or 0) > limit:
            return self._too_large()
        if request.version >= HttpVersion11 and _expects_continue(request) and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        received = bytearray()
        try:
            while chunk := await content.readany():
                received += chunk
                if len(received) > limit:
                    return self._too_large()
        except ConnectionError:
            raise _ClientGone from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            return invalid(f"The body could not be read: {error}", "$")
        return bytes(received)

    def _too_large(self) -> Problem:
        limit = self._limits.body_bytes_max
        return Problem("too_large", f"The body is larger than {limit} bytes", {"max": limit})

    def _request_id(self, headers: Mapping[str, str]) -> bytes:
        """The caller's own id if it is short and plain, else a new one."""
        asked = headers.get(_X_REQUEST_ID)
        if asked is not None and _SANE_REQUEST_ID.fullmatch(asked):
            return asked.encode()
        return b"%b-%x" % (self._request_id_prefix, next(self._request_numbers))

    def _answer_broken(self, request: web.BaseRequest, message: str) -> web.StreamResponse:
        """Answer bytes that aiohttp could not parse as a request, and close the connection."""
        what = message[:DETAIL_CHARS_MAX].partition("\n")[0].rstrip(":")  # the rest repeats what was sent
        shown = what.encode("ascii", "backslashreplace").decode()
        answer = refusal(invalid(f"The request is not HTTP/1.1: {shown}", "$"), "json")
        return self._writer.write(request, answer, self._request_id({}), keep_alive=False)


def _expects_continue(request: web.BaseRequest) -> bool:
    return request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
