"""Quotas at a real node: what goes beyond is refused and says so, and renewals and releases never are."""

import itertools
from typing import Any

import pytest
from api_guarded import Guarded
from api_stream import stream
from api_wire import Reply

_numbers = itertools.count(1)


class Tenant:
    """A tenant with a quota, and a credential for it."""

    def __init__(self, guarded: Guarded, name: str, bearer: str) -> None:
        self.guarded = guarded
        self.name = name
        self.bearer = bearer

    async def ask(self, method: str, target: str, body: Any = b"") -> Reply:
        return await self.guarded.ask(method, target, body, self.bearer)

    async def acquire(self, key: str, **fields: Any) -> Reply:
        if "session_id" not in fields:
            fields.setdefault("ttl_ms", 60_000)
        return await self.ask("POST", "/v1/acquire", {"key": key, "owner": "o", **fields})

    async def commit(self, lease: dict[str, Any], value: str) -> Reply:
        named = {name: lease[name] for name in ("key", "lease_id", "token")}
        return await self.ask("POST", "/v1/commit", {**named, "mode": "current", "value": value})


async def tenant(guarded: Guarded, **quota: int) -> Tenant:
    name = f"tenant-{next(_numbers)}"
    reply = await guarded.ask("POST", "/v1/quotas", {"tenant": name, **quota}, guarded.root)
    assert reply.status == 200, reply
    return Tenant(guarded, name, await guarded.bearer(tenant=name))


def exceeded(reply: Reply) -> str:
    """Which quota a refusal names."""
    assert (reply.status, reply.code) == (429, "quota"), reply
    assert int(reply.headers["retry-after"]) >= 1
    return str(reply.json["quota"])


async def test_leases_beyond_the_quota_are_refused_and_what_is_held_lives_on(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=2)
    first = (await of.acquire("a", request_id="r")).json["lease"]
    assert (await of.acquire("b")).status == 200
    refused = await of.acquire("c")
    assert exceeded(refused) == "leases"
    assert (refused.json["max"], refused.json["used"]) == (2, 2)
    assert (await of.acquire("a", request_id="r")).json["replayed"] is True
    assert (await of.ask("POST", "/v1/renew", {"lease_id": first["lease_id"]})).status == 200
    assert (await of.ask("POST", "/v1/release", {"lease_id": first["lease_id"]})).status == 200
    assert (await of.acquire("c")).status == 200


async def test_a_set_counts_as_all_its_keys(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=2)
    body = {"keys": ["a", "b", "c"], "owner": "o", "ttl_ms": 60_000}
    assert exceeded(await of.ask("POST", "/v1/acquire", body)) == "leases"
    assert (await of.ask("POST", "/v1/acquire", {**body, "keys": ["a", "b"]})).status == 200


async def test_requests_that_come_together_do_not_pass_together(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=3)
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        taken = {"owner": "o", "ttl_ms": 60_000}
        answers = await client.ask_all(*(("acquire", {"key": f"k{n}", **taken}) for n in range(10)))
        assert [status for status, _ in answers] == [200] * 3 + [429] * 7
        assert answers[-1][1]["quota"] == "leases"
    ops = [{"op": "acquire", "key": f"b{n}", **taken} for n in range(3)]
    results = (await of.ask("POST", "/v1/batch", {"ops": ops})).json["results"]
    assert [result["status"] for result in results] == [429] * 3


async def test_another_tenant_is_not_concerned(guarded: Guarded) -> None:
    full, free = await tenant(guarded, leases_max=1), await tenant(guarded, leases_max=1)
    assert (await full.acquire("k")).status == 200
    assert exceeded(await full.acquire("l")) == "leases"
    assert (await free.acquire("k")).status == 200


async def test_sessions_beyond_the_quota_are_refused(guarded: Guarded) -> None:
    of = await tenant(guarded, sessions_max=1)
    body = {"owner": "o", "ttl_ms": 60_000}
    session = (await of.ask("POST", "/v1/sessions", body)).json["session"]["session_id"]
    assert exceeded(await of.ask("POST", "/v1/sessions", body)) == "sessions"
    assert (await of.acquire("k")).status == 200, "a private session is none of these"
    assert (await of.ask("POST", "/v1/renew", {"session_id": session})).status == 200
    assert (await of.ask("DELETE", f"/v1/sessions/{session}")).status == 200
    assert (await of.ask("POST", "/v1/sessions", body)).status == 200


async def test_waiters_beyond_the_quota_are_refused_and_those_there_keep_their_place(
    guarded: Guarded,
) -> None:
    of = await tenant(guarded, waiters_max=1)
    assert (await of.acquire("k")).status == 200
    assert (await of.acquire("k", request_id="w", wait_ms=50)).status == 202
    assert exceeded(await of.acquire("k", request_id="v", wait_ms=50)) == "waiters"
    assert (await of.acquire("k", request_id="w", wait_ms=50)).status == 202
    assert (await of.acquire("free", wait_ms=50)).status == 200, "nobody has to wait for a free key"
    assert (await of.ask("POST", "/v1/abandon", {"request_id": "w"})).status == 200
    assert (await of.acquire("k", request_id="v", wait_ms=50)).status == 202


async def test_records_and_their_bytes_are_bounded(guarded: Guarded) -> None:
    of = await tenant(guarded, records_max=2, record_bytes_max=10)
    a, b, c = [(await of.acquire(key)).json["lease"] for key in "abc"]
    assert (await of.commit(a, "12345")).status == 200
    assert exceeded(await of.commit(b, "123456")) == "record_bytes"
    assert (await of.commit(b, "12345")).status == 200
    assert exceeded(await of.commit(c, "")) == "records"
    assert exceeded(await of.commit(a, "123456")) == "record_bytes"
    assert (await of.commit(a, "1")).status == 200, "a smaller one in place of it fits"
    assert (await of.ask("DELETE", "/v1/records/b")).status == 200
    assert (await of.commit(c, "123456789")).status == 200


async def test_watches_beyond_the_quota_are_refused(guarded: Guarded) -> None:
    of = await tenant(guarded, watches_max=1)
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        status, watching = await client.ask("watch")
        assert status == 200
        assert (await client.ask("watch"))[1]["quota"] == "watches"
        assert exceeded(await of.ask("GET", "/v1/events")) == "watches"
        await client.ask("unwatch", watch=watching["watch"])
        assert (await client.ask("watch"))[0] == 200


async def test_operations_beyond_the_rate_are_refused_and_renewals_never(guarded: Guarded) -> None:
    of = await tenant(guarded, operations_per_s=1)
    lease = (await of.acquire("k")).json["lease"]
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        looks = await client.ask_all(*(("get_lease", {"key": "k"}) for _ in range(50)))
        refused = [body for status, body in looks if status == 429]
        assert len(refused) >= 40
        assert refused[0]["quota"] == "operations_per_s"
        assert 0 < refused[0]["retry_after_s"] <= 1
        renewals = await client.ask_all(*(("renew", {"lease_id": lease["lease_id"]}) for _ in range(50)))
        assert {status for status, _ in renewals} == {200}
        assert (await client.ask("release", lease_id=lease["lease_id"]))[0] == 200


@pytest.mark.parametrize(
    ("ttl_ms", "fits"), [(9_999, False), (10_000, True), (20_000, True), (20_001, False)]
)
async def test_a_ttl_out_of_the_tenants_range_is_refused(guarded: Guarded, ttl_ms: int, fits: bool) -> None:
    of = await tenant(guarded, ttl_min_ms=10_000, ttl_max_ms=20_000)
    reply = await of.acquire("k", ttl_ms=ttl_ms)
    opened = await of.ask("POST", "/v1/sessions", {"owner": "o", "ttl_ms": ttl_ms})
    if fits:
        assert (reply.status, opened.status) == (200, 200)
        return
    assert exceeded(reply) == exceeded(opened) == "ttl_ms"
    assert (reply.json["min"], reply.json["max"]) == (10_000, 20_000)
    lease = (await of.acquire("k", ttl_ms=15_000)).json["lease"]
    renewal = {"lease_id": lease["lease_id"], "ttl_ms": ttl_ms}
    assert (await of.ask("POST", "/v1/renew", renewal)).code == "out_of_range"
    assert (await of.ask("POST", "/v1/renew", {"lease_id": lease["lease_id"]})).status == 200


async def test_a_quota_that_was_lowered_takes_nothing_away(guarded: Guarded) -> None:
    of = await tenant(guarded)
    leases = [(await of.acquire(key)).json["lease"] for key in "abc"]
    await guarded.ask("POST", "/v1/quotas", {"tenant": of.name, "leases_max": 1}, guarded.root)
    for lease in leases:
        assert (await of.ask("POST", "/v1/renew", {"lease_id": lease["lease_id"]})).status == 200
    assert exceeded(await of.acquire("d")) == "leases"
    reset = await guarded.ask("DELETE", f"/v1/quotas/{of.name}", bearer=guarded.root)
    assert reset.json == {"quota": None}
    assert (await of.acquire("d")).status == 200


async def test_tenants_are_listed_with_what_they_have(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=5)
    lease = (await of.acquire("k")).json["lease"]
    await of.commit(lease, "value")
    found: dict[str, Any] = {}
    after = ""
    while after is not None:
        target = f"/v1/tenants?limit=3{f'&after={after}' if after else ''}"
        page = (await guarded.ask("GET", target, bearer=guarded.root)).json
        found |= {body["tenant"]: body for body in page["tenants"]}
        after = page["next"]
    mine = found[of.name]
    assert (mine["leases"], mine["records"], mine["record_bytes"], mine["credentials"]) == (1, 1, 5, 1)
    assert mine["quota"]["leases_max"] == 5
    assert found["default"]["quota"] is None


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"leases_max": -1}, "$.leases_max"),
        ({"ttl_min_ms": 2, "ttl_max_ms": 1}, "$.ttl_max_ms"),
        ({"tenant": ""}, "$.tenant"),
        ({"lease_max": 1}, "$"),
    ],
    ids=str,
)
async def test_a_faulty_quota_is_refused_with_the_path(
    guarded: Guarded, wrong: dict[str, Any], path: str
) -> None:
    reply = await guarded.ask("POST", "/v1/quotas", {"tenant": "t", **wrong}, guarded.root)
    assert reply.status in (400, 422)
    assert reply.json["path"].startswith(path)


async def test_stale_reads_are_operations_too(guarded: Guarded) -> None:
    of = await tenant(guarded, operations_per_s=1)
    assert (await of.acquire("k")).status == 200
    asked = {"key": "k", "consistency": "stale"}
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        looks = await client.ask_all(*(("get_lease", asked) for _ in range(50)))
    refused = [body for status, body in looks if status == 429]
    assert len(refused) >= 40
    assert refused[0]["quota"] == "operations_per_s"
    replies = [await of.ask("GET", "/v1/leases?consistency=stale") for _ in range(5)]
    assert 429 in {reply.status for reply in replies}
