"""Endpoints, made from the route table: how each call's request is decoded, answered and encoded.

Everything that can be prepared is: decoders for each body, the HTTP status for each type of reply. Finding
the endpoint of a request is a look-up or two in a dictionary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tenure_cluster.api import authorize, batch, target
from tenure_cluster.api.answer import Answer, refusal, success
from tenure_cluster.api.codec import CONTENT_TYPES, Decoders, Format, fault
from tenure_cluster.api.discretion import shown
from tenure_cluster.api.fairness import HELD_BACK, cost_of
from tenure_cluster.api.limits import DETAIL_CHARS_MAX
from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.routes import ROUTES, Route
from tenure_cluster.auth.gate import EVERYBODY, Caller
from tenure_cluster.service import requests
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import Reply, StatusReply

ONLY_WITH_SECRETS: Final = frozenset({"create_credential", "rotate_credential"})
"""Calls that need a source of secrets, and are not served without one."""

_VERSION_PREFIX: Final = "/v1/"


class Endpoint(ABC):
    """One route, ready to serve."""

    def __init__(self, route: Route, body_type: Any = None) -> None:
        self.route = route
        self.takes_body = route.source == "body"
        self._decoders = Decoders(body_type or route.request) if self.takes_body else None
        fields = msgspec.structs.fields(route.request) if route.source == "query" and route.request else ()
        self._integers = frozenset(field.encode_name for field in fields if field.type in (int, int | None))

    def decode_body(self, body: bytes, query: str | None, body_format: Format) -> Any | Problem:
        """The call's request from its body. A query is refused: what stood in it would be ignored."""
        if query:
            return invalid("This call takes its fields from its body, not from a query", "$")
        assert self._decoders is not None
        return self._decoders.decode(body, body_format)

    def decode_target(self, rest: str, query: str | None) -> Any | Problem:
        """The call's request from the end of its path and its query."""
        fields = target.query_fields(query, self._integers) if query else {}
        if isinstance(fields, Problem):
            return fields
        name = self.route.path_field
        if name is not None:
            path = target.field_path("$", name)
            if name in fields:
                return invalid("The field stands in the path; it can't be in the query too", path)
            value = target.decode(rest, path)
            if isinstance(value, Problem):
                return value
            fields[name] = value
        if self.route.request is None:
            unknown = next(iter(fields), None)
            return (
                None
                if unknown is None
                else invalid("The call takes no fields", target.field_path("$", unknown))
            )
        try:
            return msgspec.convert(fields, self.route.request)
        except msgspec.ValidationError as error:
            return fault(str(error))

    def cost(self, request: Any) -> int:
        """What a decoded request costs, in ordinary ones; see fairness.py."""
        return 1

    def ends_with_connection(self, request: Any) -> bool:
        """Whether a decoded request is to be given up when its caller's connection is gone."""
        return False

    @abstractmethod
    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        """Answer a decoded request."""


class _OperationEndpoint(Endpoint):
    """Hands an operation to the service."""

    def __init__(self, route: Route, service: LeasePort) -> None:
        super().__init__(route)
        self._call = service.call
        self._operation = route.operation
        self._statuses = {reply: status for status, group in route.replies.items() for reply in group}

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        reply = await self._call(self._operation, caller.tenant, request, caller.credential_id, caller.origin)
        reply = shown(caller, reply)
        if type(reply) is Problem:
            return refusal(reply, answer_format)
        return success(self._statuses[type(reply)], reply, answer_format)


class _AcquireEndpoint(_OperationEndpoint):
    """Acquires, which alone can be given up.

    An acquire that waits holds up those behind it for somebody who has left, and one without a request_id
    can't be asked for again. Any other acquire whose answer is lost is found by its request_id, so it must
    stand: its caller may be asking at this moment.
    """

    def ends_with_connection(self, request: requests.AcquireRequest) -> bool:
        return request.wait_ms > 0 or request.request_id is None


class _BatchEndpoint(Endpoint):
    """Hands many operations to the service at once."""

    def __init__(self, route: Route, service: LeasePort) -> None:
        super().__init__(route, batch.BatchBody)
        self._service = service

    def cost(self, request: Any) -> int:
        return cost_of(len(request.ops))

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        operations = batch.operations(request)
        if isinstance(operations, Problem):
            return refusal(operations, answer_format)
        refusals = {
            place: refused
            for place, (name, asked) in enumerate(operations)
            if (refused := authorize.refusal(self._service, caller, name, asked)) is not None
        }
        places = [place for place in range(len(operations)) if place not in refusals]
        allowed = operations if not refusals else [operations[place] for place in places]
        answers = await self._service.batch(caller.tenant, allowed, caller.credential_id, caller.origin)
        answers = [shown(caller, answer) for answer in answers]
        if refusals:
            asked_at = dict(zip(places, enumerate(answers), strict=True))
            answers = [
                refusals[place] if place in refusals else _moved(place, *asked_at[place])
                for place in range(len(operations))
            ]
        held_back = sum(isinstance(each, Problem) and each.code in HELD_BACK for each in answers)
        answer = success(200, batch.results(answers), answer_format)
        return msgspec.structs.replace(answer, refused=held_back) if held_back else answer


def _moved(place: int, asked_at: int, reply: Reply | Problem) -> Reply | Problem:
    """An answer of a batch that is part of a larger one: a path in it names the place in that."""
    if isinstance(reply, Problem) and str(reply.extra.get("path", "")).startswith(f"$.ops[{asked_at}]"):
        path = reply.extra["path"].replace(f"$.ops[{asked_at}]", f"$.ops[{place}]", 1)
        return msgspec.structs.replace(reply, extra={**reply.extra, "path": path})
    return reply


class _OwnEndpoint(Endpoint):
    """Answers by itself, without the replicated state."""

    def __init__(self, route: Route, make: Callable[[], msgspec.Struct | Problem]) -> None:
        super().__init__(route)
        self._make = make

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        reply = self._make()
        return (
            refusal(reply, answer_format)
            if isinstance(reply, Problem)
            else success(200, reply, answer_format)
        )


class _NodesEndpoint(Endpoint):
    """Has the members describe themselves."""

    def __init__(self, route: Route, service: LeasePort) -> None:
        super().__init__(route)
        self._service = service

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        return success(200, await self._service.nodes(), answer_format)


class _DocumentEndpoint(Endpoint):
    """Answers with bytes that were made once; they are JSON whatever was asked for."""

    def __init__(self, route: Route, document: bytes) -> None:
        super().__init__(route)
        self._answer = Answer(200, CONTENT_TYPES["json"], document)

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        return self._answer


class _TextEndpoint(Endpoint):
    """Answers with a text that is made anew each time, whatever form was asked for."""

    def __init__(self, route: Route, make: Callable[[], bytes]) -> None:
        super().__init__(route)
        self._make = make
        self._content_type = (route.text or "text/plain").encode()

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        return Answer(200, self._content_type, self._make())


class Unrouted(msgspec.Struct, frozen=True):
    """Why no endpoint serves a request, and the header lines to say with it."""

    problem: Problem
    headers: bytes = b""


class Dispatcher:
    """Finds the endpoint of a method and path."""

    def __init__(
        self,
        service: LeasePort,
        document: bytes,
        is_stopping: Callable[[], bool],
        long_calls: Mapping[str, Callable[[Route], Endpoint]] = {},
        metrics: Callable[[], bytes] | None = None,
    ) -> None:
        """``long_calls`` make the endpoints that keep their connection; without them these are not served.
        ``metrics`` makes the body of /metrics, which is not served without."""
        own: dict[str, Callable[[Route], Endpoint]] = {
            **long_calls,
            "acquire": lambda route: _AcquireEndpoint(route, service),
            "batch": lambda route: _BatchEndpoint(route, service),
            "cluster": lambda route: _OwnEndpoint(route, service.cluster),
            "nodes": lambda route: _NodesEndpoint(route, service),
            "livez": lambda route: _OwnEndpoint(route, lambda: StatusReply(status="alive")),
            "readyz": lambda route: _OwnEndpoint(route, lambda: _readiness(service, is_stopping())),
            "openapi": lambda route: _DocumentEndpoint(route, document),
        }
        if metrics is not None:
            own["metrics"] = lambda route: _TextEndpoint(route, metrics)
        self._by_path: dict[str, dict[str, Endpoint]] = {}
        self._by_prefix: dict[str, dict[str, Endpoint]] = {}
        for route in ROUTES:
            make = own.get(route.operation)
            if make is None and (route.long or route.text or route.operation in ONLY_WITH_SECRETS):
                continue
            methods = (self._by_prefix if route.parameter else self._by_path).setdefault(route.prefix, {})
            endpoint = make(route) if make else _OperationEndpoint(route, service)
            methods[route.method] = endpoint
            if route.method == "GET":
                methods["HEAD"] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, str] | Unrouted:
        """The endpoint, and the rest of the path that is its parameter, still as it came."""
        rest = ""
        methods = self._by_path.get(path)
        if methods is None:
            end = path.find("/", len(_VERSION_PREFIX)) + 1
            methods = self._by_prefix.get(path[:end])
            if methods is None and end:
                end = path.find("/", end) + 1
                methods = self._by_prefix.get(path[:end])
            if methods is None:
                shown = path[:DETAIL_CHARS_MAX].encode("ascii", "backslashreplace").decode()
                return Unrouted(Problem("no_route", f"Nothing is served at {shown}; see /openapi.json"))
            rest = path[end:]
        endpoint = methods.get(method)
        if endpoint is None:
            allow = ", ".join(sorted(methods))
            problem = Problem("method_not_allowed", f"{method} is not served here, only {allow}")
            return Unrouted(problem, b"Allow: %b\r\n" % allow.encode())
        return endpoint, rest


def _readiness(service: LeasePort, stopping: bool) -> StatusReply | Problem:
    if stopping:
        return Problem("shutting_down", "The node is stopping")
    readiness = service.ready()
    if readiness.ready:
        return StatusReply(status="ready")
    return Problem("no_leader" if service.leader_url is None else "no_quorum", readiness.reason)
