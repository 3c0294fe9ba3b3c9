"""Every call of the interface against a real node: what it answers, in which shape, with which headers."""

import asyncio
import itertools
import json
import re
from typing import Any

import msgspec
import pytest
from api_node import RunningNode
from api_wire import Reply, Wire, ask

from tenure_cluster.api.routes import ROUTES

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

_numbers = itertools.count()


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"routes/{next(_numbers)}"


class Client:
    """Calls that are expected to succeed answer their body."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def post(self, name: str, expected: int = 200, /, **body: Any) -> Any:
        reply = await ask(self.port, "POST", f"/v1/{name}", body)
        assert reply.status == expected, reply
        return reply.json

    async def get(self, target: str, expected: int = 200) -> Any:
        reply = await ask(self.port, "GET", f"/v1/{target}")
        assert reply.status == expected, reply
        return reply.json

    async def delete(self, target: str, expected: int = 200) -> Any:
        reply = await ask(self.port, "DELETE", f"/v1/{target}")
        assert reply.status == expected, reply
        return reply.json

    async def lease(self, key: str, **fields: Any) -> Any:
        body = {"key": key, "owner": "agent-a", "ttl_ms": 30_000, **fields}
        return (await self.post("acquire", **body))["lease"]


@pytest.fixture
def client(node: RunningNode) -> Client:
    return Client(node.port)


async def test_acquire_grants_and_replays(client: Client, key: str) -> None:
    body = {
        "key": key,
        "owner": "agent-a",
        "ttl_ms": 30_000,
        "request_id": key,
        "metadata": {"workflow": "w1"},
    }
    granted = await client.post("acquire", **body)
    assert granted["status"] == "granted"
    assert "replayed" not in granted
    lease = granted["lease"]
    assert set(lease) == {
        "lease_id",
        "session_id",
        "key",
        "owner",
        "token",
        "mode",
        "slot",
        "ttl_ms",
        "expires_in_ms",
        "metadata",
        "granted_at",
        "renewed_at",
        "revision",
    }
    assert (lease["key"], lease["owner"], lease["mode"], lease["slot"]) == (key, "agent-a", "exclusive", 0)
    assert 0 < lease["expires_in_ms"] <= lease["ttl_ms"] == 30_000
    assert lease["metadata"] == {"workflow": "w1"}
    assert RFC_3339.fullmatch(lease["granted_at"])
    replay = await client.post("acquire", **body)
    assert replay["replayed"] is True
    assert (replay["lease"]["lease_id"], replay["lease"]["token"]) == (lease["lease_id"], lease["token"])


async def test_acquire_of_a_held_key_names_the_holder(client: Client, key: str) -> None:
    lease = await client.lease(key)
    refused = await client.post("acquire", 409, key=key, owner="agent-b", ttl_ms=30_000)
    assert refused["code"] == "held"
    assert (refused["holder"]["owner"], refused["holder"]["token"]) == ("agent-a", lease["token"])
    assert "lease_id" not in refused["holder"]


async def test_acquire_waits_and_says_where_it_stands(client: Client, key: str) -> None:
    await client.lease(key)
    waiting = await client.post(
        "acquire", 202, key=key, owner="agent-b", ttl_ms=30_000, wait_ms=50, request_id=f"{key}/b"
    )
    assert (waiting["status"], waiting["position"]) == ("waiting", 1)
    assert waiting["ahead"] == [{"owner": "agent-a", "state": "holding"}]
    assert waiting["request_id"] == f"{key}/b"
    assert await client.post("abandon", request_id=f"{key}/b") == {"status": "abandoned"}


async def test_a_waiter_is_granted_when_the_holder_releases(client: Client, key: str) -> None:
    lease = await client.lease(key)
    body = {"key": key, "owner": "agent-b", "ttl_ms": 30_000, "wait_ms": 20_000, "request_id": f"{key}/b"}
    waiting = asyncio.create_task(client.post("acquire", **body))
    while not (await client.get(f"queues/{key}"))["waiters"]:  # noqa: ASYNC110 -- the condition is the node's
        await asyncio.sleep(0.01)
    await client.post("release", lease_id=lease["lease_id"])
    granted = (await waiting)["lease"]
    assert granted["owner"] == "agent-b"
    assert granted["token"] > lease["token"]


async def test_a_set_of_one_key_answers_leases(client: Client, key: str) -> None:
    granted = await client.post("acquire", keys=[key], owner="agent-a", ttl_ms=30_000)
    assert [lease["key"] for lease in granted["leases"]] == [key]
    assert "lease" not in granted


async def test_renew_and_release(client: Client, key: str) -> None:
    lease = await client.lease(key)
    renewed = (await client.post("renew", lease_id=lease["lease_id"], ttl_ms=60_000))["lease"]
    assert (renewed["lease_id"], renewed["token"]) == (lease["lease_id"], lease["token"])
    assert renewed["expires_in_ms"] > 30_000
    assert await client.post("release", lease_id=lease["lease_id"]) == {"status": "released"}
    assert await client.post("release", lease_id=lease["lease_id"]) == {"status": "already_released"}
    lost = await client.post("renew", 410, lease_id=lease["lease_id"])
    assert (lost["code"], lost["reason"]) == ("lost", "released")


async def test_break_names_whom_it_hit(client: Client, key: str) -> None:
    lease = await client.lease(key)
    broken = await client.post("break", key=key, reason="its machine is gone")
    assert broken == {"broken": [{"owner": "agent-a", "token": lease["token"]}]}
    lost = await client.post("release", 410, lease_id=lease["lease_id"])
    assert (lost["code"], lost["reason"]) == ("lost", "broken")
    assert await client.post("break", key=f"{key}/nobody", reason="r") == {"broken": []}


async def test_validate(client: Client, key: str) -> None:
    lease = await client.lease(key)
    token = lease["token"]
    assert await client.post("validate", key=key, token=token) == {
        "valid": True,
        "reason": "",
        "current_token": token,
    }
    await client.post("release", lease_id=lease["lease_id"])
    assert await client.post("validate", key=key, token=token) == {
        "valid": False,
        "reason": "not_live",
        "current_token": token,
    }


async def test_commit_and_record(client: Client, key: str) -> None:
    lease = await client.lease(key)
    write = {"key": key, "lease_id": lease["lease_id"], "token": lease["token"], "mode": "once"}
    accepted = await client.post("commit", **write, value="artifact", digest="sha256:1")
    assert accepted["status"] == "accepted"
    record = await client.get(f"records/{key}")
    assert (record["value"], record["value_encoding"], record["digest"]) == ("artifact", "utf8", "sha256:1")
    assert (record["token"], record["revision"]) == (lease["token"], accepted["revision"])
    refused = await client.post("commit", 412, **write, value="again")
    assert refused["code"] == "token_used"
    conflict = await client.delete(f"records/{key}?if_revision=1000000", 412)
    assert conflict["code"] == "revision_conflict"
    assert await client.delete(f"records/{key}?if_revision={record['revision']}") == {"status": "deleted"}
    assert (await client.get(f"records/{key}", 404))["code"] == "no_record"
    assert (await client.delete(f"records/{key}", 404))["code"] == "no_record"


async def test_a_late_commit_is_refused_with_the_floor(client: Client, key: str) -> None:
    old = await client.lease(key)
    await client.post("release", lease_id=old["lease_id"])
    new = await client.lease(key)
    refused = await client.post(
        "commit", 412, key=key, lease_id=old["lease_id"], token=old["token"], mode="current", value="late"
    )
    assert (refused["code"], refused["floor"]) == ("stale_token", new["token"])


async def test_bytes_come_back_as_base64(client: Client, key: str) -> None:
    lease = await client.lease(key)
    write = {"key": key, "lease_id": lease["lease_id"], "token": lease["token"], "mode": "current"}
    await client.post("commit", **write, value="/wA=", value_encoding="base64")
    record = await client.get(f"records/{key}")
    assert (record["value"], record["value_encoding"]) == ("/wA=", "base64")


async def test_lease_get_and_list(client: Client, key: str) -> None:
    for name in ("a", "b", "c"):
        await client.lease(f"{key}/{name}", owner=f"owner-{name}")
    lease = await client.get(f"leases/{key}/a")
    assert lease["owner"] == "owner-a"
    assert "lease_id" not in lease
    assert "session_id" not in lease
    assert (await client.get(f"leases/{key}/d", 404))["code"] == "not_held"
    page = await client.get(f"leases?prefix={key}/&limit=2")
    assert [lease["key"] for lease in page["leases"]] == [f"{key}/a", f"{key}/b"]
    rest = await client.get(f"leases?prefix={key}/&limit=2&after={page['next']}")
    assert ([lease["key"] for lease in rest["leases"]], rest["next"]) == ([f"{key}/c"], None)
    own = await client.get(f"leases?prefix={key}/&owner=owner-b")
    assert [lease["key"] for lease in own["leases"]] == [f"{key}/b"]


async def test_stale_reads_say_how_old_they_are(client: Client, key: str) -> None:
    await client.lease(key)
    lease = await client.get(f"leases/{key}?consistency=stale")
    assert lease["applied_index"] > 0
    assert "applied_index" not in await client.get(f"leases/{key}")


async def test_every_read_that_may_be_stale_says_how_old_it_is(client: Client, key: str) -> None:
    lease = await client.lease(key)
    await client.post(
        "commit", key=key, lease_id=lease["lease_id"], token=lease["token"], mode="once", value="v"
    )
    session = (await client.post("sessions", owner="a", ttl_ms=30_000))["session"]["session_id"]
    for path in (f"leases/{key}", "leases", f"queues/{key}", f"records/{key}", f"sessions/{session}"):
        assert "applied_index" not in await client.get(path), path
        assert (await client.get(f"{path}?consistency=stale"))["applied_index"] > 0, path
    for path in ("leases/nobody's", "records/nobody's", "sessions/nobody's"):
        assert (await client.get(f"{path}?consistency=stale", 404))["applied_index"] > 0, path


async def test_queue(client: Client, key: str) -> None:
    await client.lease(key)
    for name in ("b", "c"):
        body = {"key": key, "owner": name, "ttl_ms": 30_000, "wait_ms": 20, "request_id": f"{key}/{name}"}
        await client.post("acquire", 202, **body)
    queue = await client.get(f"queues/{key}")
    assert [holder["owner"] for holder in queue["holders"]] == ["agent-a"]
    assert [(waiter["position"], waiter["owner"]) for waiter in queue["waiters"]] == [(1, "b"), (2, "c")]
    assert queue["waiters_total"] == 2
    for name in ("b", "c"):
        await client.post("abandon", request_id=f"{key}/{name}")


async def test_sessions(client: Client, key: str) -> None:
    session = (await client.post("sessions", owner="agent-a", ttl_ms=30_000, metadata={"a": "b"}))["session"]
    session_id = session["session_id"]
    assert (session["owner"], session["ttl_ms"], session["leases"]) == ("agent-a", 30_000, 0)
    await client.post("acquire", key=key, owner="agent-a", session_id=session_id)
    assert (await client.post("renew", session_id=session_id))["session"]["leases"] == 1
    assert (await client.get(f"sessions/{session_id}"))["session"]["leases"] == 1
    assert await client.delete(f"sessions/{session_id}") == {"status": "closed", "leases": 1}
    assert (await client.get(f"leases/{key}", 404))["code"] == "not_held"
    assert (await client.get(f"sessions/{session_id}", 404))["code"] == "no_session"
    assert (await client.post("acquire", 404, key=key, owner="o", session_id="x"))["code"] == "no_session"


async def test_cluster(client: Client, node: RunningNode) -> None:
    cluster = await client.get("cluster")
    assert (cluster["cluster_id"], cluster["node"], cluster["role"]) == ("api-tests", "n1", "leader")
    assert cluster["leader_url"] == node.url
    assert [member["id"] for member in cluster["members"]] == ["n1"]
    assert cluster["last_index"] >= cluster["commit_index"] >= cluster["applied_index"] > 0


async def test_probes(node: RunningNode) -> None:
    assert (await ask(node.port, "GET", "/livez")).json == {"status": "alive"}
    assert (await ask(node.port, "GET", "/readyz")).json == {"status": "ready"}


# Keys


@pytest.mark.parametrize(
    ("path", "exact"),
    [
        ("a/../b", "a/../b"),
        ("a/%2e%2e/b", "a/../b"),
        ("a%2F..%2Fb", "a/../b"),
        ("../b", "../b"),
        ("a//b", "a//b"),
        ("a/./b", "a/./b"),
        ("a/", "a/"),
        ("/a", "/a"),
        ("a+b", "a+b"),
        ("a%20b", "a b"),
        ("a%25b", "a%b"),
        ("a%3Fb", "a?b"),
        ("a%23b", "a#b"),
        ("%E2%82%AC", "€"),
        ("a;b=c,d", "a;b=c,d"),
        ("http://x/y", "http://x/y"),
    ],
)
async def test_keys_in_paths_are_taken_as_they_are(client: Client, path: str, exact: str) -> None:
    key = f"exact {next(_numbers)}:{exact}"
    await client.lease(key)
    escaped = key[: len(key) - len(exact)].replace(" ", "%20")
    assert (await client.get(f"leases/{escaped}{path}"))["key"] == key
    assert (await client.get(f"queues/{escaped}{path}"))["key"] == key
    if ".." in exact:  # and the path that it would be if anything were normalised is another key
        assert (await client.get(f"leases/{escaped}b", 404))["code"] == "not_held"


async def test_a_key_of_the_greatest_length_in_three_bytes_a_character(client: Client) -> None:
    key = "€" * 170 + "zz"
    await client.lease(key)
    assert (await client.get("leases/" + "%E2%82%AC" * 170 + "zz"))["key"] == key


# Batches


async def test_a_batch_answers_each_operation_as_its_call_would(client: Client, key: str) -> None:
    held = await client.lease(f"{key}/held")
    acquire = {"op": "acquire", "owner": "agent-a", "ttl_ms": 30_000}
    ops = [
        {**acquire, "key": f"{key}/free"},
        {**acquire, "key": f"{key}/held", "owner": "agent-b"},
        {**acquire, "key": f"{key}/short", "ttl_ms": 1},
        {"op": "renew", "lease_id": held["lease_id"]},
        {"op": "validate", "key": f"{key}/held", "token": held["token"]},
        {
            "op": "commit",
            "key": f"{key}/held",
            "lease_id": held["lease_id"],
            "token": held["token"],
            "mode": "once",
            "value": "v",
        },
        {"op": "release", "lease_id": held["lease_id"]},
        {"op": "release", "lease_id": "nobody's"},
        {"op": "abandon", "request_id": "nothing"},
        {"op": "break", "key": f"{key}/held", "reason": "r"},
    ]
    results = (await client.post("batch", ops=ops))["results"]
    assert [result["status"] for result in results] == [200, 409, 422, 200, 200, 200, 200, 410, 200, 200]
    assert (results[0]["result"], results[0]["lease"]["key"]) == ("granted", f"{key}/free")
    assert (results[1]["code"], results[1]["holder"]["owner"]) == ("held", "agent-a")
    assert (results[2]["code"], results[2]["path"]) == ("out_of_range", "$.ops[2].ttl_ms")
    assert results[3]["lease"]["token"] == held["token"]
    assert results[5]["result"] == "accepted"
    assert results[6] == {"status": 200, "result": "released"}
    assert results[7]["reason"] == "unknown"


async def test_a_batched_acquire_whose_request_is_queued_is_told_its_place(client: Client, key: str) -> None:
    await client.lease(key)
    queued = {"key": key, "owner": "agent-b", "ttl_ms": 30_000, "request_id": f"{key}/r"}
    await client.post("acquire", 202, **queued, wait_ms=10)
    ops = [{"op": "acquire", **queued}, {"op": "abandon", "request_id": queued["request_id"]}]
    [told, abandoned] = (await client.post("batch", ops=ops))["results"]
    assert (told["status"], told["result"], told["position"]) == (202, "waiting", 1)
    assert abandoned == {"status": 200, "result": "abandoned"}


async def test_a_batch_of_a_thousand(client: Client, key: str) -> None:
    ops = [
        {"op": "acquire", "key": f"{key}/{number}", "owner": "o", "ttl_ms": 30_000} for number in range(1_000)
    ]
    results = (await client.post("batch", ops=ops))["results"]
    assert [result["lease"]["key"] for result in results] == [op["key"] for op in ops]
    tokens = [result["lease"]["token"] for result in results]
    assert tokens == sorted(set(tokens))


async def test_an_empty_batch(client: Client) -> None:
    assert await client.post("batch", ops=[]) == {"results": []}


# Formats and headers


async def msgpack(port: int, method: str, target: str, body: Any) -> Reply:
    packed = msgspec.msgpack.encode(body) if body is not None else b""
    return await ask(port, method, target, packed, content_type="application/msgpack")


async def test_messagepack_both_ways(node: RunningNode, key: str) -> None:
    body = {"key": key, "owner": "agent-a", "ttl_ms": 30_000}
    granted = await msgpack(node.port, "POST", "/v1/acquire", body)
    assert (granted.status, granted.headers["content-type"]) == (200, "application/msgpack")
    assert msgspec.msgpack.decode(granted.body)["lease"]["key"] == key
    refused = await msgpack(node.port, "POST", "/v1/acquire", {**body, "owner": "agent-b"})
    assert (refused.status, refused.headers["content-type"]) == (409, "application/problem+msgpack")
    assert msgspec.msgpack.decode(refused.body)["holder"]["owner"] == "agent-a"
    batch = await msgpack(node.port, "POST", "/v1/batch", {"ops": [{"op": "abandon", "request_id": "r"}]})
    assert msgspec.msgpack.decode(batch.body) == {"results": [{"status": 200, "result": "abandoned"}]}
    read = await ask(node.port, "GET", f"/v1/leases/{key}", accept="application/msgpack")
    assert msgspec.msgpack.decode(read.body)["key"] == key
    crossed = await ask(node.port, "POST", "/v1/release", {"lease_id": "l"}, accept="application/msgpack")
    assert msgspec.msgpack.decode(crossed.body)["code"] == "lost"


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": ""},
        {"content_type": "application/json; charset=utf-8", "origin": "http://127.0.0.1:7601"},
    ],
    ids=["as curl says it", "unsaid", "from a page that was allowed to"],
)
async def test_json_is_read_whatever_a_newcomer_calls_it(node: RunningNode, headers: dict[str, str]) -> None:
    assert (await ask(node.port, "POST", "/v1/release", {"lease_id": "l"}, **headers)).code == "lost"


@pytest.mark.parametrize("header", ["origin", "sec_fetch_site"])
@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "", "text/plain"])
async def test_a_web_page_cannot_call_without_being_allowed_to(
    node: RunningNode, header: str, content_type: str
) -> None:
    headers = {header: "cross-site", "content_type": content_type}
    reply = await ask(node.port, "POST", "/v1/break", {"key": "k", "reason": "r"}, **headers)
    assert (reply.status, reply.code) == (415, "unsupported_media_type")
    preflight = await ask(node.port, "OPTIONS", "/v1/break", origin="http://evil.example")
    assert preflight.status == 405
    assert not any(name.startswith("access-control-") for name in preflight.headers)


async def test_every_answer_has_a_request_id_and_names_the_leader(node: RunningNode) -> None:
    for method, target in [
        ("GET", "/livez"),
        ("GET", "/v1/leases/x"),
        ("GET", "/nowhere"),
        ("PUT", "/livez"),
    ]:
        reply = await ask(node.port, method, target)
        assert reply.headers["x-request-id"]
        assert reply.headers["x-tenure-leader"] == node.url
        assert reply.headers["date"].endswith(" GMT")
    first, second = [(await ask(node.port, "GET", "/livez")).headers["x-request-id"] for _ in range(2)]
    assert first != second


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        ("req-1", True),
        ("550e8400-e29b-41d4-a716-446655440000", True),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("two words", False),
        ("ä", False),
        ('"quoted"', False),
    ],
)
async def test_a_sane_request_id_is_echoed(node: RunningNode, sent: str, echoed: bool) -> None:
    reply = await ask(node.port, "GET", "/livez", x_request_id=sent)
    assert (reply.headers["x-request-id"] == sent) is echoed


async def test_head_is_get_without_the_body(node: RunningNode) -> None:
    async with await Wire.open(node.port) as wire:
        got = await wire.ask("GET", "/livez")
        head = await wire.ask("HEAD", "/livez")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
        assert (await wire.ask("HEAD", "/v1/leases/nobody")).status == 404
        assert (await wire.ask("GET", "/livez")).status == 200


async def test_the_absolute_form_of_a_target(node: RunningNode) -> None:
    assert (await ask(node.port, "GET", f"{node.url}/livez")).status == 200


async def test_the_table_has_every_call_once() -> None:
    calls = [(route.method, route.path) for route in ROUTES]
    assert len(calls) == len(set(calls))
    operations = [route.operation for route in ROUTES]
    assert len(operations) == len(set(operations))
    for route in ROUTES:
        assert json.dumps(route.example)
        assert (route.source == "body") == (route.method == "POST")
