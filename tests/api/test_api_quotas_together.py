"""Quotas against requests that come together, in every form in which they can: what one alone would not get,
many don't get either."""

import asyncio
import base64
from typing import Any

from api_guarded import Guarded
from api_stream import stream
from test_api_quotas import Tenant, exceeded, tenant

TAKEN = {"owner": "o", "ttl_ms": 60_000}
WAITS = {**TAKEN, "wait_ms": 200}


async def waiting_together(guarded: Guarded, of: Tenant, *bodies: dict[str, Any]) -> list[int]:
    """The statuses of acquires that may wait, asked in one frame."""
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        answers = await client.ask_all(*(("acquire", body) for body in bodies))
        return [status for status, _ in answers]


async def usage(guarded: Guarded, of: Tenant) -> dict[str, Any]:
    """What the tenant has, as an administrator is told."""
    tenants = (await guarded.ask("GET", "/v1/tenants?limit=1000", bearer=guarded.root)).json["tenants"]
    return next(body for body in tenants if body["tenant"] == of.name)


async def test_acquires_that_may_wait_pass_no_more_leases_than_others(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=3)
    statuses = await waiting_together(guarded, of, *({"key": f"k{n}", **WAITS} for n in range(10)))
    assert sorted(statuses) == [200] * 3 + [429] * 7
    assert (await usage(guarded, of))["leases"] == 3


async def test_waiters_that_come_together_do_not_pass_together(guarded: Guarded) -> None:
    of = await tenant(guarded, waiters_max=2)
    assert (await of.acquire("held")).status == 200
    bodies = [{"key": "held", "request_id": f"r{n}", **WAITS} for n in range(10)]
    statuses = await waiting_together(guarded, of, *bodies)
    assert sorted(statuses) == [202] * 2 + [429] * 8


async def test_acquires_of_a_free_key_that_come_together_wait_for_each_other(guarded: Guarded) -> None:
    of = await tenant(guarded, waiters_max=2)
    bodies = [{"key": "free", "request_id": f"r{n}", **WAITS} for n in range(10)]
    statuses = await waiting_together(guarded, of, *bodies)
    assert sorted(statuses) == [200] + [202] * 2 + [429] * 7


async def test_acquires_of_free_keys_that_come_together_are_no_waiters(guarded: Guarded) -> None:
    of = await tenant(guarded, waiters_max=1)
    statuses = await waiting_together(guarded, of, *({"key": f"k{n}", **WAITS} for n in range(10)))
    assert statuses == [200] * 10


async def test_who_waits_for_the_end_of_a_grace_period_is_a_waiter(guarded: Guarded) -> None:
    of = await tenant(guarded, waiters_max=1)
    assert (await of.acquire("k", grace_ms=60_000)).status == 200
    broken = await of.ask("POST", "/v1/break", {"key": "k", "reason": "gone"})
    assert broken.status == 200
    assert (await of.acquire("k", request_id="w", wait_ms=50)).status == 202
    assert exceeded(await of.acquire("k", request_id="v", wait_ms=50)) == "waiters"


async def test_a_set_that_waits_is_a_waiter_for_each_of_its_keys(guarded: Guarded) -> None:
    of = await tenant(guarded, leases_max=20, waiters_max=4)
    assert (await of.acquire("held")).status == 200
    body = {"keys": ["held", "a", "b"], **WAITS}
    assert (await of.ask("POST", "/v1/acquire", {**body, "request_id": "r1"})).status == 202
    assert exceeded(await of.ask("POST", "/v1/acquire", {**body, "request_id": "r2"})) == "waiters"
    assert (await usage(guarded, of))["waiters"] == 3
    assert (await of.acquire("held", request_id="r3", wait_ms=50)).status == 202


async def test_commits_of_one_batch_do_not_pass_together(guarded: Guarded) -> None:
    of = await tenant(guarded, records_max=2, record_bytes_max=100)
    leases = [(await of.acquire(f"k{n}")).json["lease"] for n in range(5)]
    named = [{name: lease[name] for name in ("key", "lease_id", "token")} for lease in leases]
    ops = [{"op": "commit", **each, "mode": "current", "value": "1"} for each in named]
    results = (await of.ask("POST", "/v1/batch", {"ops": ops})).json["results"]
    assert [result["status"] for result in results] == [200] * 2 + [429] * 3
    assert (await usage(guarded, of))["records"] == 2


async def test_bytes_that_come_together_do_not_pass_together(guarded: Guarded) -> None:
    of = await tenant(guarded, record_bytes_max=100)
    leases = [(await of.acquire(f"k{n}")).json["lease"] for n in range(5)]
    named = [{name: lease[name] for name in ("key", "lease_id", "token")} for lease in leases]
    value = base64.b64encode(bytes(40)).decode()
    body = {"mode": "current", "value": value, "value_encoding": "base64"}
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        answers = await client.ask_all(*(("commit", {**each, **body}) for each in named))
    assert [status for status, _ in answers] == [200] * 2 + [429] * 3
    replies = await asyncio.gather(*(of.commit(lease, "x" * 60) for lease in leases[2:]))
    assert [reply.status for reply in replies] == [429] * 3
    assert (await usage(guarded, of))["record_bytes"] == 80


async def test_the_values_of_one_key_that_come_together_take_each_others_place(guarded: Guarded) -> None:
    of = await tenant(guarded, records_max=1, record_bytes_max=100)
    lease = (await of.acquire("k")).json["lease"]
    named = {name: lease[name] for name in ("key", "lease_id", "token")}
    body = {**named, "mode": "sequence", "value": "x" * 60}
    async with stream(guarded.port, Authorization=f"Bearer {of.bearer}") as client:
        answers = await client.ask_all(*(("commit", {**body, "seq": n}) for n in range(10)))
    assert [status for status, _ in answers] == [200] * 10


async def test_who_polls_again_is_no_further_waiter(guarded: Guarded) -> None:
    of = await tenant(guarded, waiters_max=2)
    assert (await of.acquire("held")).status == 200
    assert (await of.acquire("held", request_id="r1", wait_ms=50)).status == 202
    bodies = [{"key": "held", "request_id": name, **WAITS} for name in ("r1", "r2")]
    assert await waiting_together(guarded, of, *bodies) == [202, 202]
