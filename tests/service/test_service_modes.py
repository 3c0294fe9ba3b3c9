"""Shared leases, pools and sets of keys, from request to answer, on a running cluster."""

from pathlib import Path

from service_cluster import acquired, ask, asking, cluster, refused, until

from tenure_cluster.service.replies import GrantedReply


async def test_readers_that_wait_behind_a_writer_are_answered_together(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        writer = await acquired(node, "k", "w")
        fields = {"key": "k", "ttl_ms": 20_000, "wait_ms": 20_000, "mode": "shared"}
        waiting = [asking(node, "acquire", owner=owner, request_id=owner, **fields) for owner in "abc"]
        await until(lambda: len(node.service.polls) == 3, "three readers to wait")
        await ask(node, "release", lease_id=writer.lease_id)
        leases = []
        for task in waiting:
            reply = await task
            assert isinstance(reply, GrantedReply)
            leases.append(reply.lease)
        assert {lease.mode for lease in leases} == {"shared"}  # type: ignore[union-attr]
        assert len({lease.token for lease in leases}) == 1  # type: ignore[union-attr]
        seen = await ask(node, "get_lease", key="k")
        assert (seen.owner, seen.holders) == ("a", 3)
        queue = await ask(node, "queue", key="k")
        assert [(holder.owner, holder.mode) for holder in queue.holders] == [
            ("a", "shared"),
            ("b", "shared"),
            ("c", "shared"),
        ]


async def test_every_reader_validates_its_phases_token(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        first = await acquired(node, "k", "a", mode="shared")
        second = await acquired(node, "k", "b", mode="shared")
        await ask(node, "release", lease_id=first.lease_id)
        assert (await ask(node, "validate", key="k", token=second.token)).valid
        assert not (await ask(node, "validate", key="k", token=second.token - 1)).valid


async def test_permits_have_slots_and_the_pool_refuses_beyond_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        leases = [await acquired(node, "gpu", owner, mode="permit", slots=2) for owner in "ab"]
        assert [lease.slot for lease in leases] == [0, 1]
        fields = {"key": "gpu", "owner": "c", "ttl_ms": 5_000}
        problem = await refused(ask(node, "acquire", mode="permit", slots=2, **fields))
        assert problem.code == "held"
        assert [holder.slot for holder in problem.extra["holders"]] == [0, 1]
        problem = await refused(ask(node, "acquire", mode="permit", slots=3, **fields))
        assert (problem.code, problem.extra["present_slots"]) == ("mode_conflict", 2)
        problem = await refused(ask(node, "acquire", **fields))
        assert (problem.code, problem.extra["present"]) == ("mode_conflict", "permit")
        for lease in leases:
            commit = {"key": "gpu", "lease_id": lease.lease_id, "token": lease.token, "mode": "once"}
            assert (await ask(node, "commit", slot=lease.slot, **commit)).status == "accepted"
            problem = await refused(ask(node, "commit", slot=1 - lease.slot, **commit))
            assert problem.code in ("stale_token", "not_live")


async def test_a_permit_is_validated_against_the_floor_of_its_own_slot(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        first, second = [await acquired(node, "gpu", owner, mode="permit", slots=2) for owner in "ab"]

        async def verdict(token: int) -> tuple[bool, str, int]:
            reply = await ask(node, "validate", key="gpu", token=token)
            return reply.valid, reply.reason, reply.current_token

        assert await verdict(first.token) == (True, "", first.token)
        assert await verdict(second.token) == (True, "", second.token)
        await ask(node, "release", lease_id=first.lease_id)
        assert await verdict(first.token) == (False, "not_live", first.token)
        write = {"key": "gpu", "slot": first.slot, "lease_id": first.lease_id, "token": first.token}
        assert (await refused(ask(node, "commit", mode="once", **write))).code == "not_live"
        third = await acquired(node, "gpu", "c", mode="permit", slots=2)
        assert third.slot == first.slot
        assert await verdict(first.token) == (False, "stale_token", third.token)
        assert (await refused(ask(node, "commit", mode="once", **write))).code == "stale_token"


async def test_a_set_of_keys_is_answered_with_a_lease_for_each(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        fields = {"keys": ["b", "a"], "owner": "s", "ttl_ms": 20_000, "request_id": "s"}
        granted = await ask(node, "acquire", **fields)
        assert [lease.key for lease in granted.leases] == ["b", "a"]
        again = await ask(node, "acquire", **fields)
        assert again.replayed is True
        assert [lease.token for lease in again.leases] == [lease.token for lease in granted.leases]
        problem = await refused(ask(node, "acquire", keys=["c", "a"], owner="t", ttl_ms=20_000))
        assert (problem.code, problem.extra["key"]) == ("held", "a")
        released = await ask(node, "release", lease_id=granted.leases[0].lease_id, whole_set=True)
        assert released.status == "released"
        assert isinstance(await ask(node, "acquire", key="a", owner="t", ttl_ms=20_000), GrantedReply)


async def test_a_waiting_set_is_claimed_as_a_whole_for_its_caller(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        held = [await acquired(node, key, "x") for key in ("a", "b")]
        waiting = asking(
            node, "acquire", keys=["a", "b"], owner="s", ttl_ms=20_000, wait_ms=20_000, request_id="s"
        )
        await until(lambda: len(node.service.polls) == 1, "the set to wait")
        for lease in held:
            await ask(node, "release", lease_id=lease.lease_id)
        reply = await waiting
        assert isinstance(reply, GrantedReply)
        assert [lease.key for lease in reply.leases] == ["a", "b"]  # type: ignore[union-attr]
        assert all(not grant.claim_deadline_ms for grant in node.replica.table.leases.values())
        assert len(node.service.polls) == 0


async def test_a_set_that_can_ask_only_once_leaves_the_queue_with_its_call(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        node = await running.leader()
        await acquired(node, "b", "x")
        problem = await refused(ask(node, "acquire", keys=["a", "b"], owner="s", ttl_ms=20_000, wait_ms=200))
        assert (problem.code, problem.extra["key"]) == ("held", "b")
        assert node.replica.table.waiters == {}
