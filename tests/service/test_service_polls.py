"""Waiting: the queue, claims for connected waiters, the end of a slice, giving up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from service_cluster import TENANT, TTL_MS, Part, acquired, ask, asking, cluster, refused, until

from tenure_cluster.service.polls import LEAVE_AFTER_S
from tenure_cluster.service.replies import BrokenReply, GrantedReply, WaitingReply
from tenure_cluster.service.requests import BreakRequest, ReleaseRequest


def queued(node: Part, key: str = "k") -> list[str]:
    """The owners that wait, as this node's replica has it."""
    return [waiter.owner for waiter in node.replica.table.queue(TENANT, key)]


async def waits(node: Part, owner: str, count: int = 1) -> None:
    await until(lambda: owner in queued(node) and len(node.service.polls) >= count, f"{owner} to wait")


async def test_the_next_waiter_is_granted_with_its_full_ttl_when_the_key_is_released(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=20_000, request_id="r")
        await waits(node, "b")
        await asyncio.sleep(0.3)
        await ask(node, "release", lease_id=lease.lease_id)
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert reply.lease.token > lease.token  # type: ignore[union-attr]
        assert reply.lease.expires_in_ms > 19_500  # type: ignore[union-attr]
        [held] = node.replica.table.holders(TENANT, "k")
        assert held.lease.claim_deadline_ms == 0
        assert len(node.service.polls) == 0


async def test_waiters_are_served_first_come_first_served(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "holder")
        waiting = {}
        for number in range(8):
            owner = f"w{number}"
            waiting[owner] = asking(node, "acquire", key="k", owner=owner, ttl_ms=20_000, wait_ms=20_000)
            await waits(node, owner, number + 1)
        token = lease.token
        for owner, task in waiting.items():
            await ask(node, "release", lease_id=lease.lease_id)
            reply = await task
            lease = reply.lease  # type: ignore[union-attr,assignment]
            assert lease.owner == owner
            assert lease.token > token
            token = lease.token


async def test_a_waiter_with_a_request_id_keeps_its_place_from_poll_to_poll(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a")
        first = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 30, "request_id": "rb"}
        second = first | {"owner": "c", "request_id": "rc"}
        for _ in range(3):
            reply = await ask(node, "acquire", **first)
            assert isinstance(reply, WaitingReply)
            assert (reply.position, reply.request_id) == (1, "rb")
            reply = await ask(node, "acquire", **second)
            assert reply.position == 2
            assert [(ahead.owner, ahead.state) for ahead in reply.ahead] == [
                ("a", "holding"),
                ("b", "waiting"),
            ]
        assert queued(node) == ["b", "c"]
        assert (await ask(node, "acquire", **first | {"wait_ms": 0})).position == 1
        view = await ask(node, "queue", key="k")
        assert [(waiter.position, waiter.owner) for waiter in view.waiters] == [(1, "b"), (2, "c")]
        assert view.waiters_total == 2


async def test_a_grant_between_two_polls_is_claimed_by_the_next(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        poll = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 20, "request_id": "rb"}
        assert (await ask(node, "acquire", **poll)).status == "waiting"
        await ask(node, "release", lease_id=lease.lease_id)
        [grant] = node.replica.table.holders(TENANT, "k")
        assert grant.lease.claim_deadline_ms > 0
        validation = await ask(node, "validate", key="k", token=grant.lease.token)
        assert (validation.valid, validation.reason) == (False, "not_live")
        assert (await ask(node, "get_lease", key="k")).expires_in_ms <= 5_000
        reply = await ask(node, "acquire", **poll)
        assert reply.lease.token == grant.lease.token
        assert reply.lease.expires_in_ms > 19_000


async def test_a_waiter_without_a_request_id_leaves_when_its_wait_is_over(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        problem = await refused(ask(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=50))
        assert problem.code == "held"
        assert (problem.extra["holder"].owner, problem.extra["waiters"]) == ("a", 0)
        assert queued(node) == []
        await ask(node, "release", lease_id=lease.lease_id)
        await acquired(node, "k", "c")


async def test_a_caller_that_goes_away_while_it_waits_leaves_the_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=20_000)
        await waits(node, "b")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: queued(node) == [], "the queue to be empty")
        await until(lambda: len(node.service.polls) == 0, "the poll to be forgotten")
        await ask(node, "release", lease_id=lease.lease_id)
        assert node.replica.table.holders(TENANT, "k") == []


async def test_a_caller_that_can_ask_again_keeps_its_place_and_nothing_is_claimed_for_it(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        poll = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 20_000, "request_id": "r"}
        waiting = asking(node, "acquire", **poll)
        await waits(node, "b")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(node.service.polls) == 0
        await ask(node, "release", lease_id=lease.lease_id)
        [grant] = node.replica.table.holders(TENANT, "k")
        assert grant.lease.owner == "b"
        assert grant.lease.claim_deadline_ms > 0
        reply = await ask(node, "acquire", **poll)
        assert reply.lease.token == grant.lease.token
        assert reply.lease.expires_in_ms > 19_000


async def cut_off(waiting: asyncio.Task[Any]) -> None:
    """The caller's connection closes."""
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_caller_that_closes_its_connection_and_stays_away_leaves_the_queue(tmp_path: Path) -> None:
    poll = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 20_000, "request_id": "r"}
    async with cluster(tmp_path, nodes=3) as running:
        leader = await running.leader()
        await acquired(leader, "k", "a")
        for node in (leader, await running.follower()):
            waiting = asking(node, "acquire", **poll)
            await waits(leader, "b")
            await cut_off(waiting)
            assert queued(leader) == ["b"]
            await until(lambda: queued(leader) == [], "the queue to be empty")
        again = asking(leader, "acquire", **poll)
        await waits(leader, "b")
        await cut_off(again)


async def test_a_caller_whose_connection_breaks_and_who_asks_again_keeps_its_place(tmp_path: Path) -> None:
    poll = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 20_000, "request_id": "r"}
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        waiting = asking(node, "acquire", **poll)
        await waits(node, "b")
        behind = asking(node, "acquire", key="k", owner="c", ttl_ms=20_000, wait_ms=20_000, request_id="s")
        await waits(node, "c")
        await cut_off(waiting)
        again = asking(node, "acquire", **poll)
        await waits(node, "b", 2)
        await asyncio.sleep(LEAVE_AFTER_S + 0.5)
        assert queued(node) == ["b", "c"]
        await ask(node, "release", lease_id=lease.lease_id)
        assert (await again).lease.owner == "b"
        await cut_off(behind)


async def test_a_caller_that_goes_away_while_its_acquire_is_under_way_keeps_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        for key, fields in (("k1", {}), ("k2", {"wait_ms": 10_000})):
            before = node.replica.applied_index
            under_way = asking(node, "acquire", key=key, owner="b", ttl_ms=20_000, **fields)
            await asyncio.sleep(0)
            assert node.service.proposer.pending == 1
            assert node.replica.applied_index == before
            under_way.cancel()
            with pytest.raises(asyncio.CancelledError):
                await under_way
            await until(lambda: node.service.proposer.pending == 0, "the acquire and its abandon")
            await until(lambda before=before: node.replica.applied_index > before, "their entry")  # type: ignore[misc]
            assert node.replica.table.holders(TENANT, key) == []
            assert queued(node, key) == []


async def test_a_dead_waiter_costs_its_claim_window_and_the_next_is_served(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        dead = {"key": "k", "owner": "dead", "ttl_ms": 60_000, "wait_ms": 20, "request_id": "rd"}
        assert (await ask(node, "acquire", **dead)).status == "waiting"
        waiting = asking(node, "acquire", key="k", owner="c", ttl_ms=20_000, wait_ms=20_000)
        await waits(node, "c")
        released_at = node.raft.now_ms()
        await ask(node, "release", lease_id=lease.lease_id)
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert 5_000 <= node.raft.now_ms() - released_at < 8_000


async def test_a_waiter_whose_session_dies_is_told_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a")
        session = (await ask(node, "open_session", owner="b", ttl_ms=TTL_MS)).session.session_id
        waiting = asking(
            node, "acquire", key="k", owner="b", session_id=session, wait_ms=20_000, request_id="r"
        )
        await waits(node, "b")
        problem = await refused(waiting)
        assert problem.code == "session_expired"
        assert queued(node) == []


async def test_an_abandon_ends_the_poll_of_the_same_request(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=20_000, request_id="r")
        await waits(node, "b")
        await ask(node, "abandon", request_id="r")
        problem = await refused(waiting)
        assert (problem.code, problem.extra) == ("lost", {"reason": "abandoned"})


async def test_a_poll_on_a_second_connection_answers_the_first_with_its_place(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a")
        poll = {"key": "k", "owner": "b", "ttl_ms": 20_000, "wait_ms": 20_000, "request_id": "r"}
        first = asking(node, "acquire", **poll)
        await waits(node, "b")
        second = asking(node, "acquire", **poll)
        reply = await first
        assert isinstance(reply, WaitingReply)
        assert reply.position == 1
        await ask(node, "release", lease_id=lease.lease_id)
        granted = await second
        assert isinstance(granted, GrantedReply)


async def test_a_key_that_is_free_is_granted_to_a_waiter_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a", wait_ms=10_000)
        assert lease.expires_in_ms > 29_000


async def test_expiry_hands_the_key_to_the_waiter_without_anybody_asking(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a", ttl_ms=TTL_MS)
        reply = await ask(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=10_000)
        assert reply.lease.token > lease.token
        assert node.service.reaper.expired >= 1


async def test_a_waiter_is_served_when_a_grace_period_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a", grace_ms=500)
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=10_000)
        await waits(node, "b")
        broken_at = node.raft.now_ms()
        await ask(node, "break", key="k", reason="stuck")
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert 500 <= node.raft.now_ms() - broken_at < 4_000


async def test_a_node_that_stops_answers_its_polls_first(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a")
        known = asking(node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=20_000, request_id="r")
        await waits(node, "b")
        unknown = asking(node, "acquire", key="k", owner="c", ttl_ms=20_000, wait_ms=20_000)
        await waits(node, "c", 2)
        await node.service.stop()
        reply = await known
        assert isinstance(reply, WaitingReply)
        assert (await refused(unknown)).code == "held"
        assert queued(node) == ["b"]


async def test_a_thousand_waiters_of_one_key_are_served_in_turn(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease_id = (await acquired(node, "k", "a")).lease_id
        waiting = [
            asking(node, "acquire", key="k", owner=f"w{number}", ttl_ms=60_000, wait_ms=25_000)
            for number in range(1_000)
        ]
        await until(lambda: len(node.service.polls) == 1_000, "all to wait")
        tokens = []
        for task in waiting:
            await ask(node, "release", lease_id=lease_id)
            reply = await task
            lease_id = reply.lease.lease_id  # type: ignore[union-attr]
            tokens.append(reply.lease.token)  # type: ignore[union-attr]
        assert tokens == sorted(set(tokens))


async def test_a_waiter_whose_grant_was_ended_in_the_same_round_is_told_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        for request_id in ("r", None):
            lease = await acquired(node, "k", "a")
            waiting = asking(
                node, "acquire", key="k", owner="b", ttl_ms=20_000, wait_ms=20_000, request_id=request_id
            )
            await waits(node, "b")
            release = ReleaseRequest(lease_id=lease.lease_id)
            [_, broken] = await node.service.batch(
                TENANT, [("release", release), ("break", BreakRequest(key="k", reason="test"))]
            )
            assert isinstance(broken, BrokenReply)
            assert [item.owner for item in broken.broken] == ["b"]
            async with asyncio.timeout(5):
                problem = await refused(waiting)
            assert problem.code == "lost"
            assert problem.extra["reason"] == "broken"
