"""Whose connection makes room when all places are taken: strangers', then those of the tenant that has
most."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from api_guarded import Guarded
from api_wire import Reply, Wire, request_bytes

PLACES = 12
SHARE = 9


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A node with few places."""
    directory: Path = tmp_path_factory.mktemp("crowded")
    made = Guarded(directory, connections_max=PLACES)
    yield made
    made.node.stop()


class Known:
    """A connection on which a credential is shown."""

    def __init__(self, wire: Wire, bearer: str) -> None:
        self.wire = wire
        self.bearer = bearer

    async def ask(self, method: str, target: str, body: Any = b"") -> Reply:
        content = json.dumps(body).encode() if body else b""
        return await self.wire.ask(method, target, content, authorization=f"Bearer {self.bearer}")

    async def works(self) -> bool:
        return (await self.ask("GET", "/v1/leases/nobody")).code == "not_held"


async def known(stack: AsyncExitStack, guarded: Guarded, bearer: str) -> Known:
    made = Known(await stack.enter_async_context(await Wire.open(guarded.port)), bearer)
    assert await made.works()
    return made


async def strangers(stack: AsyncExitStack, guarded: Guarded, count: int, said: bytes = b"") -> list[Wire]:
    wires = [await stack.enter_async_context(await Wire.open(guarded.port)) for _ in range(count)]
    for wire in wires:
        wire.send(said)
    return wires


@pytest.mark.parametrize("said", [b"", b"POST /v1/renew HTTP/1.1\r\nhost: x\r\n"], ids=["silent", "slow"])
async def test_strangers_take_the_places_of_strangers(crowded: Guarded, said: bytes) -> None:
    bearer = await crowded.bearer("observe", tenant="quiet")
    async with AsyncExitStack() as stack:
        first = await known(stack, crowded, bearer)
        crowd = await strangers(stack, crowded, 5 * PLACES, said)
        assert await crowd[0].closed(within_s=10) == b""
        assert await first.works(), "the longest idle of all, and no stranger's"
        late = await known(stack, crowded, bearer)
        assert await late.works()


async def test_who_shows_no_valid_credential_stays_a_stranger(crowded: Guarded) -> None:
    bearer = await crowded.bearer("observe", tenant="quiet")
    async with AsyncExitStack() as stack:
        refused = await stack.enter_async_context(await Wire.open(crowded.port))
        assert (await refused.ask("GET", "/v1/leases/k")).status == 401
        first = await known(stack, crowded, bearer)
        await strangers(stack, crowded, 2 * PLACES)
        assert await refused.closed(within_s=10) == b""
        assert await first.works()


async def test_a_tenant_that_has_its_share_takes_its_own_places(crowded: Guarded) -> None:
    quiet, greedy = await crowded.bearer(tenant="quiet"), await crowded.bearer(tenant="greedy")
    async with AsyncExitStack() as stack:
        first = await known(stack, crowded, quiet)
        many = [await known(stack, crowded, greedy) for _ in range(3 * SHARE)]
        assert await many[0].wire.closed(within_s=10) == b""
        assert await many[-1].works()
        assert await first.works()
        assert await (await known(stack, crowded, quiet)).works()


async def test_beyond_its_share_a_busy_tenant_is_served_what_is_short(crowded: Guarded) -> None:
    greedy = await crowded.bearer(tenant="busy")
    held = {"key": "k", "owner": "o", "ttl_ms": 60_000}
    async with AsyncExitStack() as stack:
        async with await Wire.open(crowded.port) as wire:
            granted = await Known(wire, greedy).ask("POST", "/v1/acquire", held)
            lease_id = granted.json["lease"]["lease_id"]
        waiting = await strangers(stack, crowded, SHARE)
        for number, wire in enumerate(waiting):
            body = b'{"key":"k","owner":"w","ttl_ms":60000,"wait_ms":20000,"request_id":"%d"}' % number
            wire.send(request_bytes("POST", "/v1/acquire", body, {"authorization": f"Bearer {greedy}"}))

        async def all_wait() -> bool:
            queue = await crowded.ask("GET", "/v1/queues/k", bearer=greedy)
            return bool(queue.json["waiters_total"] == SHARE)

        async with asyncio.timeout(20):
            while not await all_wait():  # noqa: ASYNC110 -- the condition is another thread's
                await asyncio.sleep(0.02)
        async with await Wire.open(crowded.port) as wire:
            renewed = await Known(wire, greedy).ask("POST", "/v1/renew", {"lease_id": lease_id})
            assert (renewed.status, renewed.headers["connection"]) == (200, "close")
        async with await Wire.open(crowded.port) as wire:
            refused = await Known(wire, greedy).ask("POST", "/v1/acquire", {**held, "wait_ms": 5_000})
            assert (refused.status, refused.code) == (429, "overloaded")
        assert await (await known(stack, crowded, await crowded.bearer(tenant="other"))).works()
