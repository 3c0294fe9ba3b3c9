"""Credentials and quotas in a cluster of three: asked for anywhere, known everywhere."""

import asyncio
import stat
from pathlib import Path

from service_cluster import TENANT, Cluster, Part, acquired, ask, cluster, request, until

from tenure_cluster.auth import bearer
from tenure_cluster.auth.gate import Gate
from tenure_cluster.first_administrator import FILE_NAME, FirstAdministrator
from tenure_cluster.service.credential_replies import CredentialReply, CredentialsReply
from tenure_cluster.service.credential_requests import (
    CreateCredentialRequest,
    EntrustRequest,
    ListCredentialsRequest,
    SetQuotaRequest,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.settings import Quotas

SECRET = "s" * 43


def entrust(credential_id: str) -> EntrustRequest:
    asked = CreateCredentialRequest(name="n", tenant="team", rights=["observe"])
    return EntrustRequest(asked=asked, credential_id=credential_id, digest=bearer.digest(SECRET))


def drawing(first: int):
    numbers = iter(range(first, first + 100))
    return lambda size: next(numbers).to_bytes(size)


def administrator(part: Part, directory: Path, first: int) -> FirstAdministrator:
    directory.mkdir()
    return FirstAdministrator(directory, part.raft, part.service, part.replica, drawing(first))


async def test_a_credential_made_at_a_follower_lets_in_at_every_node(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        follower = await running.follower()
        reply = await follower.service.call("entrust", TENANT, entrust("c"), "root")
        assert isinstance(reply, CredentialReply)
        assert reply.credential.created_by == "root"
        for part in running.parts.values():
            gate = Gate(lambda part=part: part.replica.table.credentials, lambda: 0, lambda: True)
            caller = await gate.caller_in_time(f"Bearer {bearer.text('c', SECRET)}")
            assert caller is not None
            assert caller.tenant == "team"
        listed = await follower.service.call("list_credentials", TENANT, ListCredentialsRequest())
        assert isinstance(listed, CredentialsReply)
        assert [credential.credential_id for credential in listed.credentials] == ["c"]


async def test_of_all_nodes_that_come_up_together_one_makes_the_first_administrator(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        made = [
            administrator(part, tmp_path / f"files-{name}", 1_000 * place)
            for place, (name, part) in enumerate(running.parts.items(), 1)
        ]
        async with asyncio.timeout(30):
            await asyncio.gather(*(one.run() for one in made))
        [file] = [one.path for one in made if one.path.exists()]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        leader = await running.leader()
        parts = bearer.parse(file.read_text().strip())
        assert parts is not None
        [credential] = leader.replica.table.credentials.values()
        assert (credential.credential_id, credential.rights[-1]) == (parts[0], "admin")
        assert credential.secrets[0].digest == bearer.digest(parts[1])


async def test_a_file_that_was_written_before_a_crash_becomes_the_administrators(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running:
        leader = await running.leader()
        first = administrator(leader, tmp_path / "files", 1)
        (tmp_path / "files" / FILE_NAME).write_text(bearer.text("before", SECRET) + "\n")
        await first.run()
        assert list(leader.replica.table.credentials) == ["before"]


async def test_a_half_written_file_is_written_anew(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running:
        leader = await running.leader()
        first = administrator(leader, tmp_path / "files", 1)
        (tmp_path / "files" / FILE_NAME).write_text("tenure.bef")
        await first.run()
        parts = bearer.parse(first.path.read_text().strip())
        assert parts is not None
        assert parts[0] in leader.replica.table.credentials


async def test_a_file_of_another_try_is_removed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running:
        leader = await running.leader()
        await administrator(leader, tmp_path / "one", 1).run()
        other = administrator(leader, tmp_path / "other", 50)
        other.path.write_text(bearer.text("lost", SECRET) + "\n")
        await other.run()
        assert not other.path.exists()
        assert (tmp_path / "one" / FILE_NAME).exists()


async def _refused_quota(running: Cluster, key: str) -> str:
    follower = await running.follower()
    answer = await ask(follower, "acquire", key=key, owner="o", ttl_ms=30_000)
    assert isinstance(answer, Problem), answer
    return str(answer.extra.get("quota", answer.code))


async def test_a_quota_is_held_by_the_leader_and_by_the_next_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        follower = await running.follower()
        await follower.service.call("set_quota", TENANT, SetQuotaRequest(tenant=TENANT, leases_max=1))
        await acquired(follower, "a")
        assert await _refused_quota(running, "b") == "leases"
        leader = await running.leader()
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await until(successor.leads, "the successor in office")
        answer = await successor.service.call(
            "acquire", TENANT, request("acquire", key="b", owner="o", ttl_ms=30_000)
        )
        assert isinstance(answer, Problem)
        assert answer.extra["quota"] == "leases"
        running.heal()


async def test_the_configurations_quota_is_for_tenants_without_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, quotas=Quotas(leases_max=1)) as running:
        leader = await running.leader()
        await acquired(leader, "a")
        refused = await ask(leader, "acquire", key="b", owner="o", ttl_ms=30_000)
        assert refused.extra["quota"] == "leases"
        await leader.service.call("set_quota", TENANT, SetQuotaRequest(tenant=TENANT, leases_max=2))
        await acquired(leader, "b")
