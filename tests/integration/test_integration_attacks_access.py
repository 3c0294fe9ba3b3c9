"""Strangers, other tenants and credentials for other keys, at real nodes: refused, recorded, told nothing."""

import statistics
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from attacked import Attacked, Raw, ask, attacked, request

pytestmark = pytest.mark.process

TIMED_PAIRS = 150
TIMES_MAX = 3.0
"""How much longer one kind of answer may take than the other, in the median, on a busy machine. An answer
that came without a look into the state would be further away: most of the time goes to the disks."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("access")) as made:
        yield made


CALLS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/acquire", {"key": "k", "owner": "o", "ttl_ms": 30_000}),
    ("POST", "/v1/break", {"key": "held", "reason": "r"}),
    ("GET", "/v1/leases/held", None),
    ("GET", "/v1/audit", None),
    ("GET", "/v1/events", None),
    ("GET", "/v1/stream", None),
    ("GET", "/v1/cluster/backup", None),
    ("GET", "/metrics", None),
    ("POST", "/v1/credentials", {"name": "mine", "rights": ["admin"]}),
]


async def test_without_a_credential_no_node_does_or_tells_anything(target: Attacked) -> None:
    for node in target.nodes:
        bodies = set()
        for method, path, body in CALLS:
            for bearer in ("", "tenure.unknown." + "A" * 43):
                reply = await ask(node, method, path, body, bearer)
                assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), path
                bodies.add(reply.body)
        assert len(bodies) == 1, "all are refused in the same words"
    records = await target.audited("unauthenticated", 2 * len(CALLS) * len(target.nodes))
    assert {record["origin"] for record in records} == {"127.0.0.1"}
    assert target.logged("requests refused without a valid credential")
    await target.unharmed()


async def test_another_tenants_ids_are_answered_like_unknown_ones_by_every_node(target: Attacked) -> None:
    thief = await target.credential("thief")
    lease_id, token = target.lease["lease_id"], target.lease["token"]
    unknown = "A" * len(lease_id)

    def calls(shown: str) -> list[tuple[str, dict[str, Any]]]:
        return [
            ("/v1/renew", {"lease_id": shown}),
            ("/v1/release", {"lease_id": shown}),
            ("/v1/park", {"lease_id": shown, "limit_ms": 60_000}),
            ("/v1/commit", {"key": "held", "lease_id": shown, "token": token, "mode": "once"}),
        ]

    for node in target.nodes:
        for (path, known_body), (_, unknown_body) in zip(calls(lease_id), calls(unknown), strict=True):
            told = await ask(node, "POST", path, known_body, thief)
            expected = await ask(node, "POST", path, unknown_body, thief)
            assert (told.status, told.body) == (expected.status, expected.body), path
            differing = {"date", "x-request-id"}
            assert {n: v for n, v in told.headers.items() if n not in differing} == {
                n: v for n, v in expected.headers.items() if n not in differing
            }
    assert (await ask(target.nodes[0], "GET", "/v1/leases/held", bearer=thief)).status == 404
    await target.unharmed()


async def test_nor_does_the_time_tell_which_ids_another_tenant_has(target: Attacked) -> None:
    thief = await target.credential("watching thief")
    ids = {"known": target.lease["lease_id"], "unknown": "A" * len(target.lease["lease_id"])}
    took_s: dict[str, list[float]] = {kind: [] for kind in ids}
    async with await Raw.open(target.nodes[0].http_port) as raw:
        for pair in range(TIMED_PAIRS):
            for kind in sorted(ids, reverse=bool(pair % 2)):
                began_s = time.perf_counter()
                raw.send(request("POST", "/v1/renew", {"lease_id": ids[kind]}, thief))
                assert (await raw.answer()).status == 410
                took_s[kind].append(time.perf_counter() - began_s)
    known_s, unknown_s = (statistics.median(took_s[kind]) for kind in ("known", "unknown"))
    assert 1 / TIMES_MAX < known_s / unknown_s < TIMES_MAX


OUTSIDE = {
    "climbs": "a/../b",
    "climbs twice": "a/../../b",
    "starts elsewhere": "b/../a/x",
    "a dot": "./a/x",
    "two slashes": "//a/x",
    "a slash before": "/a/x",
    "upper case": "A/x",
    "escaped": "%61/x",
    "escaped twice": "%2561/x",
    "Cyrillic": "\u0430/x",
    "full width": "\uff41/x",
    "accent of its own": "a\u0301/x",
    "division slash": "a\u2215x",
    "a soft hyphen before": "\u00ada/x",
    "zero width before": "\u200ba/x",
    "right to left": "\u202ea/x",
    "backslash": "a\\x",
    "a blank before": " a/x",
}
"""Keys that do not begin with `a/`, whatever they look like; but for the first two, which do."""
WITHIN = {"climbs", "climbs twice"}


@pytest.mark.parametrize("name", OUTSIDE)
async def test_a_prefix_cannot_be_escaped_from_by_any_way_of_asking(target: Attacked, name: str) -> None:
    """A key that looks as if it were below the prefix is not; one that climbs out of it does not."""
    key = OUTSIDE[name]
    expected = 200 if name in WITHIN else 403
    bearer = await target.credential(f"of a, {name}", prefixes=["a/"])
    body = {"key": key, "owner": "o", "ttl_ms": 30_000}
    node = target.nodes[0]
    assert (await ask(node, "POST", "/v1/acquire", body, bearer)).status == expected
    quoted = "/v1/leases/" + quote(key, safe="")
    assert (await ask(node, "GET", quoted, bearer=bearer)).status == expected
    batch = await ask(node, "POST", "/v1/batch", {"ops": [{"op": "acquire", **body}]}, bearer)
    assert batch.json["results"][0]["status"] in ({409} if expected == 200 else {403})
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {bearer}"}) as session,
        session.ws_connect(f"{node.url}/v1/stream") as socket,
    ):
        await socket.send_bytes(msgspec.msgpack.encode([[1, "get_lease", {"key": key}]]))
        [[_, status, answered]] = msgspec.msgpack.decode((await socket.receive(timeout=30)).data)
        assert status == expected, answered
    if expected == 403:
        await target.audited("forbidden", 1, key=key)
    else:
        assert (await ask(node, "GET", "/v1/leases/b", bearer=bearer)).status == 403


async def test_keys_that_look_alike_are_different_keys(target: Attacked) -> None:
    bearer = await target.credential("collector")
    alike = [
        *OUTSIDE.values(),
        "b",
        "a/x",
        "caf\u00e9",
        "cafe\u0301",
        "\ufb01x",
        "fix",
        "K",
        "\u212a",
        "a/",
        "a",
    ]
    for key in alike:
        body = {"key": key, "owner": "o", "ttl_ms": 60_000}
        reply = await ask(target.nodes[0], "POST", "/v1/acquire", body, bearer)
        assert (reply.status, reply.json["lease"]["key"]) == (200, key), (
            "it is held by one that looks like it"
        )
    listed = (await ask(target.nodes[0], "GET", "/v1/leases?limit=1000", bearer=bearer)).json["leases"]
    assert {lease["key"] for lease in listed} == set(alike)
    for key in alike:
        reply = await ask(target.nodes[-1], "GET", "/v1/leases/" + quote(key, safe=""), bearer=bearer)
        assert (reply.status, reply.json["key"]) == (200, key)
    await target.unharmed()
