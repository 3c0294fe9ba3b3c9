"""Fairness: readers who come without pause starve no writer, and a long queue is served in order whoever
leads.
"""

import asyncio

import pytest
from cases_sabotage import readers_pass_whoever_waits

from tenure_chaos.sim.actor import Actor, Hold
from tenure_chaos.sim.stage import Missed, Stage, play

READ_S = 0.3
WAITERS = 100


async def readers_come_without_pause(stage: Stage) -> None:
    await stage.start()
    readers, writer = [stage.actor("R1"), stage.actor("R2")], stage.actor("W")

    async def read(actor: Actor, at_s: float) -> None:
        await asyncio.sleep(at_s)
        while not writing.done():
            said = await actor.try_acquire(
                "k", mode="shared", owner=actor.new_request_id(), ttl_ms=5_000, wait_s=20
            )
            if said.ok:
                await asyncio.sleep(READ_S)
                await Hold(actor, said).release()

    writing: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
    # Two of them overlap all the time, so there is never a moment without a reader.
    reading = [asyncio.ensure_future(read(readers[place % 2], place * READ_S / 3)) for place in range(6)]
    await stage.until(lambda: len(stage.events("granted", "k")) > 8, "they read one after another")
    present = len(stage.events("granted", "k"))
    asked = writer.begin(writer.acquire("k", ttl_ms=5_000, wait_s=20))
    written = await stage.within(3 * READ_S, asked, "the writer has its turn")
    writing.set_result(written)
    granted = [event["mode"] for _, event in stage.events("granted", "k")]
    assert granted.index("exclusive") <= present + 2, "readers went on coming"
    await written.release()
    await asyncio.gather(*reading)


def test_a_writer_waits_for_the_readers_who_were_there_before_it() -> None:
    """Neither trying nor coming again and again gets a reader ahead of a writer who waits."""
    play(readers_come_without_pause)


def test_a_writer_who_starves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    readers_pass_whoever_waits(monkeypatch)
    with pytest.raises(Missed, match="the writer has its turn"):
        play(readers_come_without_pause)


async def a_hundred_wait_through_three_leaders(stage: Stage) -> None:
    leader = await stage.start()
    actors = [stage.actor(name) for name in "ABC"]
    held = await stage.actor("D").acquire("k", ttl_ms=60_000)
    order: list[str] = []

    async def take_turn(actor: Actor, owner: str) -> None:
        said = await actor.try_acquire("k", owner=owner, ttl_ms=20_000, wait_s=300)
        assert said.ok
        order.append(owner)
        await Hold(actor, said).release()

    waiting = []
    for number in range(WAITERS):
        waiting.append(asyncio.ensure_future(take_turn(actors[number % 3], f"w{number}")))
        joined = number + 1
        await stage.until(
            lambda joined=joined: len(stage.events("queue_joined", "k")) == joined, "the next one waits"
        )
    assert (await held.release()).ok
    for turns in (20, 45, 70):
        await stage.until(lambda turns=turns: len(order) >= turns, "turns are taken", within_s=60.0)
        stage.kill(leader)
        down, leader = leader, await stage.leader(not_in=(leader,))
        stage.restart(down)
    await asyncio.gather(*waiting)
    granted = [event["owner"] for _, event in stage.events("granted", "k")][1:]
    assert granted == [f"w{number}" for number in range(WAITERS)], "somebody was passed"


def test_a_hundred_waiters_are_served_in_order_over_three_changes_of_leader() -> None:
    """T51: each has the place in which it came and keeps it by its polls, whoever leads."""
    play(a_hundred_wait_through_three_leaders)
