"""The OpenAPI 3.1 document, made from the route table and the types that decode and encode the bodies."""

from functools import cache
from typing import Any, Final

import msgspec

from tenure_cluster.api import batch, problems, routes
from tenure_cluster.api.codec import CONTENT_TYPES, PROBLEM_TYPES
from tenure_cluster.api.limits import OPS_PER_BATCH_MAX, REQUEST_ID_BYTES_MAX
from tenure_cluster.api.routes import ROUTES, Link, Route
from tenure_cluster.service import replies
from tenure_cluster.service.errors import CODES

_REF: Final = "#/components/schemas/{name}"

_DESCRIPTION: Final = """\
Ownership bounded in time, fenced by tokens that only rise. Any node answers any call.

JSON by default; MessagePack where `Content-Type` and `Accept` say `application/msgpack`. Unknown and mistyped
fields are refused with the `path` of the fault; of a member that is given twice the last one counts. Keys are
exact bytes: percent-encode them as one path segment, `/` may stand as it is, and nothing is normalised. Every
refusal is a problem document whose `code` says what happened; only `outcome_unknown` leaves open whether the
operation was executed.
"""

_HEADERS: Final[dict[str, Any]] = {
    "X-Request-Id": {
        "description": "The request's own, if it sent a sane one, else one made up. Quote it when reporting.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": REQUEST_ID_BYTES_MAX},
    },
    "X-Tenure-Leader": {
        "description": "URL of the leader, if one is known: a client may go there directly.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
}

_SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "credential": {
        "type": "http",
        "scheme": "bearer",
        "description": "Asked for once the node's setting auth.required says so.",
    }
}

_EXACTLY_ONE: Final = (
    ("Acquire", "key", "keys"),
    ("Acquire", "ttl_ms", "session_id"),
    ("Renew", "lease_id", "session_id"),
)
"""What the types cannot say: the service refuses both of these fields, and neither."""

_RETRY_STATUSES: Final = frozenset({429, 503})


@cache
def document(version: str) -> bytes:
    """The whole document, encoded as JSON."""
    return msgspec.json.format(msgspec.json.encode(build(version)), indent=1)


def build(version: str) -> dict[str, Any]:
    """The whole document as plain data."""
    schemas = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    for route in ROUTES:
        if route.source == "query" and route.request is not None:
            del schemas[route.request.__name__]  # its fields have become parameters
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "leases", "description": "Who may act, until when."},
            {"name": "guards", "description": "Guarded writes: no superseded holder gets through."},
            {"name": "sessions", "description": "The unit of liveness."},
            {"name": "events", "description": "What happens, as it happens."},
            {"name": "cluster", "description": "Nodes and their state."},
            {"name": "credentials", "description": "Who may ask for what."},
            {"name": "audit", "description": "Who did what, and what was refused."},
        ],
        "paths": paths,
        "components": {"schemas": schemas, "headers": _HEADERS, "securitySchemes": _SECURITY_SCHEMES},
    }


def _schemas() -> dict[str, Any]:
    requests = [route.request for route in ROUTES if route.request and route.operation != "batch"]
    answers = [reply for route in ROUTES for group in route.replies.values() for reply in group]
    answers = [reply for reply in answers if reply is not replies.BatchReply] + list(batch.RESULT_TYPES)
    answers += [replies.HolderBody, *(route.streamed[1] for route in ROUTES if route.streamed)]
    _, schemas = msgspec.json.schema_components([*requests, batch.BatchBody], ref_template=_REF)
    for name, first, second in _EXACTLY_ONE:
        _say_exactly_one(schemas[name + "Request"], first, second)
        _say_exactly_one(schemas[name + "Operation"], first, second)
    _, answered = msgspec.json.schema_components(answers, ref_template=_REF)
    for schema in answered.values():
        _say_what_is_always_there(schema)
    schemas.update(answered)
    schemas["BatchRequest"]["properties"]["ops"]["maxItems"] = OPS_PER_BATCH_MAX
    schemas["BatchReply"] = _batch_reply()
    schemas["Problem"] = problems.schema()
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = schema["description"].replace("``", "`")
    return schemas


def _say_exactly_one(schema: dict[str, Any], first: str, second: str) -> None:
    """Of two fields that may be left out or null, one must be given and the other not."""
    schema.setdefault("allOf", []).append(
        {
            "oneOf": [
                {
                    "required": [given],
                    "properties": {given: {"type": ["string", "integer", "array"]}, other: {"type": "null"}},
                }
                for given, other in ((first, second), (second, first))
            ]
        }
    )


def _say_what_is_always_there(schema: dict[str, Any]) -> None:
    """In an answer a member with a default is sent too: the default is of use to us, not to the reader."""
    for name, member in schema.get("properties", {}).items():
        if "default" in member:
            del member["default"]
            schema.setdefault("required", []).append(name)


def _batch_reply() -> dict[str, Any]:
    results = [{"$ref": _REF.format(name=kind.__name__)} for kind in batch.RESULT_TYPES]
    return {
        "title": "BatchReply",
        "description": "One result for each operation, in order.",
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {
                "type": "array",
                "maxItems": OPS_PER_BATCH_MAX,
                "items": {"anyOf": [*results, {"$ref": _REF.format(name="Problem")}]},
            }
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route),
    }
    if route.description:
        operation["description"] = route.description
    if route.access != "open":
        rights = [] if route.access == "any" else [route.access]
        operation["security"] = [{}, {"credential": rights}]
    if route.source == "body":
        operation["requestBody"] = _request_body(route)
    elif route.source == "query":
        operation["parameters"] = _parameters(route, schemas)
    return operation


def _request_body(route: Route) -> dict[str, Any]:
    assert route.request is not None
    schema = {"$ref": _REF.format(name=route.request.__name__)}
    content: dict[str, Any] = {
        media_type.decode(): {"schema": schema} for media_type in CONTENT_TYPES.values()
    }
    content["application/json"]["example"] = route.example
    return {"required": True, "content": content}


def _parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of the route's request, as parameters of its path and query."""
    assert route.request is not None
    schema = schemas[route.request.__name__]
    parameters = []
    for name, member in schema["properties"].items():
        in_path = name == route.path_field
        member = _without_null(member)
        parameter = {
            "name": route.parameter if in_path else name,
            "in": "path" if in_path else "query",
            "required": in_path or name in schema["required"],
            "schema": member,
        }
        if "description" in member:
            parameter["description"] = member["description"]
        parameters.append(parameter)
    return parameters


def _without_null(member: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: a field that may be null in a type may be left out here."""
    kinds = [kind for kind in member.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return member
    return {**{name: value for name, value in member.items() if name not in ("anyOf", "default")}, **kinds[0]}


def _responses(route: Route) -> dict[str, Any]:
    responses = {str(status): _success(route, status) for status in route.replies}
    by_status: dict[int, list[str]] = {}
    for code in codes_of(route):
        by_status.setdefault(CODES[code][0], []).append(code)
    for status in sorted(by_status):
        responses[str(status)] = _problem(status, by_status[status])
    return responses


def codes_of(route: Route) -> list[str]:
    """Every code that a call can be answered with, sorted."""
    of_source = routes.BODY_CALL if route.source == "body" else ()
    guarded = () if route.access == "open" else routes.GUARDED_CALL
    return sorted({*route.problems, *routes.ANY_CALL, *guarded, *of_source})


def _success(route: Route, status: int) -> dict[str, Any]:
    kinds = [{"$ref": _REF.format(name=reply.__name__)} for reply in route.replies[status]]
    schema = {"type": "object"} if not kinds else kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    media_types = CONTENT_TYPES.values() if kinds else [CONTENT_TYPES["json"]]
    content: dict[str, Any] = {media_type.decode(): {"schema": schema} for media_type in media_types}
    if route.streamed is not None:
        media_type, part = route.streamed
        parts = {"$ref": _REF.format(name=part.__name__)}
        content = {media_type: {"schema": {"type": "string", "x-parts": parts}}}
    if route.text is not None:
        content = {route.text.partition(";")[0]: {"schema": {"type": "string"}}}
    if status == 101:
        return {"description": "The connection is a stream now.", "headers": _headers(status)}
    response = {
        "description": "Queued; ask again." if status == 202 else "Done.",
        "headers": _headers(status),
        "content": content,
    }
    links = route.links.get(status, ())
    return {**response, "links": {link.operation: _link(link) for link in links}} if links else response


def _link(link: Link) -> dict[str, Any]:
    [target] = [route for route in ROUTES if route.operation == link.operation]
    if target.source == "body":
        return {"operationId": link.operation, "requestBody": link.fields}
    names = {target.path_field: target.parameter}
    parameters = {names.get(name, name): expression for name, expression in link.fields.items()}
    return {"operationId": link.operation, "parameters": parameters}


def _problem(status: int, codes: list[str]) -> dict[str, Any]:
    schema = {
        "allOf": [
            {"$ref": _REF.format(name="Problem")},
            {"properties": {"code": {"enum": codes}, "status": {"const": status}}},
        ]
    }
    content: dict[str, Any] = {
        media_type.decode(): {"schema": schema} for media_type in PROBLEM_TYPES.values()
    }
    content["application/problem+json"]["examples"] = {code: {"value": _example(code)} for code in codes}
    meanings = "; ".join(f"`{code}`: {CODES[code][1][0].lower()}{CODES[code][1][1:]}" for code in codes)
    return {"description": f"{meanings}.", "headers": _headers(status), "content": content}


def _headers(status: int) -> dict[str, Any]:
    names = ["X-Request-Id", "X-Tenure-Leader"]
    if status in _RETRY_STATUSES:
        names.append("Retry-After")
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


_EXAMPLE_DETAILS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "invalid": ("Expected `int`, got `str`", {"path": "$.ttl_ms"}),
    "out_of_range": (
        "ttl_ms must be 3000 to 86400000 ms, not 10",
        {"path": "$.ttl_ms", "min": 3000, "max": 86400000},
    ),
    "lost": ("the lease is over: it was not renewed in time", {"reason": "expired"}),
    "stale_token": ("a newer token has been granted, the guard's floor is 9", {"floor": 9}),
}


def _example(code: str) -> dict[str, Any]:
    status, title = CODES[code]
    detail, extra = _EXAMPLE_DETAILS.get(code, (title, {}))
    return {
        "type": problems.TYPE_PREFIX + code,
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        **extra,
    }
