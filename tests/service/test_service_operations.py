"""Every operation on a cluster of one, and every answer that it can give."""

from pathlib import Path
from typing import Any

from msgspec import UNSET
from service_cluster import (
    TENANT,
    TTL_MS,
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

from tenure_cluster.service.errors import Problem


async def one(running: Cluster) -> Part:
    return await running.leader()


async def test_a_lease_is_acquired_renewed_and_released(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k", "agent-a", ttl_ms=20_000, metadata={"w": "1"})
        assert (lease.key, lease.owner, lease.mode, lease.slot) == ("k", "agent-a", "exclusive", 0)
        assert lease.metadata == {"w": "1"}
        assert lease.lease_id == lease.session_id
        assert 19_000 < lease.expires_in_ms <= 20_000
        renewed = await ask(node, "renew", lease_id=lease.lease_id)
        assert (renewed.lease.lease_id, renewed.lease.token) == (lease.lease_id, lease.token)
        assert (await ask(node, "release", lease_id=lease.lease_id)).status == "released"
        assert (await ask(node, "release", lease_id=lease.lease_id)).status == "already_released"
        again = await acquired(node, "k", "agent-b")
        assert again.token > lease.token


async def test_the_second_is_refused_and_told_who_holds(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k", "a")
        problem = await refused(ask(node, "acquire", key="k", owner="b", ttl_ms=5000))
        assert problem.code == "held"
        assert (problem.extra["holder"].owner, problem.extra["holder"].token) == ("a", lease.token)
        assert problem.extra["waiters"] == 0
        assert (await ask(node, "queue", key="k")).waiters_total == 0


async def test_the_same_request_finds_the_same_grant(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        first = await ask(node, "acquire", key="k", owner="a", ttl_ms=20_000, request_id="r")
        second = await ask(node, "acquire", key="k", owner="a", ttl_ms=20_000, request_id="r")
        assert first.replayed is UNSET
        assert second.replayed is True
        assert (second.lease.lease_id, second.lease.token) == (first.lease.lease_id, first.lease.token)
        assert second.lease.expires_in_ms <= first.lease.expires_in_ms
        await ask(node, "release", lease_id=first.lease.lease_id)
        problem = await refused(ask(node, "acquire", key="k", owner="a", ttl_ms=20_000, request_id="r"))
        assert (problem.code, problem.extra) == ("lost", {"reason": "released"})


async def test_a_set_of_one_key_is_answered_as_a_set(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        reply = await ask(node, "acquire", keys=["k"], owner="a", ttl_ms=5000)
        assert reply.lease is UNSET
        assert [lease.key for lease in reply.leases] == ["k"]


async def test_a_session_holds_many_leases_and_ends_with_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        session = (await ask(node, "open_session", owner="a", ttl_ms=20_000, metadata={"m": "1"})).session
        one_lease = await acquired(node, "k1", session_id=session.session_id)
        other = await acquired(node, "k2", session_id=session.session_id)
        assert (await acquired(node, "k1", session_id=session.session_id)).lease_id == one_lease.lease_id
        conflict = ask(
            node, "acquire", key="k1", owner="a", session_id=session.session_id, if_held="conflict"
        )
        assert (await refused(conflict)).code == "held"
        seen = (await ask(node, "get_session", session_id=session.session_id)).session
        assert (seen.leases, seen.owner, seen.metadata) == (2, "a", {"m": "1"})
        renewed = (await ask(node, "renew", session_id=session.session_id, ttl_ms=40_000)).session
        assert renewed.ttl_ms == 40_000
        assert renewed.expires_in_ms > 30_000
        assert (await ask(node, "close_session", session_id=session.session_id)).leases == 2
        problem = await refused(ask(node, "renew", lease_id=other.lease_id))
        assert (problem.code, problem.extra) == ("lost", {"reason": "session_closed"})
        await acquired(node, "k1", "b")


async def test_a_session_that_never_was_is_not_known(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        for operation in ("get_session", "close_session", "renew"):
            problem = await refused(ask(node, operation, session_id="never"))
            assert problem.code == "no_session"
        problem = await refused(ask(node, "acquire", key="k", owner="a", session_id="never"))
        assert problem.code == "no_session"


async def test_what_was_never_a_lease_is_lost_for_an_unknown_reason(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        for operation in ("renew", "release"):
            problem = await refused(ask(node, operation, lease_id="never"))
            assert (problem.code, problem.status, problem.extra) == ("lost", 410, {"reason": "unknown"})


async def test_a_lease_that_was_not_renewed_is_lost_by_expiry(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        session = (await ask(node, "open_session", owner="a", ttl_ms=TTL_MS)).session
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        held = await acquired(node, "k2", session_id=session.session_id)
        table = node.replica.table
        await until(lambda: not table.holders(TENANT, "k") and not table.holders(TENANT, "k2"), "the expiry")
        for lease_id in (lease.lease_id, held.lease_id):
            problem = await refused(ask(node, "renew", lease_id=lease_id))
            assert (problem.code, problem.extra) == ("lost", {"reason": "expired"})
        for operation in ("get_session", "renew"):
            problem = await refused(ask(node, operation, session_id=session.session_id))
            assert (problem.code, problem.status) == ("session_expired", 410)
        problem = await refused(ask(node, "acquire", key="k", owner="a", session_id=session.session_id))
        assert problem.code == "session_expired"
        assert (await acquired(node, "k", "b")).token > lease.token


async def test_a_break_ends_the_lease_and_raises_the_floor(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k", "a", grace_ms=60_000)
        reply = await ask(node, "break", key="k", reason="stuck")
        assert [(broken.owner, broken.token) for broken in reply.broken] == [("a", lease.token)]
        assert (await ask(node, "break", key="free", reason="stuck")).broken == []
        problem = await refused(ask(node, "renew", lease_id=lease.lease_id))
        assert problem.extra == {"reason": "broken", "cause": "stuck"}
        validation = await ask(node, "validate", key="k", token=lease.token)
        assert (validation.valid, validation.reason) == (False, "stale_token")
        assert validation.current_token > lease.token
        problem = await refused(ask(node, "acquire", key="k", owner="b", ttl_ms=5000))
        assert problem.code == "held"
        assert 50_000 < problem.extra["blocked_ms"] <= 60_000
        assert "holder" not in problem.extra


async def test_commits_pass_the_guard_or_say_why_not(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k")
        base: dict[str, Any] = {"key": "k", "lease_id": lease.lease_id, "token": lease.token, "mode": "once"}
        problem = await refused(ask(node, "commit", **base | {"lease_id": "other"}))
        assert problem.code == "not_live"
        accepted = await ask(node, "commit", **base, value="done", digest="sha", op_id="op")
        retried = await ask(node, "commit", **base, value="done", digest="sha", op_id="op")
        assert retried.revision == accepted.revision
        problem = await refused(ask(node, "commit", **base, value="other", op_id="op"))
        assert (problem.code, problem.extra) == ("invalid", {"path": "$.op_id"})
        record = await ask(node, "get_record", key="k")
        assert (record.value, record.value_encoding, record.digest) == ("done", "utf8", "sha")
        assert (record.token, record.owner, record.revision) == (lease.token, "a", accepted.revision)

        problem = await refused(ask(node, "commit", **base))
        assert (problem.code, problem.status) == ("token_used", 412)
        assert problem.extra["floor"] == problem.extra["last_token"] == lease.token
        problem = await refused(ask(node, "commit", **base | {"mode": "current"}))
        assert (problem.code, problem.extra) == ("mode_conflict", {"present": "once", "asked": "current"})
        problem = await refused(ask(node, "commit", **base | {"key": "nothing"}))
        assert (problem.code, problem.extra["floor"]) == ("stale_token", 0)

        await ask(node, "release", lease_id=lease.lease_id)
        successor = await acquired(node, "k", "b")
        problem = await refused(ask(node, "commit", **base, require_live=False))
        assert (problem.code, problem.extra["floor"]) == ("stale_token", successor.token)
        fresh: dict[str, Any] = base | {"lease_id": successor.lease_id, "token": successor.token}
        problem = await refused(ask(node, "commit", **fresh, if_revision=accepted.revision + 1))
        assert (problem.code, problem.extra["revision"]) == ("revision_conflict", accepted.revision)
        raw = await ask(
            node, "commit", **fresh, if_revision=accepted.revision, value="AP8=", value_encoding="base64"
        )
        record = await ask(node, "get_record", key="k")
        assert (record.value, record.value_encoding, record.revision) == ("AP8=", "base64", raw.revision)
        assert record.digest is None


async def test_a_sequence_never_goes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k")
        base: dict[str, Any] = {
            "key": "k", "lease_id": lease.lease_id, "token": lease.token, "mode": "sequence",
        }  # fmt: skip
        assert (await ask(node, "commit", **base, seq=5)).status == "accepted"
        problem = await refused(ask(node, "commit", **base, seq=5))
        assert (problem.code, problem.extra["last_seq"]) == ("seq_replayed", 5)
        assert (await ask(node, "commit", **base, seq=6)).status == "accepted"


async def test_records_are_read_and_deleted_by_revision(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        assert (await refused(ask(node, "get_record", key="k"))).code == "no_record"
        assert (await refused(ask(node, "delete_record", key="k"))).code == "no_record"
        lease = await acquired(node, "k")
        revision = (
            await ask(
                node, "commit", key="k", lease_id=lease.lease_id, token=lease.token, mode="current", value="v"
            )
        ).revision
        problem = await refused(ask(node, "delete_record", key="k", if_revision=revision + 1))
        assert (problem.code, problem.extra) == ("revision_conflict", {"revision": revision})
        assert (await ask(node, "delete_record", key="k", if_revision=revision)).status == "deleted"
        assert (await refused(ask(node, "get_record", key="k"))).code == "no_record"


async def test_validation_is_advice_about_the_present(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k")

        async def verdict(token: int, key: str = "k") -> tuple[bool, str, int]:
            reply = await ask(node, "validate", key=key, token=token)
            return reply.valid, reply.reason, reply.current_token

        assert await verdict(lease.token) == (True, "", lease.token)
        assert await verdict(lease.token - 1) == (False, "stale_token", lease.token)
        assert await verdict(lease.token + 1) == (False, "not_live", lease.token)
        assert await verdict(1, "nothing") == (False, "stale_token", 0)
        await ask(node, "release", lease_id=lease.lease_id)
        assert await verdict(lease.token) == (False, "not_live", lease.token)


async def test_a_lease_of_its_own_that_has_expired_is_told_as_such_by_its_session(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k", ttl_ms=TTL_MS)
        assert (await ask(node, "get_session", session_id=lease.session_id)).session.leases == 1
        table = node.replica.table
        await until(lambda: not table.leases, "the end of the lease")
        for operation in ("get_session", "renew"):
            problem = await refused(ask(node, operation, session_id=lease.session_id))
            assert problem.code == "session_expired", operation
        released = await acquired(node, "k")
        await ask(node, "release", lease_id=released.lease_id)
        for operation in ("get_session", "renew"):
            problem = await refused(ask(node, operation, session_id=released.session_id))
            assert problem.code == "no_session", operation


async def test_reads_tell_everybody_but_the_holder_nothing_secret(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "a/1", "me", metadata={"w": "1"})
        seen = await ask(node, "get_lease", key="a/1")
        assert (seen.token, seen.owner, seen.metadata) == (lease.token, "me", {"w": "1"})
        assert seen.lease_id is UNSET
        assert seen.session_id is UNSET
        assert (await refused(ask(node, "get_lease", key="a/2"))).code == "not_held"
        queue = await ask(node, "queue", key="a/1")
        assert [holder.owner for holder in queue.holders] == ["me"]


async def test_leases_are_listed_in_pages_by_prefix_and_owner(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        for key in ("a/1", "a/2", "a/3", "b/1", "ä"):
            await acquired(node, key, "me" if key != "a/2" else "you")
        page = await ask(node, "list_leases", prefix="a/", limit=2)
        assert ([lease.key for lease in page.leases], page.next) == (["a/1", "a/2"], "a/2")
        page = await ask(node, "list_leases", prefix="a/", limit=2, after=page.next)
        assert ([lease.key for lease in page.leases], page.next) == (["a/3"], None)
        mine = await ask(node, "list_leases", owner="me")
        assert [lease.key for lease in mine.leases] == ["a/1", "a/3", "b/1", "ä"]
        assert all(lease.lease_id is UNSET for lease in mine.leases)


async def test_a_list_says_how_many_wait_for_a_key(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        await acquired(node, "k")
        await acquired(node, "l")
        waits = {"key": "k", "owner": "b", "ttl_ms": 30_000, "wait_ms": 10_000, "request_id": "b"}
        waiting = asking(node, "acquire", **waits)
        await until(lambda: len(node.service.polls) == 1, "the waiter")
        listed = (await ask(node, "list_leases")).leases
        assert [(lease.key, lease.waiters) for lease in listed] == [("k", 1), ("l", UNSET)]
        await ask(node, "abandon", request_id="b")
        await waiting
        assert [lease.waiters for lease in (await ask(node, "list_leases")).leases] == [UNSET, UNSET]


async def test_a_stale_read_says_how_far_the_replica_was(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        await acquired(node, "k")
        seen = await ask(node, "get_lease", key="k", consistency="stale")
        assert seen.applied_index == node.replica.applied_index
        for operation in ("queue", "get_lease"):
            assert (await ask(node, operation, key="k")).applied_index is UNSET
        assert (await ask(node, "list_leases", consistency="stale")).applied_index > 0


async def test_tenants_know_nothing_of_one_another(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k")
        other = await node.service.call("get_lease", "other", request("get_lease", key="k"))
        assert isinstance(other, Problem)
        release = await node.service.call("release", "other", request("release", lease_id=lease.lease_id))
        assert isinstance(release, Problem)
        assert release.extra == {"reason": "unknown"}
        assert (await ask(node, "get_lease", key="k")).token == lease.token


async def test_an_invalid_request_is_refused_and_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        before = node.raft.status().last_index
        for fields, code in (
            ({"key": "k", "owner": "a", "ttl_ms": 1}, "out_of_range"),
            ({"key": "a\nb", "owner": "a", "ttl_ms": 5000}, "invalid"),
            ({"key": "k", "owner": "a", "ttl_ms": 5000, "mode": "shared", "slots": 2}, "invalid"),
        ):
            assert (await refused(ask(node, "acquire", **fields))).code == code
        assert node.raft.status().last_index == before


async def test_an_abandoned_request_is_never_granted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k", request_id="r")
        assert (await ask(node, "abandon", request_id="r")).status == "abandoned"
        assert (await ask(node, "abandon", request_id="never")).status == "abandoned"
        problem = await refused(ask(node, "renew", lease_id=lease.lease_id))
        assert problem.extra == {"reason": "abandoned"}
        problem = await refused(ask(node, "acquire", key="k", owner="a", ttl_ms=5000, request_id="r"))
        assert (problem.code, problem.extra) == ("lost", {"reason": "abandoned"})


async def test_a_cycle_of_sessions_that_wait_for_one_another_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        a = (await ask(node, "open_session", owner="a", ttl_ms=20_000)).session.session_id
        b = (await ask(node, "open_session", owner="b", ttl_ms=20_000)).session.session_id
        await acquired(node, "k1", "a", session_id=a)
        await acquired(node, "k2", "b", session_id=b)
        waits = await ask(node, "acquire", key="k2", owner="a", session_id=a, request_id="ra", wait_ms=50)
        assert waits.status == "waiting"
        problem = await refused(
            ask(node, "acquire", key="k1", owner="b", session_id=b, request_id="rb", wait_ms=50)
        )
        assert (problem.code, problem.status) == ("deadlock", 409)
        assert {"a", "b", "k1", "k2"} <= set(problem.extra["cycle"])


async def test_a_batch_is_answered_in_order_each_as_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        lease = await acquired(node, "k0")
        before = node.raft.status().last_index
        answers = await node.service.batch(
            TENANT,
            [
                ("acquire", request("acquire", key="k1", owner="a", ttl_ms=5000)),
                ("validate", request("validate", key="k0", token=lease.token)),
                ("release", request("release", lease_id=lease.lease_id)),
                ("acquire", request("acquire", key="k0", owner="b", ttl_ms=5000)),
                ("acquire", request("acquire", key="k2", owner="b", ttl_ms=1)),
                ("acquire", request("acquire", key="k2", owner="b", ttl_ms=5000, wait_ms=10)),
                ("get_lease", request("get_lease", key="k0")),
                ("renew", request("renew", lease_id="never")),
            ],
        )
        told = [answer.code if isinstance(answer, Problem) else type(answer).__name__ for answer in answers]
        assert told == [
            "GrantedReply", "ValidateReply", "ReleasedReply", "GrantedReply", "out_of_range", "invalid",
            "invalid", "lost",
        ]  # fmt: skip
        assert answers[1].valid is False  # type: ignore[union-attr]
        assert answers[3].lease.owner == "b"  # type: ignore[union-attr]
        assert answers[5].extra == {"path": "$.ops[5].wait_ms"}  # type: ignore[union-attr]
        assert answers[6].extra == {"path": "$.ops[6].op"}  # type: ignore[union-attr]
        assert node.raft.status().last_index <= before + 2


async def test_a_batch_has_a_greatest_length(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        release = ("release", request("release", lease_id="l"))
        answers = await node.service.batch(TENANT, [release] * 1_000)
        assert {answer.code for answer in answers} == {"lost"}  # type: ignore[union-attr]
        answers = await node.service.batch(TENANT, [release] * 1_001)
        assert {answer.code for answer in answers} == {"out_of_range"}  # type: ignore[union-attr]
        assert await node.service.batch(TENANT, []) == []


async def test_the_cluster_s_view_and_readiness(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await one(running)
        view = node.service.cluster()
        assert (view.node, view.role, view.leader, view.leader_url) == (
            "n1",
            "leader",
            "n1",
            "http://n1.test",
        )
        assert view.members[0].lag == 0
        assert view.durability == "os"
        assert node.service.ready()
        await node.service.stop()
        assert not node.service.ready()
        assert (await refused(ask(node, "acquire", key="k", owner="a", ttl_ms=5000))).code == "shutting_down"
