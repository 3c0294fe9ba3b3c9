"""Progress, parking, handover, and who is in the way, from request to answer."""

from pathlib import Path

from msgspec import UNSET
from service_cluster import Part, acquired, ask, asking, cluster, refused, until

from tenure_cluster.service.replies import GrantedReply


async def session(node: Part, owner: str) -> str:
    opened = await ask(node, "open_session", owner=owner, ttl_ms=60_000)
    return str(opened.session.session_id)


async def test_a_note_of_progress_is_shown_with_the_lease(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a", progress_ms=20_000)
        assert (lease.progress_ms, lease.progress) == (20_000, UNSET)
        assert lease.expires_in_ms <= 20_000
        note = {"step": "plan", "text": "reading", "counter": 3}
        renewed = await ask(node, "renew", lease_id=lease.lease_id, progress=note)
        assert renewed.lease.progress.step == "plan"
        seen = await ask(node, "get_lease", key="k")
        assert (seen.progress.text, seen.progress.counter) == ("reading", 3)


async def test_a_lease_without_progress_ends_and_says_why(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a", progress_ms=1_000)
        table = node.replica.table
        await until(lambda: not table.leases, "the end of the lease")
        problem = await refused(ask(node, "renew", lease_id=lease.lease_id))
        assert problem.extra == {"reason": "expired", "cause": "no_progress"}


async def test_a_parked_lease_is_shown_as_parked_and_taken_up_with_a_new_token(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        lease = await acquired(node, "k", "a", session_id=await session(node, "a"))
        parked = await ask(node, "park", lease_id=lease.lease_id, limit_ms=3_600_000)
        assert (parked.status, parked.lease.state, parked.lease.token) == ("parked", "parked", lease.token)
        assert not (await ask(node, "validate", key="k", token=lease.token)).valid
        queue = await ask(node, "queue", key="k")
        assert [holder.state for holder in queue.holders] == ["parked"]
        assert [link.state for link in queue.chain] == ["parked"]
        awake = await ask(node, "unpark", lease_id=lease.lease_id, ttl_ms=10_000)
        assert (awake.status, awake.lease.lease_id, awake.lease.state) == ("unparked", lease.lease_id, UNSET)
        assert awake.lease.token > lease.token
        assert (await ask(node, "unpark", lease_id=lease.lease_id)).replayed is True


async def test_a_successor_that_waits_is_answered_by_the_handover(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        successor = await session(node, "b")
        lease = await acquired(node, "k", "a", session_id=await session(node, "a"), metadata={"run": "7"})
        other = asking(node, "acquire", key="k", owner="x", ttl_ms=20_000, wait_ms=20_000, request_id="x")
        waiting = asking(
            node, "acquire", key="k", owner="b", session_id=successor, wait_ms=20_000, request_id="r"
        )
        await until(lambda: len(node.service.polls) == 2, "both to wait")
        given = await ask(node, "handover", lease_id=lease.lease_id, to_session_id=successor)
        assert (given.status, given.lease.owner, given.lease.metadata) == ("handed_over", "b", {"run": "7"})
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert reply.lease.token == given.lease.token > lease.token  # type: ignore[union-attr]
        problem = await refused(ask(node, "renew", lease_id=lease.lease_id))
        assert problem.extra == {"reason": "handed_over"}
        await ask(node, "release", lease_id=given.lease.lease_id)
        assert isinstance(await other, GrantedReply)


async def test_a_queue_shows_the_chain_up_to_the_one_that_everyone_waits_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k3", "root")
        waits = []
        for number in (2, 1):
            mine = await session(node, f"s{number}")
            await acquired(node, f"k{number}", f"s{number}", session_id=mine)
            waits.append(
                asking(
                    node,
                    "acquire",
                    key=f"k{number + 1}",
                    owner=f"s{number}",
                    session_id=mine,
                    wait_ms=20_000,
                    request_id=f"r{number}",
                )
            )
        waits.append(
            asking(
                node, "acquire", keys=["k1", "free"], owner="x", ttl_ms=20_000, wait_ms=20_000, request_id="x"
            )
        )
        await until(lambda: len(node.service.polls) == 3, "three to wait")
        queue = await ask(node, "queue", key="k1")
        assert [(link.key, link.owner) for link in queue.chain] == [
            ("k1", "s1"),
            ("k2", "s2"),
            ("k3", "root"),
        ]
        assert all(link.since_ms >= 0 and link.token for link in queue.chain)
        assert [waiter.keys for waiter in queue.waiters] == [["k1", "free"]]
        behind = await ask(node, "queue", key="free")
        assert [(link.owner, link.state) for link in behind.chain] == [
            ("x", "waiting"),
            ("s1", "holding"),
            ("s2", "holding"),
            ("root", "holding"),
        ]
        assert (await ask(node, "queue", key="nobody")).chain == []
        for wait in waits:
            wait.cancel()


async def test_the_chain_goes_on_at_the_key_that_keeps_a_set_waiting(tmp_path: Path) -> None:
    """Not at one that the set would share with its holders, nor at one that is free for it."""
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "read", "reader", mode="shared")
        await acquired(node, "written", "writer")
        mine = await session(node, "s")
        await acquired(node, "k", "s", session_id=mine)
        asked = {"keys": ["read", "free", "written"], "mode": "shared", "owner": "s", "session_id": mine}
        wait = asking(node, "acquire", wait_ms=20_000, request_id="r", **asked)
        await until(lambda: len(node.service.polls) == 1, "the set to wait")

        async def chain(key: str) -> list[tuple[str, str, str]]:
            queue = await ask(node, "queue", key=key)
            return [(link.key, link.owner, link.state) for link in queue.chain]

        assert await chain("k") == [("k", "s", "holding"), ("written", "writer", "holding")]
        assert await chain("free") == [("free", "s", "waiting"), ("written", "writer", "holding")]
        wait.cancel()


async def test_a_grace_period_is_shown_with_the_queue_and_with_the_refusal(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "k", "a", grace_ms=60_000)
        await ask(node, "break", key="k", reason="gone")
        problem = await refused(ask(node, "acquire", key="k", owner="b", ttl_ms=5_000))
        assert problem.extra["reason"] == "grace"
        assert 50_000 < problem.extra["expires_in_ms"] <= 60_000
        assert 50_000 < (await ask(node, "queue", key="k")).blocked_ms <= 60_000
