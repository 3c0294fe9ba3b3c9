"""Tenants beside each other at one front: whose request is begun next, how fast refusals come."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest
from api_guarded import Guarded
from api_stream import stream

from tenure_cluster.api import fairness
from tenure_cluster.api.fairness import (
    BEGUN_PER_TURN_MAX,
    HOLD_MAX_S,
    REFUSALS_PER_S,
    Patience,
    Turns,
    cost_of,
)

_numbers = itertools.count(1)


class Begun:
    """In what order requests were begun."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, tenant: str, requests: int = 1, cost: int = 1) -> None:
        async def one() -> None:
            await self.turns.turn(tenant, cost)
            self.order.append(tenant)

        self.tasks += [asyncio.create_task(one()) for _ in range(requests)]

    async def all(self) -> list[str]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.order


async def test_who_asks_for_little_is_not_behind_who_asks_for_much() -> None:
    begun = Begun()
    begun.ask("storm", 20 * BEGUN_PER_TURN_MAX)
    begun.ask("quiet", 2)
    order = await begun.all()
    assert len(order) == 20 * BEGUN_PER_TURN_MAX + 2
    places = [place for place, tenant in enumerate(order) if tenant == "quiet"]
    assert max(places) <= BEGUN_PER_TURN_MAX + 3


async def test_two_who_ask_for_much_take_turns() -> None:
    begun = Begun()
    begun.ask("a", 10 * BEGUN_PER_TURN_MAX)
    begun.ask("b", 10 * BEGUN_PER_TURN_MAX)
    order = await begun.all()
    half = order[BEGUN_PER_TURN_MAX : 11 * BEGUN_PER_TURN_MAX]
    assert abs(half.count("a") - half.count("b")) <= BEGUN_PER_TURN_MAX + 2


async def test_a_large_frame_costs_its_tenant_what_as_many_requests_would() -> None:
    begun = Begun()
    begun.ask("frames", 2, cost=cost_of(1_000))
    begun.ask("requests", 100)
    order = await begun.all()
    assert order[0] == "frames"
    assert order[-1] == "frames"
    assert order.count("requests") == 100


async def test_one_turn_of_the_loop_begins_only_so_much() -> None:
    begun = Begun()
    begun.ask("storm", 5 * BEGUN_PER_TURN_MAX)
    counts = []
    while len(begun.order) < 5 * BEGUN_PER_TURN_MAX:
        before = len(begun.order)
        await asyncio.sleep(0)
        counts.append(len(begun.order) - before)
    assert max(counts) == BEGUN_PER_TURN_MAX


async def test_whoever_has_left_takes_no_turn_and_a_quiet_front_remembers_nothing() -> None:
    begun = Begun()
    begun.ask("storm", 3 * BEGUN_PER_TURN_MAX)
    await asyncio.sleep(0)
    assert begun.turns.waiting > 0
    for task in begun.tasks:
        task.cancel()
    begun.ask("quiet")
    assert (await begun.all())[-1] == "quiet"
    for _ in range(3):
        await asyncio.sleep(0)
    assert begun.turns.waiting == 0
    assert begun.turns._ends == {}
    assert begun.turns._next is None


def test_refusals_beyond_a_pace_are_held_back_for_each_alone_and_not_for_long() -> None:
    now_s = 100.0
    patience = Patience(lambda: now_s)
    assert patience.hold_s("a") == 0
    assert patience.hold_s("a") == pytest.approx(1 / REFUSALS_PER_S)
    assert patience.hold_s("b") == 0
    assert patience.hold_s("a", 11) == pytest.approx((2 + 10) / REFUSALS_PER_S)
    assert patience.hold_s("a", 10 * REFUSALS_PER_S) == pytest.approx(HOLD_MAX_S)
    assert patience.hold_s("a") == pytest.approx(HOLD_MAX_S)
    now_s += HOLD_MAX_S + 1
    assert patience.hold_s("a") == 0


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "PATIENCE_ENTRIES_MAX", 3)
    now_s = 100.0
    patience = Patience(lambda: now_s)
    for number in range(10):
        patience.hold_s(f"{number}", REFUSALS_PER_S)
    assert len(patience._free_s) == 3
    now_s += 1 + 1 / REFUSALS_PER_S
    assert patience.hold_s("later") == 0
    assert list(patience._free_s) == ["later"]


async def bounded(guarded: Guarded) -> str:
    """The credential of a tenant that may do one operation a second."""
    name = f"slow-{next(_numbers)}"
    asked = {"tenant": name, "operations_per_s": 1}
    assert (await guarded.ask("POST", "/v1/quotas", asked, guarded.root)).status == 200
    return await guarded.bearer(tenant=name)


async def test_refusals_over_http_come_at_a_pace_and_renewals_are_not_concerned(guarded: Guarded) -> None:
    bearer, loop = await bounded(guarded), asyncio.get_running_loop()
    body = {"key": "k", "owner": "o", "ttl_ms": 60_000}
    lease_id = (await guarded.ask("POST", "/v1/acquire", body, bearer)).json["lease"]["lease_id"]
    began_s, asked = loop.time(), REFUSALS_PER_S // 2

    async def refused(number: int) -> int:
        reply = await guarded.ask("POST", "/v1/acquire", {**body, "key": f"x/{number}"}, bearer)
        return reply.status

    storm = [asyncio.create_task(refused(number)) for number in range(asked)]
    done, _ = await asyncio.wait(storm, return_when=asyncio.FIRST_COMPLETED)
    assert done
    renewed = await guarded.ask("POST", "/v1/renew", {"lease_id": lease_id}, bearer)
    assert renewed.status == 200
    statuses = await asyncio.gather(*storm)
    assert statuses.count(429) >= asked - 3
    assert loop.time() - began_s >= (asked - 3) / REFUSALS_PER_S * 0.9


async def test_a_renewal_on_a_stream_goes_before_refusals_that_are_held_back(guarded: Guarded) -> None:
    bearer = await bounded(guarded)
    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        _, granted = await client.ask("acquire", key="k", owner="o", ttl_ms=60_000)
        looks = [("get_lease", {"key": "k"})] * (REFUSALS_PER_S // 2)
        first = await client.send(*looks)
        second = await client.send(*looks)
        third = await client.send(("renew", {"lease_id": granted["lease"]["lease_id"]}))
        assert (await client.answer(third[0]))[0] == 200
        assert second[-1] not in client.answers, "the renewal has waited behind refusals"
        assert (await client.answer(second[-1]))[0] == 429
        statuses = [(await client.answer(number))[0] for number in [*first, *second]]
        assert statuses.count(429) >= len(statuses) - 3


async def test_more_held_back_than_a_stream_may_have_is_answered_all_the_same(guarded: Guarded) -> None:
    bearer = await bounded(guarded)
    async with stream(guarded.port, Authorization=f"Bearer {bearer}") as client:
        ids = [
            number
            for _ in range(4)
            for number in await client.send(*[("get_lease", {"key": "k"})] * REFUSALS_PER_S)
        ]
        statuses = [(await client.answer(number))[0] for number in ids]
        assert statuses.count(429) >= len(ids) - 10


async def test_strangers_are_told_at_a_pace_too(guarded: Guarded) -> None:
    loop, asked = asyncio.get_running_loop(), REFUSALS_PER_S // 2
    began_s = loop.time()
    replies = await asyncio.gather(*(guarded.ask("GET", "/v1/leases") for _ in range(asked)))
    assert {reply.status for reply in replies} == {401}
    assert loop.time() - began_s >= (asked - 1) / REFUSALS_PER_S * 0.9


async def test_a_batch_costs_its_tenant_what_a_frame_of_as_many_operations_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: Counter[str] = Counter()
    turn = Turns.turn

    async def paying(self: Turns, tenant: str, cost: int = 1) -> None:
        paid[tenant] += cost
        await turn(self, tenant, cost)

    monkeypatch.setattr(Turns, "turn", paying)
    guarded = Guarded(tmp_path)
    try:
        bearer = await guarded.bearer(tenant="batches")
        ops = [{"op": "validate", "key": "k", "token": 1}] * 1_000
        assert (await guarded.ask("POST", "/v1/batch", {"ops": ops}, bearer)).status == 200
        assert paid["batches"] == cost_of(1_000)
    finally:
        guarded.node.stop()


async def test_a_tenant_that_is_named_like_a_strangers_address_is_not_slowed_down_by_it(
    guarded: Guarded,
) -> None:
    bearer = await guarded.bearer("observe", tenant="from 127.0.0.1")
    strangers = [asyncio.create_task(guarded.ask("GET", "/v1/leases")) for _ in range(REFUSALS_PER_S)]
    await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
    refused = await guarded.ask("GET", "/v1/credentials", bearer=bearer)
    assert refused.status == 403
    assert not all(each.done() for each in strangers), "it has waited behind strangers"
    await asyncio.gather(*strangers)
