"""What a change of leader, and answers that are lost on the way, are to a holder."""

import asyncio

import pytest
from cases_sabotage import (
    one_failed_renewal_is_a_loss,
    releases_go_by_the_key,
    renewals_begin_late,
    requests_are_not_remembered,
)

from tenure._handle import State
from tenure_chaos.sim.stage import Stage, play

TTL_MS = 5_000


async def the_leader_changes_again_and_again(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    keeping = held.keep()
    for fault in ("killed", "cut off with its client", "paused", "killed"):
        await asyncio.sleep(TTL_MS / 1000 / 3)
        if fault == "killed":
            stage.kill(leader)
        elif fault == "paused":
            leader.pause()
        else:
            # Its client goes on asking the leader that it knows.
            stage.cut_off(leader)
        new = await stage.leader(not_in=(leader,))
        await asyncio.sleep(TTL_MS / 1000 / 2)
        assert held.held, f"the handle is lost: its leader was {fault}"
        if fault == "killed":
            stage.restart(leader)
        elif fault == "paused":
            leader.resume()
        else:
            stage.mend()
        leader = new
    await asyncio.sleep(2 * TTL_MS / 1000)
    assert not keeping.done()
    assert held.state is State.HELD
    holder = await b.holder("k")
    assert holder is not None
    assert holder["token"] == held.token
    assert len(stage.events("granted", "k")) == 1
    assert stage.world.counts["leader elected"] >= 5
    assert held.failed_renewals >= 1


def test_a_change_of_leader_is_retried_and_no_loss() -> None:
    """T22, T26: the leader is killed, cut off, and paused; the handle stays held, with the same token."""
    play(the_leader_changes_again_and_again)


def test_a_holder_that_takes_an_election_for_a_loss_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one_failed_renewal_is_a_loss(monkeypatch)
    with pytest.raises(AssertionError, match="its leader was"):
        play(the_leader_changes_again_and_again)


async def two_renewals_in_a_row_fail(stage: Stage) -> None:
    await stage.start()
    a = stage.actor("A")
    held = await a.acquire("k", ttl_ms=TTL_MS)
    held.keep()
    await asyncio.sleep(0.5)
    nodes = list(stage.world.nodes)
    stage.cut([a.host], nodes)
    seen: list[State] = []

    def failed_twice() -> bool:
        if held.state not in seen:
            seen.append(held.state)
        assert held.held, f"lost after {held.failed_renewals} failed renewals"
        return held.failed_renewals >= 2

    await stage.until(failed_twice, "two renewals have failed")
    stage.mend()
    await stage.until(lambda: held.state is State.HELD, "the third renewal has come through", within_s=3.0)
    assert seen == [State.HELD, State.AT_RISK]
    await asyncio.sleep(3 * TTL_MS / 1000)
    assert held.state is State.HELD
    assert len(stage.events("granted", "k")) == 1


def test_two_failed_renewals_leave_time_for_a_third() -> None:
    """T29, T30: a renewal that fails says nothing of the lease; it is repeated, and by default at least two
    further attempts fit before the handle is lost."""
    play(two_renewals_in_a_row_fail)


def test_a_renewer_that_gives_up_at_the_first_failure_loses_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_failed_renewal_is_a_loss(monkeypatch)
    with pytest.raises(AssertionError, match="lost after 1 failed"):
        play(two_renewals_in_a_row_fail)


def test_a_renewer_that_begins_late_has_no_time_for_a_third_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    renewals_begin_late(monkeypatch)
    with pytest.raises(AssertionError, match="lost after"):
        play(two_renewals_in_a_row_fail)


async def the_answer_to_a_release_is_lost(stage: Stage) -> None:
    await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    session = await a.open_session(20_000)
    held = await a.acquire("k", session_id=session)
    a.client.lose_reply = 1.0
    releasing = a.begin(held.release())
    await stage.until(lambda: stage.events("released", "k"), "the release is committed")
    again = await b.acquire("k", session_id=session)
    assert again.token > held.token
    released_before = len(stage.effects("Release"))
    await stage.until(lambda: len(stage.effects("Release")) > released_before, "A asks again")
    a.client.lose_reply = 0.0
    said = await releasing
    assert said.answer == {"status": "already_released"}
    assert (await again.renew()).ok, "the retry of a release took the lease that came after it"
    assert len(stage.events("released", "k")) == 1


def test_a_release_that_is_asked_again_spares_the_next_lease_of_its_session() -> None:
    """T37, T40: a release names its lease; asked again it is answered as before, whoever holds by now."""
    play(the_answer_to_a_release_is_lost)


def test_a_release_by_key_takes_the_next_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    releases_go_by_the_key(monkeypatch)
    with pytest.raises(AssertionError, match="the lease that came after"):
        play(the_answer_to_a_release_is_lost)


async def the_leader_dies_between_grant_and_answer(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    a.client.lose_reply = 1.0
    acquiring = a.begin(a.try_acquire("k", ttl_ms=4 * TTL_MS, request_id="campaign"))
    await stage.until(lambda: stage.events("granted", "k"), "the grant is committed")
    stage.kill(leader)
    a.client.lose_reply = 0.0
    said = await acquiring
    [(_, granted)] = stage.events("granted", "k")
    assert said.ok, f"the same request_id was answered {said.code}, and its grant holds the key"
    assert said.answer["lease"]["token"] == granted["token"]
    assert said.answer["replayed"] is True
    assert (await b.try_acquire("k", ttl_ms=TTL_MS)).code == "held"


def test_a_grant_whose_answer_was_lost_is_found_by_its_request_id() -> None:
    """T38: what was granted before the leader died is found by asking again, and granted once."""
    play(the_leader_dies_between_grant_and_answer)


def test_without_memory_of_requests_the_key_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    requests_are_not_remembered(monkeypatch)
    with pytest.raises(AssertionError, match="was answered held"):
        play(the_leader_dies_between_grant_and_answer)


async def an_acquire_fails_for_certain(stage: Stage) -> None:
    leader = await stage.start()
    a, b = stage.actor("A"), stage.actor("B")
    followers = stage.others(leader)
    stage.kill(*followers)
    await stage.until(lambda: stage.world.leader() is None, "the leader has noticed that it is alone")
    said = await a.try_acquire("k", ttl_ms=TTL_MS)
    assert said.outcome == "unavailable"
    stage.restart(*followers)
    await stage.leader()
    granted = await b.acquire("k", ttl_ms=TTL_MS)
    await asyncio.sleep(2 * TTL_MS / 1000)
    assert [event["token"] for _, event in stage.events("granted", "k")] == [granted.token]


def test_an_acquire_that_failed_for_certain_leaves_nothing() -> None:
    """T38: without a quorum an acquire ends as not executed, and nothing of it is ever granted."""
    play(an_acquire_fails_for_certain)
