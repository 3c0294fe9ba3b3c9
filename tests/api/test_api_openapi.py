"""The OpenAPI document: valid, complete, and true to the types that decode and encode."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from api_node import RunningNode
from api_wire import ask
from schemathesis.specs.openapi.definitions import OPENAPI_31

from tenure_cluster import __version__
from tenure_cluster.api import openapi
from tenure_cluster.api.codec import Decoders
from tenure_cluster.api.routes import ROUTES, Route
from tenure_cluster.service.errors import CODES, Problem

DOCUMENT = openapi.build("1.2.3")

NOT_OF_A_ROUTE = {"no_route", "method_not_allowed"}
"""Met where there is no operation to document them at."""


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def references(node: Any) -> Iterator[str]:
    """Every ``$ref`` below a node."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def test_the_document_is_valid_openapi_3_1() -> None:
    jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(DOCUMENT)


def test_every_schema_is_valid_json_schema() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})


def test_every_reference_is_resolved_and_every_schema_used() -> None:
    used = set(references(DOCUMENT))
    for reference in used:
        node: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    unused = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]} - used
    assert not unused


async def test_the_node_serves_the_document(node: RunningNode) -> None:
    reply = await ask(node.port, "GET", "/openapi.json")
    assert reply.headers["content-type"] == "application/json"
    assert reply.json == openapi.build(__version__)


def test_every_code_is_documented_somewhere() -> None:
    documented = {code for route in ROUTES for code in openapi.codes_of(route)}
    assert documented == set(CODES) - NOT_OF_A_ROUTE


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_a_route_is_documented(route: Route) -> None:
    documented = operation(route)
    assert documented["operationId"] == route.operation
    statuses = {str(status) for status in route.replies} | {
        str(CODES[code][0]) for code in openapi.codes_of(route)
    }
    assert set(documented["responses"]) == statuses
    for status, response in documented["responses"].items():
        assert "X-Request-Id" in response["headers"]
        assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
        kind = "application/problem+json" if int(status) >= 400 else "application/json"
        if route.streamed is not None and int(status) < 400:
            kind = route.streamed[0]
        if route.text is not None and int(status) < 400:
            kind = route.text.partition(";")[0]
        assert kind in response.get("content", {}) or status == "101"
    if route.parameter is not None:
        [in_path] = [p for p in documented["parameters"] if p["in"] == "path"]
        assert (in_path["name"], in_path["required"]) == (route.parameter, True)
    names = re.findall(r"{(\w+)}", route.path)
    assert names == ([] if route.parameter is None else [route.parameter])


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.source == "body"], ids=lambda route: route.operation
)
def test_the_example_of_a_body_fits_its_schema_and_its_decoder(route: Route) -> None:
    content = operation(route)["requestBody"]["content"]["application/json"]
    validator(content["schema"]).validate(content["example"])
    assert route.request is not None
    assert not isinstance(
        Decoders(route.request).decode(json.dumps(content["example"]).encode(), "json"), Problem
    )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_the_examples_of_problems_fit_their_schemas(route: Route) -> None:
    for status, response in operation(route)["responses"].items():
        content = response.get("content", {}).get("application/problem+json", {"schema": {}, "examples": {}})
        for code, example in content["examples"].items():
            validator(content["schema"]).validate(example["value"])
            assert str(CODES[code][0]) == status


@pytest.mark.parametrize(
    ("name", "body", "valid"),
    [
        ("AcquireRequest", {"key": "k", "owner": "o", "ttl_ms": 1}, True),
        ("AcquireRequest", {"key": "k", "keys": None, "owner": "o", "ttl_ms": 1}, True),
        ("AcquireRequest", {"key": "k", "owner": "o", "session_id": "s"}, True),
        ("AcquireRequest", {"key": "k", "owner": "o"}, False),
        ("AcquireRequest", {"owner": "o", "ttl_ms": 1}, False),
        ("AcquireRequest", {"key": "k", "keys": ["k"], "owner": "o", "ttl_ms": 1}, False),
        ("AcquireRequest", {"key": "k", "owner": "o", "ttl_ms": 1, "x": 1}, False),
        ("RenewRequest", {"lease_id": "l"}, True),
        ("RenewRequest", {}, False),
        ("RenewRequest", {"lease_id": "l", "session_id": "s"}, False),
        ("BatchRequest", {"ops": [{"op": "release", "lease_id": "l"}]}, True),
        ("BatchRequest", {"ops": [{"op": "release"}]}, False),
        ("BatchRequest", {"ops": [{"op": "list_leases"}]}, False),
        ("BatchReply", {"results": [{"status": 200, "result": "released"}]}, True),
        ("BatchReply", {"results": [{"status": 200, "result": "stolen"}]}, False),
        ("ReleasedReply", {"status": "released"}, True),
        ("ReleasedReply", {}, False),
        ("GrantedReply", {}, False),
    ],
)
def test_what_the_schemas_allow(name: str, body: dict[str, Any], valid: bool) -> None:
    assert validator({"$ref": f"#/components/schemas/{name}"}).is_valid(body) is valid
