"""Credentials at the front: who is let in, and to what."""

import asyncio
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from api_guarded import Guarded
from api_node import START_TIMEOUT_S, RunningNode
from api_stream import stream
from api_wire import Reply, Wire, ask, request_bytes
from test_api_audit import told

from tenure_cluster.api.routes import ROUTES, Route
from tenure_cluster.first_administrator import FILE_NAME
from tenure_cluster.lease.credentials import RIGHTS
from tenure_cluster.settings import Auth

GUARDED = [route for route in ROUTES if route.access != "open"]
OPEN = [route for route in ROUTES if route.access == "open"]
WITH_A_RIGHT = [route for route in GUARDED if route.access != "any"]


async def asked(guarded: Guarded, route: Route, bearer: str = "") -> Reply:
    """A request of the route that is well formed. What would not end is only begun."""
    target = route.prefix + ("x" if route.parameter else "")
    method = "HEAD" if route.streamed else route.method
    body = route.example if route.source == "body" else b""
    return await guarded.ask(method, target, body, bearer)


def of_route(route: Route) -> str:
    return route.operation


# Every route


@pytest.mark.parametrize("route", GUARDED, ids=of_route)
async def test_without_a_credential_nothing_is_answered(guarded: Guarded, route: Route) -> None:
    reply = await asked(guarded, route)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("route", OPEN, ids=of_route)
async def test_what_is_open_needs_no_credential(guarded: Guarded, route: Route) -> None:
    assert (await asked(guarded, route)).status == 200


def test_only_what_tells_nothing_of_anybody_is_open() -> None:
    assert {route.operation for route in OPEN} == {"livez", "readyz", "openapi"}


@pytest.mark.parametrize("route", WITH_A_RIGHT, ids=of_route)
async def test_all_other_rights_do_not_stand_for_the_one_that_is_needed(
    guarded: Guarded, route: Route
) -> None:
    reply = await asked(guarded, route, await guarded.bearer(*(set(RIGHTS) - {route.access})))
    assert reply.status == 403
    if not route.streamed:
        assert (reply.code, reply.json["right"]) == ("forbidden", route.access)
        assert str(route.access) in reply.json["detail"]


@pytest.mark.parametrize("route", GUARDED, ids=of_route)
async def test_the_right_of_a_route_is_enough_for_it(guarded: Guarded, route: Route) -> None:
    right = "observe" if route.access == "any" else str(route.access)
    reply = await asked(guarded, route, await guarded.bearer(right, tenant=f"t-{route.operation}"))
    assert reply.status not in (401, 403, 500)


# The first administrator


def test_the_first_administrators_file_is_for_its_owner_alone(guarded: Guarded) -> None:
    mode = (guarded.directory / FILE_NAME).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


async def test_a_restart_makes_no_other_administrator(tmp_path: Path) -> None:
    first = Guarded(tmp_path)
    try:
        assert len((await first.ask("GET", "/v1/credentials", bearer=first.root)).json["credentials"]) == 1
    finally:
        first.node.stop()
    (tmp_path / FILE_NAME).rename(tmp_path / "kept")
    again = RunningNode(tmp_path, auth=Auth(required=True))
    try:
        reply = await ask(again.port, "GET", "/v1/credentials", authorization=f"Bearer {first.root}")
        assert len(reply.json["credentials"]) == 1
        assert not (tmp_path / FILE_NAME).exists()
    finally:
        again.stop()


# Bearers


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic {root}",
        "Bearer {root}x",
        "Bearer x{root}",
        "Bearer tenure.{id}.",
        "Bearer tenure.{id}.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "Bearer tenure.unknown.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "Bearer {root} {root}",
        "{root}",
    ],
)
async def test_anything_but_a_valid_bearer_is_refused_alike(guarded: Guarded, header: str) -> None:
    shown = header.format(root=guarded.root, id=guarded.root.split(".")[1])
    reply = await ask(guarded.port, "GET", "/v1/leases/k", authorization=shown)
    assert (reply.status, reply.code) == (401, "unauthenticated")
    assert reply.body == (await ask(guarded.port, "GET", "/v1/leases/k")).body


async def test_of_two_credentials_in_one_request_none_counts(guarded: Guarded) -> None:
    async with await Wire.open(guarded.port) as wire:
        line = b"authorization: Bearer " + guarded.root.encode() + b"\r\n"
        wire.send(b"GET /v1/leases/k HTTP/1.1\r\nhost: x\r\n" + line + line + b"\r\n")
        assert (await wire.answer()).status == 401


async def test_the_body_of_a_stranger_is_not_read(guarded: Guarded) -> None:
    async with await Wire.open(guarded.port) as wire:
        wire.send(request_bytes("POST", "/v1/acquire", b"", {"content-length": "200000"}))
        assert (await wire.answer()).status == 401


async def test_a_secret_is_nowhere_in_the_data_of_the_node(guarded: Guarded) -> None:
    secret = (await guarded.bearer()).rpartition(".")[2].encode()
    found = [path for path in guarded.directory.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert found == []
    listed = await guarded.ask("GET", "/v1/credentials", bearer=guarded.root)
    assert b"digest" not in listed.body
    assert secret not in listed.body


async def test_a_revoked_credential_is_refused_at_once(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created()
    assert (await guarded.ask("GET", "/v1/leases", bearer=bearer)).status == 200
    revoked = await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
    assert revoked.json == {"status": "revoked"}
    assert (await guarded.ask("GET", "/v1/leases", bearer=bearer)).status == 401
    again = await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
    assert (again.status, again.code) == (404, "no_credential")


async def test_an_acquire_that_waits_is_given_up_when_its_credential_is_revoked(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created(tenant="waits")
    other = await guarded.bearer(tenant="waits")
    body = {"key": "k", "owner": "o", "ttl_ms": 60_000}
    held = (await guarded.ask("POST", "/v1/acquire", body, other)).json["lease"]
    asked = {**body, "request_id": "r", "wait_ms": 60_000}
    waiting = asyncio.create_task(guarded.ask("POST", "/v1/acquire", asked, bearer))

    async def until_there_are(waiters: int) -> None:
        queue: dict[str, Any] = {}
        while queue.get("waiters_total") != waiters:
            queue = (await guarded.ask("GET", "/v1/queues/k", bearer=other)).json

    async with asyncio.timeout(START_TIMEOUT_S):
        await until_there_are(1)
        target = f"/v1/credentials/{credential_id}"
        assert (await guarded.ask("DELETE", target, bearer=guarded.root)).status == 200
        refused = await waiting
        assert (refused.code, refused.headers["www-authenticate"]) == ("unauthenticated", "Bearer")
        await until_there_are(0)
    assert (await told(guarded, actor=credential_id, code="unauthenticated"))["key"] == "k"
    await guarded.ask("POST", "/v1/release", {"lease_id": held["lease_id"]}, other)
    assert (await guarded.ask("GET", "/v1/leases/k", bearer=other)).code == "not_held"


async def test_both_secrets_are_valid_in_the_overlap_of_a_rotation(guarded: Guarded) -> None:
    credential_id, old = await guarded.created()

    async def rotated(overlap_ms: int) -> str:
        body = {"credential_id": credential_id, "overlap_ms": overlap_ms}
        reply = await guarded.ask("POST", "/v1/credentials/rotate", body, guarded.root)
        assert reply.status == 200, reply
        return str(reply.json["bearer"])

    async def statuses(*bearers: str) -> list[int]:
        return [(await guarded.ask("GET", "/v1/leases", bearer=bearer)).status for bearer in bearers]

    new = await rotated(60_000)
    assert await statuses(old, new) == [200, 200]
    newest = await rotated(60_000)
    assert await statuses(old, new, newest) == [200, 200, 200]
    last = await rotated(0)
    assert await statuses(old, new, newest, last) == [401, 401, 401, 200]


async def test_a_credential_ends_with_its_lifetime(guarded: Guarded) -> None:
    bearer = await guarded.bearer("observe", lifetime_ms=1_000)
    deadline = time.monotonic() + START_TIMEOUT_S
    while (await guarded.ask("GET", "/v1/leases", bearer=bearer)).status != 401:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"rights": []}, "$.rights"),
        ({"rights": ["everything"]}, "$.rights[0]"),
        ({"prefixes": []}, "$.prefixes"),
        ({"prefixes": ["a", "\x00"]}, "$.prefixes[1]"),
        ({"name": ""}, "$.name"),
        ({"tenant": ""}, "$.tenant"),
        ({"lifetime_ms": 0}, "$.lifetime_ms"),
        ({"secret": "mine"}, "$.secret"),
    ],
    ids=str,
)
async def test_a_faulty_credential_is_refused_with_the_path_of_the_fault(
    guarded: Guarded, wrong: dict[str, Any], path: str
) -> None:
    body = {"name": "x", "rights": ["observe"], **wrong}
    reply = await guarded.ask("POST", "/v1/credentials", body, guarded.root)
    assert reply.status in (400, 422)
    assert reply.json["path"].startswith(path.removesuffix("[1]") if path == "$.secret" else path) or (
        wrong.keys() == {"secret"}
    )


async def test_pages_of_credentials_hold_each_once(guarded: Guarded) -> None:
    for _ in range(3):
        await guarded.created(tenant="paged")
    found: list[str] = []
    after = ""
    while after is not None:
        target = "/v1/credentials?tenant=paged&limit=2" + (f"&after={after}" if after else "")
        body = (await guarded.ask("GET", target, bearer=guarded.root)).json
        found += [credential["credential_id"] for credential in body["credentials"]]
        after = body["next"]
    assert len(found) == len(set(found)) == 3


# Tenants and keys


async def test_another_tenants_ids_are_answered_like_unknown_ones(guarded: Guarded) -> None:
    """Whole answers are compared, so nothing in them tells that there is such a lease or session."""
    ours, theirs = await guarded.bearer(tenant="ours"), await guarded.bearer(tenant="theirs")
    body = {"key": "k", "owner": "o", "ttl_ms": 60_000, "request_id": "r"}
    lease = (await guarded.ask("POST", "/v1/acquire", body, ours)).json["lease"]
    session = (await guarded.ask("POST", "/v1/sessions", {"owner": "o", "ttl_ms": 60_000}, ours)).json[
        "session"
    ]["session_id"]
    own = (await guarded.ask("POST", "/v1/sessions", {"owner": "o", "ttl_ms": 60_000}, theirs)).json[
        "session"
    ]["session_id"]

    def calls(lease_id: str, session_id: str, token: int) -> list[tuple[str, str, Any]]:
        return [
            ("POST", "/v1/renew", {"lease_id": lease_id}),
            ("POST", "/v1/renew", {"session_id": session_id}),
            ("POST", "/v1/release", {"lease_id": lease_id}),
            ("POST", "/v1/handover", {"lease_id": lease_id, "to_session_id": own}),
            ("POST", "/v1/park", {"lease_id": lease_id, "limit_ms": 60_000}),
            ("POST", "/v1/unpark", {"lease_id": lease_id}),
            ("POST", "/v1/commit", {"key": "k", "lease_id": lease_id, "token": token, "mode": "once"}),
            ("POST", "/v1/acquire", {"key": "free", "owner": "o", "session_id": session_id}),
            ("GET", f"/v1/sessions/{session_id}", b""),
            ("DELETE", f"/v1/sessions/{session_id}", b""),
            ("POST", "/v1/validate", {"key": "k", "token": token}),
        ]

    known = calls(lease["lease_id"], session, lease["token"])
    unknown = calls("A" * len(lease["lease_id"]), "A" * len(session), lease["token"])
    for (method, target, body), (_, other_target, other_body) in zip(known, unknown, strict=True):
        told = await guarded.ask(method, target, body, theirs)
        expected = await guarded.ask(method, other_target, other_body, theirs)
        assert (told.status, told.body) == (expected.status, expected.body), (target, body)
        assert told.headers.keys() == expected.headers.keys()
    assert (await guarded.ask("POST", "/v1/renew", {"lease_id": lease["lease_id"]}, ours)).status == 200
    assert (await guarded.ask("GET", "/v1/leases/k", bearer=theirs)).code == "not_held"
    assert (await guarded.ask("GET", "/v1/leases", bearer=theirs)).json["leases"] == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/leases/a/b", 404),
        ("/v1/leases/a%2Fb", 404),
        ("/v1/leases/%61/b", 404),
        ("/v1/leases/b", 403),
        ("/v1/leases/a", 403),
        ("/v1/leases/A/b", 403),
        ("/v1/leases/b/../a/b", 403),
        ("/v1/leases//a/b", 403),
        ("/v1/leases/./a/b", 403),
        ("/v1/leases/%252e/a/b", 403),
        ("/v1/leases/%D0%B0/b", 403),  # a Cyrillic letter that looks like an a
        ("/v1/leases/a%CC%81/b", 403),
        ("/v1/leases/a%E2%88%95b", 403),  # a slash that is none
        ("/v1/leases?prefix=a/b", 200),
        ("/v1/leases?prefix=a", 403),
        ("/v1/leases", 403),
        ("/v1/queues/b", 403),
        ("/v1/records/b", 403),
    ],
)
async def test_a_credential_for_a_prefix_reaches_exactly_what_begins_with_it(
    guarded: Guarded, target: str, status: int
) -> None:
    bearer = await guarded.bearer("observe", tenant="prefixed", prefixes=["a/"])
    reply = await guarded.ask("GET", target, bearer=bearer)
    assert reply.status == status, reply


async def test_a_set_with_one_key_outside_is_refused_whole(guarded: Guarded) -> None:
    bearer = await guarded.bearer(tenant="sets", prefixes=["a/"])
    body = {"keys": ["a/1", "b/1"], "owner": "o", "ttl_ms": 60_000}
    reply = await guarded.ask("POST", "/v1/acquire", body, bearer)
    assert (reply.status, reply.json["path"]) == (403, "$.keys[1]")
    assert (await guarded.ask("GET", "/v1/leases/a/1", bearer=bearer)).status == 404


async def test_each_operation_of_a_batch_is_looked_at(guarded: Guarded) -> None:
    bearer = await guarded.bearer("acquire", tenant="batches", prefixes=["a/"])
    acquire = {"op": "acquire", "owner": "o", "ttl_ms": 60_000}
    ops = [
        {"op": "break", "key": "a/1", "reason": "r"},
        {**acquire, "key": "a/1"},
        {**acquire, "key": "b/1"},
        {**acquire, "key": "a/2", "wait_ms": 5},
        {**acquire, "key": "a/3", "ttl_ms": 1},
    ]
    results = (await guarded.ask("POST", "/v1/batch", {"ops": ops}, bearer)).json["results"]
    assert [result["status"] for result in results] == [403, 200, 403, 400, 422]
    assert [result.get("path") for result in results[2:]] == [
        "$.ops[2].key",
        "$.ops[3].wait_ms",
        "$.ops[4].ttl_ms",
    ]


# Streams


async def test_a_stream_needs_a_credential_and_looks_at_each_operation(guarded: Guarded) -> None:
    bearer = await guarded.bearer("acquire", tenant="streams", prefixes=["a/"])
    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        taken = {"owner": "o", "ttl_ms": 60_000}
        answers = await client.ask_all(
            ("acquire", {"key": "a/1", **taken}),
            ("acquire", {"key": "b/1", **taken}),
            ("acquire", {"key": "b/2", "wait_ms": 50, **taken}),
            ("get_lease", {"key": "a/1"}),
            ("watch", {"prefix": "a/"}),
            ("break", {"key": "a/1", "reason": "r"}),
        )
        assert [status for status, _ in answers] == [200, 403, 403, 403, 403, 403]
        assert answers[3][1]["right"] == "observe"


async def test_a_stream_of_a_revoked_credential_is_answered_and_closed(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created()
    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        assert (await client.ask("get_lease", key="k"))[0] == 404
        await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
        assert (await client.ask("get_lease", key="k"))[0] == 401
        code, _ = await client.closed()
        assert code == 1008
    assert (await told(guarded, actor=credential_id, code="unauthenticated"))["subject"] == "stream"


async def test_a_silent_stream_ends_soon_after_its_credential(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created()
    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        assert (await client.ask("watch"))[0] == 200
        await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
        code, reason = await client.closed()
        assert (code, "credential" in reason) == (1008, True)


async def test_a_watch_by_events_ends_soon_after_its_credential(guarded: Guarded) -> None:
    credential_id, bearer = await guarded.created()
    async with await Wire.open(guarded.port) as wire:
        wire.send(request_bytes("GET", "/v1/events", b"", {"authorization": f"Bearer {bearer}"}))
        await guarded.ask("DELETE", f"/v1/credentials/{credential_id}", bearer=guarded.root)
        told = b""
        while b"\r\n0\r\n\r\n" not in told:
            part = await wire.some()
            assert part, "closed in the middle"
            told += part


# Without credentials


async def test_where_no_credential_is_needed_a_wrong_one_changes_nothing(node: RunningNode) -> None:
    reply = await ask(node.port, "GET", "/v1/leases/k", authorization="Bearer whatever")
    assert reply.code == "not_held"
    assert (await ask(node.port, "GET", "/v1/credentials")).json["credentials"] == []


async def test_the_last_administrator_who_can_still_come_in_is_kept(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    try:
        _, brief = await guarded.created(lifetime_ms=1_000)
        deadline = time.monotonic() + START_TIMEOUT_S
        while (await guarded.ask("GET", "/v1/credentials", bearer=brief)).status != 401:
            assert time.monotonic() < deadline, "it does not run out"
        target = f"/v1/credentials/{guarded.root.split('.')[1]}"
        refused = await guarded.ask("DELETE", target, bearer=guarded.root)
        assert (refused.code, refused.json["path"]) == ("invalid", "$.credential_id")
        assert (await guarded.ask("GET", "/v1/credentials", bearer=guarded.root)).status == 200
        await guarded.created()
        assert (await guarded.ask("DELETE", target, bearer=guarded.root)).status == 200
    finally:
        guarded.node.stop()
