"""Media types, faults and targets: the rules that decide before any operation is asked for."""

import msgspec
import pytest

from tenure_cluster.api import codec, target
from tenure_cluster.service.errors import Problem


@pytest.mark.parametrize(
    ("content_type", "from_browser", "expected"),
    [
        ("application/json", True, "json"),
        ("application/json; charset=utf-8", True, "json"),
        ("Application/JSON", False, "json"),
        ("application/vnd.api+json", False, "json"),
        ("application/msgpack", True, "msgpack"),
        ("application/x-msgpack", False, "msgpack"),
        ("", False, "json"),
        ("", True, None),
        ("application/x-www-form-urlencoded", False, "json"),
        ("application/x-www-form-urlencoded", True, None),
        ("text/plain", False, None),
        ("multipart/form-data; boundary=json", False, None),
        ("json", False, None),
        (";;", False, None),
    ],
)
def test_how_a_body_is_read(content_type: str, from_browser: bool, expected: str | None) -> None:
    assert codec.body_format(content_type, from_browser) == expected


@pytest.mark.parametrize(
    ("accept", "content_type", "expected"),
    [
        ("", "", "json"),
        ("*/*", "application/json", "json"),
        ("*/*", "application/msgpack", "msgpack"),
        ("", "application/msgpack", "msgpack"),
        ("application/msgpack", "application/json", "msgpack"),
        ("application/json", "application/msgpack", "json"),
        ("application/msgpack, application/json", "", "json"),
        ("application/msgpack, application/json;q=0.9", "", "msgpack"),
        ("application/msgpack;q=0.1, */*", "", "msgpack"),
        ("application/msgpack;q=0", "", "json"),
        ("application/msgpack;q=0, */*", "application/msgpack", "json"),
        ("application/msgpack;q=high", "", "json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "", "json"),
        ("application/problem+msgpack", "", "msgpack"),
    ],
)
def test_how_an_answer_is_written(accept: str, content_type: str, expected: str) -> None:
    assert codec.answer_format(accept, content_type) == expected


@pytest.mark.parametrize(
    ("message", "path", "detail"),
    [
        ("Expected `str`, got `int` - at `$.owner`", "$.owner", "Expected `str`, got `int`"),
        ("Expected `object`, got `array`", "$", "Expected `object`, got `array`"),
        (
            "Object contains unknown field `x` - at `$.ops[3]`",
            "$.ops[3].x",
            "Object contains unknown field `x`",
        ),
        ("Object missing required field `key`", "$.key", "Object missing required field `key`"),
        ("Expected `str`, got `int` - at `key` in `$.metadata`", "$.metadata", "Expected `str`, got `int`"),
        ("Object contains unknown field `a`b` - at `$`", "$.a`b", "Object contains unknown field `a`b`"),
    ],
)
def test_a_fault_names_its_field(message: str, path: str, detail: str) -> None:
    assert codec.fault(message) == Problem("invalid", detail, {"path": path})


def test_a_fault_repeats_little_of_what_was_sent() -> None:
    problem = codec.fault(f"Object contains unknown field `{'x' * 100_000}`")
    assert len(problem.detail) + len(problem.extra["path"]) < 1_100


def test_of_a_member_given_twice_the_last_one_counts() -> None:
    class Body(msgspec.Struct):
        a: int

    assert codec.Decoders(Body).decode(b'{"a": 1, "a": 2}', "json") == Body(2)


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/v1/leases/a/../b?limit=3?4", "/v1/leases/a/../b", "limit=3?4"),
        ("/v1/leases//a//?", "/v1/leases//a//", ""),
        ("/v1/leases/http://x/y", "/v1/leases/http://x/y", None),
        ("http://node:7601/v1/leases/a?b=c", "/v1/leases/a", "b=c"),
        ("http://node:7601", "/", None),
        ("*", "*", None),
    ],
)
def test_targets_are_cut_and_not_normalised(raw: str, path: str, query: str | None) -> None:
    assert target.split(raw) == (path, query)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("%2e%2e", ".."),
        ("a%252Fb", "a%2Fb"),
        ("a+b", "a+b"),
        ("%C3%A4", "ä"),
        ("%F0%9F%94%91", "🔑"),
        ("", ""),
    ],
)
def test_paths_are_decoded_once(text: str, decoded: str) -> None:
    assert target.decode(text, "$.key") == decoded


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "%u0041", "%ff", "%c3", "a#b", "\udcff"])
def test_what_cannot_be_decoded_is_refused(text: str) -> None:
    problem = target.decode(text, "$.key")
    assert isinstance(problem, Problem)
    assert (problem.code, problem.extra) == ("invalid", {"path": "$.key"})


def test_queries_are_decoded_as_forms_are() -> None:
    fields = target.query_fields("prefix=a%2Fb+c&limit=10&&after=", frozenset({"limit"}))
    assert fields == {"prefix": "a/b c", "limit": 10, "after": ""}
