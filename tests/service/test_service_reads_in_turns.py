"""Many reads at once, in frames of a stream or from many callers, don't hold the event loop."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from service_cluster import TENANT, Part, acquired, cluster, request, until

from tenure_cluster.service import reads
from tenure_cluster.service.replies import LeasesReply, ValidateReply

LISTINGS = 20


async def turns_of(part: Part, operation: str, count: int, **fields: Any) -> tuple[list[int], set[type]]:
    """In which turn of the loop each of so many was answered, and with what."""
    loop = asyncio.get_running_loop()
    answered: list[int] = []
    kinds: set[type] = set()
    turn = 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(answered) < count:
            loop.call_soon(next_turn)

    def note(place: int, answer: Any) -> None:
        answered.append(turn)
        kinds.add(type(answer))

    next_turn()
    part.service.submit(TENANT, [(operation, request(operation, **fields))] * count, note)
    await until(lambda: len(answered) == count, "all answers")
    return answered, kinds


@pytest.mark.parametrize("consistency", ["linearizable", "stale"])
async def test_each_listing_has_a_turn_of_its_own(tmp_path: Path, consistency: str) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        await acquired(leader, "k")
        answered, kinds = await turns_of(leader, "list_leases", LISTINGS, consistency=consistency)
        assert kinds == {LeasesReply}
        assert len(set(answered)) == LISTINGS


async def test_of_cheap_reads_many_share_a_turn_and_not_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        lease = await acquired(leader, "k")
        answered, kinds = await turns_of(leader, "validate", 500, key="k", token=lease.token)
        assert kinds == {ValidateReply}
        assert len(set(answered)) == 500 // reads.TURN_WEIGHT


async def test_what_is_left_of_a_frame_that_nobody_wants_any_more_is_not_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        answered: list[int] = []
        listing = ("list_leases", request("list_leases", consistency="stale"))
        frame = leader.service.submit(
            TENANT, [listing] * LISTINGS, lambda place, answer: answered.append(place)
        )
        before = len(answered)
        leader.service.leave(frame)
        for _ in range(2 * LISTINGS):
            await asyncio.sleep(0)
        assert len(answered) == before < LISTINGS


async def test_reads_that_wait_for_their_turn_when_the_node_stops_are_answered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        answers: list[Any] = []
        listing = ("list_leases", request("list_leases"))
        leader.service.submit(TENANT, [listing] * LISTINGS, lambda place, answer: answers.append(answer))
        await until(lambda: answers, "the first answer")
        await leader.service.reader.stop()
        assert leader.service.reader.waiting == 0
        await until(lambda: len(answers) == LISTINGS, "all answers")
