"""Any node answers any call: handing on, asking again, and never calling an unknown outcome a refusal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from service_cluster import (
    TENANT,
    Cluster,
    Part,
    acquired,
    ask,
    asking,
    cluster,
    refused,
    request,
    until,
)

from tenure_cluster.service.asks import Ask, NoAnswer, Outcome
from tenure_cluster.service.forwarding import Forwarding
from tenure_cluster.service.peer_messages import encode_answered, encode_asked
from tenure_cluster.service.replies import AcceptedReply, GrantedReply, WaitingReply
from tenure_cluster.settings import Calls


async def waits(leader: Part, owner: str) -> None:
    await until(
        lambda: (
            len(leader.service.polls) > 0
            and owner in [waiter.owner for waiter in leader.replica.table.queue(TENANT, "k")]
        ),
        f"{owner} to wait",
    )


async def test_a_follower_answers_every_kind_of_call(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        node = await running.follower()
        lease = await acquired(node, "k", "a", request_id="r")
        assert (
            await ask(node, "acquire", key="k", owner="a", ttl_ms=30_000, request_id="r")
        ).replayed is True
        problem = await refused(ask(node, "acquire", key="k", owner="b", ttl_ms=5000))
        assert problem.code == "held"
        assert problem.extra["holder"]["token"] == lease.token
        assert (await ask(node, "renew", lease_id=lease.lease_id)).lease.token == lease.token
        assert (await ask(node, "validate", key="k", token=lease.token)).valid is True
        base: dict[str, Any] = {
            "key": "k",
            "lease_id": lease.lease_id,
            "token": lease.token,
            "mode": "current",
        }
        assert (await ask(node, "commit", **base, value="v")).status == "accepted"
        assert (await ask(node, "get_record", key="k")).value == "v"
        assert (await ask(node, "delete_record", key="k")).status == "deleted"
        assert (await ask(node, "get_lease", key="k")).token == lease.token
        assert [seen.key for seen in (await ask(node, "list_leases")).leases] == ["k"]
        assert (await ask(node, "queue", key="k")).holders[0].owner == "a"
        session = (await ask(node, "open_session", owner="s", ttl_ms=30_000)).session.session_id
        assert (await ask(node, "get_session", session_id=session)).session.owner == "s"
        assert (await ask(node, "close_session", session_id=session)).status == "closed"
        assert (await ask(node, "abandon", request_id="r")).status == "abandoned"
        assert (await ask(node, "break", key="k", reason="x")).broken == []
        assert (await refused(ask(node, "release", lease_id=lease.lease_id))).extra == {"reason": "abandoned"}


async def test_ids_are_minted_and_times_stamped_by_the_leader_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(node, "k")
        assert lease.lease_id.startswith(leader.node_id)  # type: ignore[union-attr]


async def test_every_node_has_its_own_view_of_the_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await until(lambda: len(leader.raft.status().connected) == 2, "all links of the leader")
        await acquired(leader, "k")
        await until(lambda: all(member.lag == 0 for member in leader.service.cluster().members), "no lag")
        view = leader.service.cluster()
        assert sorted(member.role for member in view.members) == ["follower", "follower", "leader"]
        view = node.service.cluster()
        assert (view.node, view.role, view.leader) == (node.node_id, "follower", leader.node_id)
        assert view.leader_url == node.service.leader_url == f"http://{leader.node_id}.test"
        roles = {member.id: member.role for member in view.members}
        assert roles[leader.node_id] == "leader"
        assert {member.lag for member in view.members} == {None}
        running.isolate(node)
        await until(lambda: node.node_id not in leader.raft.status().connected, "the link to be down")
        roles = {member.id: member.role for member in leader.service.cluster().members}
        assert roles[node.node_id] == "unknown"
        assert leader.service.ready()
        await until(lambda: not node.service.ready(), "the cut-off node to notice")


async def test_a_batch_at_a_follower_is_one_question(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        before = leader.raft.status().last_index
        answers = await node.service.batch(
            TENANT,
            [("acquire", request("acquire", key=f"k{n}", owner="a", ttl_ms=30_000)) for n in range(200)]
            + [("acquire", request("acquire", key="k0", owner="b", ttl_ms=30_000))],
        )
        assert [type(answer).__name__ for answer in answers] == ["GrantedReply"] * 200 + ["Problem"]
        assert leader.raft.status().last_index <= before + 2


async def test_a_poll_at_a_follower_waits_at_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(leader, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000)
        await waits(leader, "b")
        await ask(node, "release", lease_id=lease.lease_id)
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert reply.lease.expires_in_ms > 29_000  # type: ignore[union-attr]
        place = await ask(node, "acquire", key="k", owner="c", ttl_ms=30_000, wait_ms=30, request_id="rc")
        assert isinstance(place, WaitingReply)


async def test_a_caller_that_leaves_a_follower_s_poll_leaves_the_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await acquired(leader, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000)
        await waits(leader, "b")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: leader.replica.table.queue(TENANT, "k") == [], "the queue to be empty")
        await until(lambda: len(leader.service.polls) == 0, "the poll to be forgotten")
        await until(lambda: len(node.service.forwarding) == 0, "the questions to be forgotten")


async def test_a_caller_that_leaves_a_follower_s_poll_and_can_ask_again_keeps_its_place(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(leader, "k", "a")
        poll = {"key": "k", "owner": "b", "ttl_ms": 30_000, "wait_ms": 20_000, "request_id": "r"}
        waiting = asking(node, "acquire", **poll)
        await waits(leader, "b")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: len(leader.service.polls) == 0, "the poll to be forgotten")
        await ask(leader, "release", lease_id=lease.lease_id)
        [grant] = leader.replica.table.holders(TENANT, "k")
        assert grant.lease.claim_deadline_ms > 0
        reply = await ask(leader, "acquire", **poll)
        assert reply.lease.token == grant.lease.token


async def test_nothing_is_claimed_for_a_caller_whose_node_is_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(leader, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000, request_id="r")
        await waits(leader, "b")
        running.isolate(node)
        await until(lambda: len(leader.service.polls) == 0, "the poll to be forgotten")
        await ask(leader, "release", lease_id=lease.lease_id)
        [grant] = leader.replica.table.holders(TENANT, "k")
        assert grant.lease.claim_deadline_ms > 0
        running.heal()
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert reply.lease.token == grant.lease.token  # type: ignore[union-attr]


async def test_a_caller_that_leaves_while_its_question_is_under_way_keeps_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        under_way = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000)
        await asyncio.sleep(0)
        assert len(node.service.forwarding) == 1
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        table = leader.replica.table
        await until(lambda: len(table.abandoned) or len(table.ended), "the abandon")
        assert table.holders(TENANT, "k") == []
        assert table.queue(TENANT, "k") == []


async def test_a_poll_outlives_its_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(node, "k", "a", ttl_ms=60_000)
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000)
        await waits(leader, "b")
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await waits(successor, "b")
        other = next(part for part in running.parts.values() if part is not leader)
        assert (await ask(other, "release", lease_id=lease.lease_id)).status == "released"
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert reply.lease.owner == "b"  # type: ignore[union-attr]


async def test_a_poll_at_a_leader_that_is_deposed_goes_on_at_the_next(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        lease = await acquired(leader, "k", "a", ttl_ms=60_000)
        waiting = asking(leader, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000, request_id="r")
        await waits(leader, "b")
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await until(lambda: not leader.raft.is_leader(), "the old leader to step down")
        running.heal()
        await waits(successor, "b")
        await ask(successor, "release", lease_id=lease.lease_id)
        reply = await waiting
        assert isinstance(reply, GrantedReply)


async def test_what_can_be_asked_again_is_asked_of_the_next_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(node, "k", "a", ttl_ms=60_000)
        # The question reaches the leader; nothing comes back from it, and nothing of it is committed.
        for link in running.around(leader):
            link.clog()
        calls = {
            "acquire": asking(node, "acquire", key="new", owner="a", ttl_ms=60_000),
            "renew": asking(node, "renew", lease_id=lease.lease_id),
            "validate": asking(node, "validate", key="k", token=lease.token),
            "commit": asking(
                node, "commit", key="k", lease_id=lease.lease_id, token=lease.token, mode="once", op_id="o"
            ),
        }
        answers = {name: await task for name, task in calls.items()}
        assert {name: type(answer).__name__ for name, answer in answers.items()} == {
            "acquire": "GrantedReply",
            "renew": "RenewedReply",
            "validate": "ValidateReply",
            "commit": "AcceptedReply",
        }
        assert (await running.leader(but=leader)).node_id != leader.node_id


async def test_what_can_t_be_asked_again_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, calls=Calls(timeout_ms=1_500, leader_wait_ms=500)) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(node, "k", "a", ttl_ms=60_000)
        for link in running.around(leader):
            link.clog()
        calls = [
            asking(node, "break", key="k", reason="x"),
            asking(node, "open_session", owner="a", ttl_ms=30_000),
            asking(node, "commit", key="k", lease_id=lease.lease_id, token=lease.token, mode="once"),
        ]
        for problem in await asyncio.gather(*calls):
            assert problem.code == "outcome_unknown"  # type: ignore[union-attr]
            assert problem.status == 504  # type: ignore[union-attr]


async def test_of_a_batch_that_outlives_its_leader_only_what_is_safe_is_asked_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, calls=Calls(timeout_ms=3_000, leader_wait_ms=1_000)) as running:
        leader = await running.leader()
        lease = await acquired(leader, "k", "a", ttl_ms=60_000)
        running.isolate(leader)
        batch = asyncio.get_running_loop().create_task(
            leader.service.batch(
                TENANT,
                [
                    ("renew", request("renew", lease_id=lease.lease_id)),
                    ("break", request("break", key="other", reason="x")),
                    ("acquire", request("acquire", key="new", owner="a", ttl_ms=60_000)),
                    ("validate", request("validate", key="k", token=lease.token)),
                    ("acquire", request("acquire", key="k", owner="b", ttl_ms=1)),
                ],
            )
        )
        await until(lambda: not leader.raft.is_leader(), "the old leader to step down")
        running.heal()
        answers = await batch
        told = [getattr(answer, "code", type(answer).__name__) for answer in answers]
        assert told == ["RenewedReply", "outcome_unknown", "GrantedReply", "ValidateReply", "out_of_range"]
        assert answers[2].lease.lease_id == (await the_lease_of(running, "new"))  # type: ignore[union-attr]


async def the_lease_of(running: Cluster, key: str) -> str:
    successor = await running.leader()
    [grant] = successor.replica.table.holders(TENANT, key)
    return grant.lease.lease_id


async def test_a_broken_link_ends_a_question_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        running.links[leader.node_id, node.node_id].clog()
        asked = asking(node, "break", key="k", reason="x")
        await until(lambda: len(node.service.forwarding) == 1, "the question")
        await until(lambda: leader.service.proposer.pending == 0, "its execution")
        running.links[node.node_id, leader.node_id].cut()
        started = asyncio.get_running_loop().time()
        assert (await refused(asked)).code == "outcome_unknown"
        assert asyncio.get_running_loop().time() - started < 2.5


async def test_a_new_connection_of_the_leader_ends_a_question_whose_answer_may_be_lost(
    tmp_path: Path,
) -> None:
    """Nothing needs to come over it."""
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await acquired(node, "k")
        line = running.links[leader.node_id, node.node_id]
        line.clog()
        asked = asking(node, "break", key="k", reason="x")
        await until(lambda: len(node.service.forwarding) == 1, "the question")
        await until(lambda: not leader.replica.table.holders(TENANT, "k"), "its execution")
        line.cut()
        line.heal()
        started = asyncio.get_running_loop().time()
        assert (await refused(asked)).code == "outcome_unknown"
        assert asyncio.get_running_loop().time() - started < 2.5


async def test_without_a_leader_a_call_waits_a_little_and_is_refused_as_not_executed(tmp_path: Path) -> None:
    calls = Calls(timeout_ms=2_000, leader_wait_ms=300)
    async with cluster(tmp_path, 3, calls=calls) as running:
        node = await running.follower()
        for part in running.parts.values():
            running.isolate(part)
        await until(lambda: node.service.leadership.reachable is None, "the leader to be out of reach")
        loop = asyncio.get_running_loop()
        started = loop.time()
        problem = await refused(ask(node, "acquire", key="k", owner="a", ttl_ms=30_000))
        assert (problem.code, problem.status) == ("no_leader", 503)
        assert problem.retry_after_s
        assert 0.25 < loop.time() - started < 2.0
        assert (await refused(ask(node, "get_lease", key="k"))).code == "no_leader"
        assert (await ask(node, "list_leases", consistency="stale")).leases == []
        assert not node.service.ready()


async def test_a_call_without_a_leader_goes_on_as_soon_as_there_is_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        node = await running.follower()
        for part in running.parts.values():
            running.isolate(part)
        await until(lambda: node.service.leadership.reachable is None, "the leader to be out of reach")
        asked = asking(node, "acquire", key="k", owner="a", ttl_ms=30_000)
        await asyncio.sleep(0.05)
        running.heal()
        reply = await asked
        assert isinstance(reply, GrantedReply)


async def test_few_may_wait_for_a_leader_at_once(tmp_path: Path) -> None:
    calls = Calls(timeout_ms=2_000, leader_wait_ms=1_000, leader_waiters_max=3)
    async with cluster(tmp_path, 3, calls=calls) as running:
        node = await running.follower()
        for part in running.parts.values():
            running.isolate(part)
        await until(lambda: node.service.leadership.reachable is None, "the leader to be out of reach")
        loop = asyncio.get_running_loop()
        waiting = [asking(node, "acquire", key="k", owner="a", ttl_ms=30_000) for _ in range(10)]
        started = loop.time()
        _, pending = await asyncio.wait(waiting, timeout=0.5)
        assert 0 < len(pending) <= 4
        for task in waiting:
            assert (await refused(task)).code == "no_leader"
        assert loop.time() - started < 4.0


async def test_an_isolated_leader_answers_neither_reads_nor_writes(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, calls=Calls(timeout_ms=3_000, leader_wait_ms=500)) as running:
        leader = await running.leader()
        await acquired(leader, "k", "a", ttl_ms=60_000)
        running.isolate(leader)
        read = asking(leader, "get_lease", key="k")
        write = asking(leader, "break", key="k", reason="x")
        acquire = asking(leader, "acquire", key="new", owner="a", ttl_ms=60_000)
        assert (await refused(read)).code in ("no_quorum", "no_leader")
        assert (await refused(write)).code in ("outcome_unknown", "no_leader")
        # It was in the old leader's log: once unknown, it never becomes a refusal.
        assert (await refused(acquire)).code in ("outcome_unknown", "no_leader")
        assert not leader.service.ready()


async def test_a_question_meant_for_another_term_is_not_executed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        forwarding = node.service.forwarding
        node.service.leadership.term -= 1
        answered: list[list[Outcome]] = []
        forwarding.ask(
            leader.node_id,
            [Ask("break", TENANT, request("break", key="k", reason="x"))],
            answered.append,
        )
        await until(lambda: answered, "the answer")
        assert answered == [[NoAnswer.NOT_EXECUTED]]
        # A call notices, looks again which term it is, and is answered.
        node.service.leadership.term -= 1
        await acquired(node, "k")


async def test_a_deposed_node_believes_no_longer_and_hands_on(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await until(lambda: not leader.raft.is_leader(), "the old leader to step down")
        running.heal()
        await until(lambda: leader.raft.leader_id == successor.node_id, "the old leader to follow")
        lease = await acquired(leader, "k")
        assert lease.lease_id.startswith(successor.node_id)  # type: ignore[union-attr]


async def test_a_peer_that_says_nonsense_is_not_answered_and_does_no_harm(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        before = leader.raft.status().last_index
        assert node.raft.send(leader.node_id, b"\xc1nonsense") is not None
        await until(lambda: leader.service.forwarding.bad_messages == 1, "the message")
        assert leader.raft.status().last_index == before
        await acquired(node, "k")


async def test_an_answer_to_a_question_of_a_previous_life_ends_no_other_question(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await acquired(leader, "k", "a")
        service, ended = node.service, list[list[Outcome]]()
        before, after = (
            Forwarding(
                node.raft, service.leadership, service._office, service.polls, node.config.leases, incarnation
            )
            for incarnation in ("life 1", "life 2")
        )
        poll = request("acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000, request_id="r")
        old = before.ask(leader.node_id, [Ask("acquire", TENANT, poll)], ended.append)
        new = after.ask(leader.node_id, [Ask("acquire", TENANT, poll)], ended.append)
        after.on_peer_message(leader.node_id, 1, encode_answered(old, [AcceptedReply(revision=7)]))
        assert ended == []
        after.on_peer_message(leader.node_id, 1, encode_answered(new, [AcceptedReply(revision=8)]))
        assert ended == [[AcceptedReply(revision=8)]]


async def test_a_question_that_comes_again_over_its_connection_is_not_executed_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await acquired(leader, "k", "a")
        opening = Ask("open_session", TENANT, request("open_session", owner="twice", ttl_ms=30_000))
        term = leader.service.leadership.term
        first, second = (encode_asked(number, term, TENANT, [opening]) for number in (5, 6))

        async def opened(epoch: int, *payloads: bytes) -> int:
            for payload in payloads:
                leader.service.forwarding.on_peer_message(node.node_id, epoch, payload)
            # Proposed later, so committed later.
            await ask(leader, "open_session", owner="last", ttl_ms=30_000)
            sessions = leader.replica.table.sessions.values()
            return sum(session.owner == "twice" for session in sessions)

        assert await opened(1, first, second, first, second) == 2
        assert await opened(2, first) == 3


async def test_a_stopping_follower_ends_its_questions_honestly(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        await acquired(leader, "k", "a")
        waiting = asking(node, "acquire", key="k", owner="b", ttl_ms=30_000, wait_ms=20_000, request_id="r")
        await waits(leader, "b")
        await node.service.stop()
        assert (await refused(waiting)).code == "outcome_unknown"


async def test_a_call_at_a_follower_survives_its_leader_s_orderly_stop(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(leader, "k", "a", ttl_ms=60_000)
        stopping = asyncio.get_running_loop().create_task(leader.stop())
        renewals = [await ask(node, "renew", lease_id=lease.lease_id) for _ in range(20)]
        await stopping
        assert {type(reply).__name__ for reply in renewals} == {"RenewedReply"}
        assert (await ask(node, "get_lease", key="k")).token == lease.token
