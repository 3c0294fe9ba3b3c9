"""Changes of members, as the service sees to them."""

from pathlib import Path

from msgspec.structs import replace
from service_cluster import TENANT, Cluster, Part, cluster, until

from tenure_cluster.service.audit_messages import AuditRecordBody, AuditReply, ListAuditRequest
from tenure_cluster.service.cluster_replies import MembersReply, TransferredReply
from tenure_cluster.service.cluster_requests import AddMemberRequest, RemoveMemberRequest, TransferRequest
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.versions import BASE
from tenure_cluster.settings import Audit, Tls

ADD = AddMemberRequest(id="n4", peer="127.0.0.1:9", http="http://n4.test")
"""A node that never comes."""


async def changed(
    part: Part, operation: str, request: AddMemberRequest | RemoveMemberRequest
) -> MembersReply:
    """The change, made as soon as the one before it is over."""
    while True:
        answer = await part.service.call(operation, TENANT, request, "cred-1", "10.0.0.7")
        if not isinstance(answer, Problem):
            assert isinstance(answer, MembersReply)
            return answer
        assert answer.code in ("change_refused", "outcome_unknown", "no_leader"), answer


async def audited(running: Cluster) -> list[AuditRecordBody]:
    reply = await (await running.leader()).service.call("list_audit", TENANT, ListAuditRequest())
    assert isinstance(reply, AuditReply), reply
    return [record for record in reply.records if record.kind != "audit_policy"]


async def test_a_change_of_members_is_in_the_audit_and_what_is_refused_is_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        await until(
            lambda: all(part.replica.table.audit.on for part in running.parts.values()), "the audit to begin"
        )
        follower = await running.follower()
        added = await changed(follower, "add_member", ADD)
        assert [(one.id, one.voter) for one in added.members if not one.voter] == [("n4", False)]
        refused = await follower.service.call("remove_member", TENANT, RemoveMemberRequest(id="n9"))
        assert isinstance(refused, Problem)
        assert refused.code == "no_member"
        removed = await changed(follower, "remove_member", RemoveMemberRequest(id="n4"))
        assert [one.id for one in removed.members] == ["n1", "n2", "n3"]
        first, *_, last = await audited(running)
        assert (first.kind, first.subject, first.actor, first.origin) == (
            *("add_member", "n4"),
            *("cred-1", "10.0.0.7"),
        )
        assert first.detail == "peer 127.0.0.1:9, http http://n4.test"
        assert (last.kind, last.subject) == ("remove_member", "n4")
        assert {record.subject for record in await audited(running)} == {"n4"}


async def test_all_views_are_of_the_members_of_the_moment(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        follower = await running.follower()
        await changed(follower, "add_member", ADD)
        for part in running.parts.values():
            await until(lambda part=part: "n4" in part.service.members.all(), "n4 to be known")
            n4 = part.service.cluster().members[3]
            assert (n4.id, n4.voter, n4.http, n4.role) == ("n4", False, "http://n4.test", "unknown")


async def test_an_older_leader_is_not_asked_what_it_would_never_answer(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        greetings = follower.raft._transport.admission.greetings
        await until(lambda: leader.node_id in greetings, "the leader's greeting")
        greetings[leader.node_id] = replace(greetings[leader.node_id], features=0)
        for operation, request in (("add_member", ADD), ("remove_member", RemoveMemberRequest(id="n4"))):
            refused = await follower.service.call(operation, TENANT, request)
            assert isinstance(refused, Problem)
            assert (refused.code, refused.extra["node"]) == ("mixed_versions", leader.node_id)
            assert f"{leader.node_id} leads" in refused.detail
        handed = await follower.service.call("transfer", TENANT, TransferRequest())
        assert isinstance(handed, TransferredReply), "which it knows"


async def test_who_holds_newer_commands_back_is_named_with_what_to_do(tmp_path: Path) -> None:
    """A learner that was never heard of, to a leader that was started with data."""
    async with cluster(tmp_path, 3) as running:
        leader = await running.leader()
        await changed(leader, "add_member", ADD)
        leader.raft.started_empty = False
        refused = leader.service.versions.refusal(BASE + 1)
        assert refused is not None
        assert refused.extra["nodes"] == ["n4"]
        assert "n4 has not said yet which version it runs" in refused.detail
        assert refused.detail.endswith("start it, or remove it")


async def test_a_member_is_not_added_or_moved_to_where_another_one_is_configured(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, follower = await running.leader(), await running.follower()
        place = follower.config.peer.listen
        for wrong in (
            replace(ADD, peer=place),
            AddMemberRequest(id=leader.node_id, peer=place, http="http://x", readdress=True),
        ):
            refused = await follower.service.call("add_member", TENANT, wrong)
            assert isinstance(refused, Problem)
            assert refused.code == "member_exists"
            assert refused.detail == f"{follower.node_id} has the peer address {place}"
        assert sorted(leader.raft.membership.names) == ["n1", "n2", "n3"]


async def test_where_nodes_use_tls_a_member_is_not_added_at_a_plain_url(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, tls=Tls(cert="c.pem", key="k.pem", ca="ca.pem")) as running:
        leader = await running.leader()
        refused = await leader.service.call("add_member", TENANT, ADD)
        assert isinstance(refused, Problem)
        assert (refused.code, refused.extra["path"]) == ("invalid", "$.http")
        added = await changed(leader, "add_member", replace(ADD, http="https://n4.test"))
        assert [member.id for member in added.members] == ["n1", "n4"]
