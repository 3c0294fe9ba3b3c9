"""Bad input: a problem answer that names the fault, nothing in the log, and the server goes on."""

import json
from typing import Any, NamedTuple

import msgspec
import pytest
from api_node import RunningNode
from api_wire import Reply, Wire, ask

BODY_BYTES_MAX = 262_144


class Bad(NamedTuple):
    """A request and the problem that answers it."""

    name: str
    method: str
    target: str | bytes
    body: Any
    status: int
    code: str
    path: str | None = None
    headers: dict[str, str] = {}  # noqa: RUF012


def acquire(
    name: str, status: int, code: str, path: str, *, without: str | None = None, **fields: Any
) -> Bad:
    """An acquire that is good but for the given fields."""
    body = {"key": "k", "owner": "o", "ttl_ms": 30_000, **fields}
    if without is not None:
        del body[without]
    return Bad(name, "POST", "/v1/acquire", body, status, code, path)


def raw(
    name: str, body: bytes, path: str = "$", status: int = 400, code: str = "invalid", **headers: str
) -> Bad:
    return Bad(name, "POST", "/v1/acquire", body, status, code, path if code == "invalid" else None, headers)


def commit(name: str, status: int, code: str, path: str, **fields: Any) -> Bad:
    body = {"key": "k", "lease_id": "l", "token": 1, "mode": "once", **fields}
    return Bad(name, "POST", "/v1/commit", body, status, code, path)


def get(name: str, target: str | bytes, path: str, status: int = 400, code: str = "invalid") -> Bad:
    return Bad(name, "GET", target, b"", status, code, path)


FIELDS = [
    acquire("unknown field", 400, "invalid", "$.ttl", ttl=30),
    acquire("empty field name", 400, "invalid", "$.", **{"": 1}),
    acquire("missing owner", 400, "invalid", "$.owner", without="owner"),
    acquire("no key", 400, "invalid", "$.key", without="key"),
    acquire("key and keys", 400, "invalid", "$.keys", keys=["k"]),
    acquire("no keys", 400, "invalid", "$.keys", without="key", keys=[]),
    acquire("wrong type in keys", 400, "invalid", "$.keys[1]", without="key", keys=["k", 7]),
    acquire("number for text", 400, "invalid", "$.key", key=7),
    acquire("text for a number", 400, "invalid", "$.ttl_ms", ttl_ms="30000"),
    acquire("fraction", 400, "invalid", "$.ttl_ms", ttl_ms=30_000.5),
    acquire("whole number written as a fraction", 400, "invalid", "$.ttl_ms", ttl_ms=30_000.0),
    acquire("boolean for a number", 400, "invalid", "$.ttl_ms", ttl_ms=True),
    acquire("unknown mode", 400, "invalid", "$.mode", mode="exclusiv"),
    acquire("slots of a shared lease", 400, "invalid", "$.slots", mode="shared", slots=2),
    acquire("no slots of a pool", 400, "invalid", "$.slots", mode="permit"),
    acquire("too many slots", 422, "out_of_range", "$.slots", mode="permit", slots=1_001),
    acquire("a pool without slots", 422, "out_of_range", "$.slots", mode="permit", slots=0),
    acquire("no TTL", 400, "invalid", "$.ttl_ms", without="ttl_ms"),
    acquire("TTL with a session", 400, "invalid", "$.ttl_ms", session_id="s"),
    acquire("TTL of nothing", 422, "out_of_range", "$.ttl_ms", ttl_ms=0),
    acquire("TTL below the bound", 422, "out_of_range", "$.ttl_ms", ttl_ms=2_999),
    acquire("TTL above the bound", 422, "out_of_range", "$.ttl_ms", ttl_ms=86_400_001),
    acquire("negative TTL", 422, "out_of_range", "$.ttl_ms", ttl_ms=-1),
    acquire("TTL beyond 64 bits", 422, "out_of_range", "$.ttl_ms", ttl_ms=2**64),
    acquire("TTL of 4,000 digits", 422, "out_of_range", "$.ttl_ms", ttl_ms=10**3_999),
    acquire("negative wait", 422, "out_of_range", "$.wait_ms", wait_ms=-1),
    acquire("wait beyond 64 bits", 422, "out_of_range", "$.wait_ms", wait_ms=2**70),
    acquire("grace beyond 64 bits", 422, "out_of_range", "$.grace_ms", grace_ms=2**70),
    acquire("slots beyond 64 bits", 400, "invalid", "$.slots", slots=2**70),
    acquire("empty key", 422, "out_of_range", "$.key", key=""),
    acquire("key of 513 bytes", 422, "out_of_range", "$.key", key="k" * 513),
    acquire("key of 300 characters and 600 bytes", 422, "out_of_range", "$.key", key="ä" * 300),
    acquire("key with NUL", 400, "invalid", "$.key", key="a\0b"),
    acquire("key with a newline", 400, "invalid", "$.key", key="a\nb"),
    acquire("empty owner", 422, "out_of_range", "$.owner", owner=""),
    acquire("owner of 257 bytes", 422, "out_of_range", "$.owner", owner="o" * 257),
    acquire("empty request_id", 422, "out_of_range", "$.request_id", request_id=""),
    acquire("request_id of 129 bytes", 422, "out_of_range", "$.request_id", request_id="r" * 129),
    acquire("metadata of numbers", 400, "invalid", "$.metadata[...]", metadata={"a": 1}),
    acquire("nested metadata", 400, "invalid", "$.metadata[...]", metadata={"a": {}}),
    acquire("metadata above 4 KiB", 422, "out_of_range", "$.metadata", metadata={"a": "b" * 4_096}),
    commit("token beyond 2^53", 422, "out_of_range", "$.token", token=2**53),
    commit("negative token", 422, "out_of_range", "$.token", token=-1),
    commit("slot beyond 64 bits", 422, "out_of_range", "$.slot", slot=2**70),
    commit("seq beyond 64 bits", 422, "out_of_range", "$.seq", mode="sequence", seq=2**70),
    commit("seq in another mode", 400, "invalid", "$.seq", seq=1),
    commit("no seq", 400, "invalid", "$.seq", mode="sequence"),
    commit("revision beyond 64 bits", 422, "out_of_range", "$.if_revision", if_revision=2**70),
    commit("value above 64 KiB", 422, "out_of_range", "$.value", value="v" * 65_537),
    commit("value that is not base64", 400, "invalid", "$.value", value="%%", value_encoding="base64"),
    Bad("renew of nothing", "POST", "/v1/renew", {}, 400, "invalid", "$.lease_id"),
    Bad(
        "renew of two",
        "POST",
        "/v1/renew",
        {"lease_id": "a", "session_id": "b"},
        400,
        "invalid",
        "$.lease_id",
    ),
    Bad("break without a reason", "POST", "/v1/break", {"key": "k"}, 400, "invalid", "$.reason"),
    Bad("session without a TTL", "POST", "/v1/sessions", {"owner": "o"}, 400, "invalid", "$.ttl_ms"),
]

BODIES = [
    raw("no body", b""),
    raw("not JSON", b"key=k&owner=o"),
    raw("half of JSON", b'{"key": "k"'),
    raw("two documents", b'{"owner": "o"} {}'),
    raw("array", b"[]"),
    raw("null", b"null"),
    raw("NaN", b'{"owner": "o", "ttl_ms": NaN}'),
    raw("number of 5,000 digits", b'{"owner": "o", "ttl_ms": ' + b"9" * 5_000 + b"}", "$.ttl_ms"),
    raw("infinity", b'{"owner": "o", "ttl_ms": -Infinity}'),
    raw("byte order mark", b'\xef\xbb\xbf{"owner": "o"}'),
    raw("NUL", b"\0"),
    raw("bytes that are not UTF-8", b'{"owner": "\xff", "key": "k", "ttl_ms": 30000}'),
    raw("surrogates as UTF-8", b'{"owner": "\xed\xa0\x80", "key": "k", "ttl_ms": 30000}'),
    raw("lone surrogate", b'{"owner": "\\ud800", "key": "k", "ttl_ms": 30000}'),
    raw("lone surrogate within", b'{"owner": "a\\udc00b", "key": "k", "ttl_ms": 30000}'),
    raw("deep nesting", b'{"owner": ' + b"[" * 100_000, "$.owner"),
    raw("deep nesting all over", b"[" * 200_000),
    raw("deep nesting in an unknown field", b'{"x": ' + b'{"x": ' * 30_000, "$.x"),
    raw("body above the limit", b" " * (BODY_BYTES_MAX + 1), status=413, code="too_large"),
    raw("text", b'{"owner": "o"}', status=415, code="unsupported_media_type", content_type="text/plain"),
    raw("XML", b"<a/>", status=415, code="unsupported_media_type", content_type="application/xml"),
    raw("garbage for a type", b"{}", status=415, code="unsupported_media_type", content_type="\t;;,"),
    raw("compressed", b"\x1f\x8b", status=415, code="unsupported_media_type", content_encoding="gzip"),
    raw(
        "form from another site's page",
        b'{"key": "k", "owner": "o", "ttl_ms": 30000}',
        status=415,
        code="unsupported_media_type",
        content_type="application/x-www-form-urlencoded",
        origin="http://evil.example",
    ),
    raw(
        "MessagePack that ends early",
        b"\xdf\xff\xff\xff\xff",
        content_type="application/msgpack",
        accept="*/*, application/json",
    ),
    raw("MessagePack that isn't", b"\xc1", content_type="application/msgpack", accept="application/json"),
    raw(
        "deep MessagePack",
        b"\x81\xa5owner" + b"\x91" * 100_000,
        "$.owner",
        content_type="application/msgpack",
        accept="application/json",
    ),
    raw(
        "bytes for text",
        msgspec.msgpack.encode({"owner": b"o"}),
        "$.owner",
        content_type="application/msgpack",
        accept="application/json",
    ),
    raw(
        "MessagePack extension",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")),
        content_type="application/msgpack",
        accept="application/json",
    ),
]

BATCHES = [
    Bad(
        "1,001 operations",
        "POST",
        "/v1/batch",
        {"ops": [{"op": "release", "lease_id": "l"}] * 1_001},
        422,
        "out_of_range",
        "$.ops",
    ),
    Bad(
        "fault in one",
        "POST",
        "/v1/batch",
        {
            "ops": [{"op": "release", "lease_id": "l"}] * 3
            + [{"op": "acquire", "key": "k", "owner": "o", "ttl_ms": "1"}]
        },
        400,
        "invalid",
        "$.ops[3].ttl_ms",
    ),
    Bad(
        "unknown field in one",
        "POST",
        "/v1/batch",
        {"ops": [{"op": "release", "lease_id": "l", "x": 1}]},
        400,
        "invalid",
        "$.ops[0].x",
    ),
    Bad(
        "unknown operation",
        "POST",
        "/v1/batch",
        {"ops": [{"op": "list_leases"}]},
        400,
        "invalid",
        "$.ops[0].op",
    ),
    Bad(
        "operation without op",
        "POST",
        "/v1/batch",
        {"ops": [{"lease_id": "l"}]},
        400,
        "invalid",
        "$.ops[0].op",
    ),
    Bad("deep nesting in one", "POST", "/v1/batch", b'{"ops": [{"x": ' + b"[" * 100_000, 400, "invalid", "$"),
    Bad("ops of another kind", "POST", "/v1/batch", {"ops": {}}, 400, "invalid", "$.ops"),
]

TARGETS = [
    get("empty key", "/v1/leases/", "$.key", 422, "out_of_range"),
    get("key with NUL", "/v1/leases/a%00b", "$.key"),
    get("key with a newline", "/v1/leases/a%0Ab", "$.key"),
    get("over-long key", "/v1/leases/" + "k" * 513, "$.key", 422, "out_of_range"),
    get("key that is not UTF-8", "/v1/leases/%ff", "$.key"),
    get("key of raw bytes", b"/v1/leases/\xff", "$"),
    get("key with a surrogate", "/v1/leases/%ed%a0%80", "$.key"),
    get("half an escape", "/v1/leases/a%2", "$.key"),
    get("no escape at all", "/v1/leases/100%", "$.key"),
    get("escape of other letters", "/v1/leases/%zz", "$.key"),
    get("fragment", "/v1/leases/a#b", "$.key"),
    get("unknown query field", "/v1/leases?limits=3", "$.limits"),
    get("field twice", "/v1/leases?limit=3&limit=4", "$.limit"),
    get("text for a number", "/v1/leases?limit=three", "$.limit"),
    get("fraction for a number", "/v1/leases?limit=1.0", "$.limit"),
    get("null for a number", "/v1/leases?limit=null", "$.limit"),
    get("number in other digits", "/v1/leases?limit=%D9%A3", "$.limit"),
    get("empty number", "/v1/leases?limit=", "$.limit"),
    get("number beyond the bound", "/v1/leases?limit=1001", "$.limit", 422, "out_of_range"),
    get("number of 40 digits", "/v1/leases?limit=" + "9" * 40, "$.limit", 422, "out_of_range"),
    get("query that is not UTF-8", "/v1/leases?prefix=%ff", "$.prefix"),
    get("half an escape in the query", "/v1/leases?prefix=%", "$.prefix"),
    get("unknown consistency", "/v1/leases/k?consistency=eventual", "$.consistency"),
    get("key in the query", "/v1/leases/k?key=j", "$.key"),
    get("many query fields", "/v1/leases?" + "&" * 100, "$"),
    Bad(
        "null for a revision",
        "DELETE",
        "/v1/records/k?if_revision=null",
        b"",
        400,
        "invalid",
        "$.if_revision",
    ),
    Bad("body with a DELETE", "DELETE", "/v1/records/k", {"if_revision": 3}, 400, "invalid", "$"),
    Bad("body with a GET", "GET", "/v1/leases/k", {"consistency": "stale"}, 400, "invalid", "$"),
    Bad("query with a POST", "POST", "/v1/release?lease_id=l", {"lease_id": "l"}, 400, "invalid", "$"),
    Bad("query of a call without fields", "GET", "/livez?verbose=1", b"", 400, "invalid", "$.verbose"),
    Bad("unknown route", "GET", "/v1/lock/k", b"", 404, "no_route"),
    Bad("route of another version", "POST", "/v2/acquire", {}, 404, "no_route"),
    Bad("root", "GET", "/", b"", 404, "no_route"),
    Bad("route with a slash too many", "POST", "/v1/acquire/", {}, 404, "no_route"),
    Bad("route that climbs", "POST", "/v1/leases/../acquire", {}, 405, "method_not_allowed"),
    Bad("escaped route", "POST", "/v1/%61cquire", {}, 404, "no_route"),
    Bad("unknown route in raw bytes", "GET", b"/\xff\xfe", b"", 400, "invalid", "$"),
]


@pytest.mark.parametrize("bad", [*FIELDS, *BODIES, *BATCHES, *TARGETS], ids=lambda bad: bad.name)
async def test_bad_input_is_answered_and_leaves_nothing(node: RunningNode, bad: Bad) -> None:
    before = node.last_index()
    reply = await ask(node.port, bad.method, bad.target, bad.body, **bad.headers)
    assert (reply.status, reply.code) == (bad.status, bad.code), reply
    assert reply.json["detail"]
    if bad.path is not None:
        assert reply.json["path"] == bad.path
    assert node.last_index() == before
    assert (await ask(node.port, "GET", "/livez")).status == 200


@pytest.mark.parametrize("bound", ["3000", "86400000"])
async def test_out_of_range_names_the_bound(node: RunningNode, bound: str) -> None:
    body = {"key": "k", "owner": "o", "ttl_ms": 1}
    assert bound in (await ask(node.port, "POST", "/v1/acquire", body)).json["detail"]


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("GET", "/v1/acquire", "POST"),
        ("PUT", "/v1/acquire", "POST"),
        ("DELETE", "/v1/leases/k", "GET, HEAD"),
        ("POST", "/v1/records/k", "DELETE, GET, HEAD"),
        ("OPTIONS", "/v1/acquire", "POST"),
        ("TRACE", "/livez", "GET, HEAD"),
        ("PATCH", "/v1/sessions", "POST"),
    ],
)
async def test_wrong_method_is_told_the_right_ones(
    node: RunningNode, method: str, target: str, allow: str
) -> None:
    reply = await ask(node.port, method, target)
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers["allow"] == allow


NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # the beginning of TLS
    b"hello\r\n\r\n",
    b"GET /livez HTTP/9.9\r\nhost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",  # no Host
    b"GET /livez HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n",
    b"GET /li vez HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /livez\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /v1/renew HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/renew HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /v1/renew HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    b"POST /v1/renew HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20_000 + b"\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 1_000 + b"\r\n",
    b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("data", NOT_HTTP, ids=[f"not HTTP {n}" for n in range(len(NOT_HTTP))])
async def test_what_is_not_http_is_refused_or_cut_off(node: RunningNode, small: int, data: bytes) -> None:
    before = node.last_index()
    async with await Wire.open(small) as wire:
        wire.send(data)
        answered = await wire.closed(within_s=15)
        if answered:
            head, _, body = answered.partition(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")), answered
            assert json.loads(body)["code"] in ("invalid", "no_route", "method_not_allowed")
    assert node.last_index() == before
    assert (await ask(small, "GET", "/livez")).status == 200


async def test_too_large_is_said_before_the_body_is_sent(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        wire.send(
            b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"expect: 100-continue\r\ncontent-length: 1000000000\r\n\r\n"
        )
        reply = await wire.answer()
    assert (reply.status, reply.code) == (413, "too_large")
    assert str(BODY_BYTES_MAX) in reply.json["detail"]


async def test_too_large_is_said_of_a_chunked_body_that_does_not_end(node: RunningNode) -> None:
    before = node.last_index()
    async with await Wire.open(node.port) as wire:
        wire.send(b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            wire.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        reply = await wire.answer()
        assert (reply.status, reply.code) == (413, "too_large")
        assert reply.headers["connection"] == "close"
    assert node.last_index() == before


async def test_a_body_of_exactly_the_limit_is_read(node: RunningNode) -> None:
    body = b'{"lease_id": "l"}'.ljust(BODY_BYTES_MAX)
    reply: Reply = await ask(node.port, "POST", "/v1/release", body)
    assert (reply.status, reply.code) == (410, "lost")
