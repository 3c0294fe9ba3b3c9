"""Answers that lead from one key to another tell a credential with prefixes nothing of keys beyond them."""

import itertools
from typing import Any

import pytest
from api_guarded import Guarded
from api_stream import stream
from api_wire import Reply

from tenure_cluster.api.discretion import UNTOLD

_numbers = itertools.count(1)


class Two:
    """A tenant with one credential for all keys and one for those below ``own/``."""

    def __init__(self, guarded: Guarded, anybody: str, narrow: str) -> None:
        self.guarded = guarded
        self.anybody = anybody
        self.narrow = narrow

    @classmethod
    async def of(cls, guarded: Guarded) -> "Two":
        name = f"two-{next(_numbers)}"
        narrow = await guarded.bearer("acquire", "observe", tenant=name, prefixes=["own/"])
        return cls(guarded, await guarded.bearer(tenant=name), narrow)

    async def session(self, owner: str) -> str:
        body = {"owner": owner, "ttl_ms": 60_000}
        reply = await self.guarded.ask("POST", "/v1/sessions", body, self.anybody)
        return str(reply.json["session"]["session_id"])

    async def acquire(self, bearer: str = "", **fields: Any) -> Reply:
        return await self.guarded.ask("POST", "/v1/acquire", {"owner": "o", **fields}, bearer or self.anybody)

    async def queue(self, bearer: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.guarded.ask("GET", "/v1/queues/own/k", bearer=bearer)).json
        return found


@pytest.fixture
async def two(guarded: Guarded) -> Two:
    """``holder`` holds own/k and waits for secret/a, which ``other`` holds; a set waits for own/k."""
    two = await Two.of(guarded)
    holder, other = await two.session("holder"), await two.session("other")
    assert (await two.acquire(key="own/k", session_id=holder)).status == 200
    assert (await two.acquire(key="secret/a", session_id=other)).status == 200
    waits = {"key": "secret/a", "session_id": holder, "request_id": "w", "wait_ms": 50}
    assert (await two.acquire(**waits)).status == 202
    waits = {"keys": ["own/k", "secret/b"], "ttl_ms": 60_000, "request_id": "s", "wait_ms": 50}
    assert (await two.acquire(**waits)).status == 202
    return two


async def test_the_chain_ends_before_the_first_key_that_is_not_the_callers(two: Two) -> None:
    assert [link["key"] for link in (await two.queue(two.anybody))["chain"]] == ["own/k", "secret/a"]
    assert [link["key"] for link in (await two.queue(two.narrow))["chain"]] == ["own/k"]


async def test_of_a_waiting_set_only_the_callers_keys_are_told(two: Two) -> None:
    assert [waiter["keys"] for waiter in (await two.queue(two.anybody))["waiters"]] == [["own/k", "secret/b"]]
    assert [waiter["keys"] for waiter in (await two.queue(two.narrow))["waiters"]] == [["own/k"]]


async def test_a_stream_tells_no_more_than_a_request(guarded: Guarded, two: Two) -> None:
    async with stream(guarded.port, Authorization=f"Bearer {two.narrow}") as client:
        status, queue = await client.ask("queue", key="own/k")
    assert status == 200
    assert b"secret" not in repr(queue).encode()


async def test_a_cycle_does_not_name_keys_that_are_not_the_callers(guarded: Guarded) -> None:
    two = await Two.of(guarded)
    mine, theirs, between = (
        await two.session("mine"),
        await two.session("theirs"),
        await two.session("between"),
    )
    assert (await two.acquire(key="own/a", session_id=mine)).status == 200
    assert (await two.acquire(key="own/b", session_id=theirs)).status == 200
    assert (await two.acquire(key="secret/c", session_id=between)).status == 200
    waits = {"request_id": "w", "wait_ms": 50}
    assert (await two.acquire(key="secret/c", session_id=theirs, **waits)).status == 202
    assert (await two.acquire(key="own/a", session_id=between, **waits)).status == 202
    asked = {"key": "own/b", "session_id": mine, "request_id": "w", "wait_ms": 50}
    refused = await two.acquire(two.narrow, **asked)
    assert refused.code == "deadlock"
    assert refused.json["cycle"] == ["o", "own/b", "o", UNTOLD, UNTOLD, "own/a"]
    assert "secret" not in refused.json["detail"]
    async with stream(guarded.port, Authorization=f"Bearer {two.narrow}") as client:
        _, problem = await client.ask("acquire", owner="o", **asked)
    assert problem["cycle"] == refused.json["cycle"]
    told = await two.acquire(**asked)
    assert told.json["cycle"][3] == "secret/c"
