"""The leader is asked to change who the members are."""

import logging
from collections.abc import Mapping
from typing import Any

from tenure_cluster.lease.audit_trail import AuditNote
from tenure_cluster.raft import NotLeader, Raft, RaftError, Transferred
from tenure_cluster.raft.changes import Changed, ChangeRefused
from tenure_cluster.raft.membership import Add, Change, Membership, Readdress, Remove
from tenure_cluster.service.asks import Ask, Done, NoAnswer, Outcome
from tenure_cluster.service.cluster_replies import MemberIsBody, MembersReply
from tenure_cluster.service.cluster_requests import (
    CLUSTER_OPERATIONS,
    MEMBER_OPERATIONS,
    AddMemberRequest,
    RemoveMemberRequest,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.versions import BASE, RETRY_S, Versions
from tenure_cluster.settings import Member

_log = logging.getLogger("tenure.cluster")


def change_members(raft: Raft, ask: Ask, done: Done) -> None:
    """Have the change made that `ask` wants; `done` is called once. A leader that is to be removed hands its
    office over, and whoever asked asks the next one."""
    request: Any = ask.request
    if isinstance(request, RemoveMemberRequest) and request.id == raft.node_id and raft.is_leader():
        raft.transfer(None, lambda outcome: _handed_over(outcome, done))
        return
    change = _change(request)

    def ended(outcome: Changed | RaftError) -> None:
        if isinstance(outcome, Changed):
            what = f"{type(change).__name__.lower()} {change.id}"
            _log.warning("the members were changed: %s, asked by %s", what, ask.actor or ask.tenant)
            done(_reply(outcome.membership))
        elif isinstance(outcome, ChangeRefused):
            done(Problem(outcome.code, str(outcome)))
        else:
            done(NoAnswer.NOT_EXECUTED if isinstance(outcome, NotLeader) else NoAnswer.UNKNOWN)

    raft.change_members(change, ended)


def misplaced(ask: Ask, members: Mapping[str, Member], *, tls: bool) -> Problem | None:
    """Why not, if clients could not reach a member where it is said to be, since all serve by TLS, or another
    one is at its peer address. The log alone can't tell that as long as it says nothing of addresses, and
    members are where the configuration says."""
    request = ask.request
    if not isinstance(request, AddMemberRequest):
        return None
    if tls and not request.http.startswith("https:"):
        return Problem("invalid", "http must be an https URL: the cluster uses TLS", {"path": "$.http"})
    for name, member in members.items():
        if name != request.id and member.peer == request.peer:
            return Problem("member_exists", f"{name} has the peer address {request.peer}")
    return None


def not_understood(raft: Raft, versions: Versions, operation: str) -> Problem | None:
    """Why this call is not to be handed on: an older leader would not understand it, and never answer. For
    one about the cluster itself no other node's version matters."""
    leader = raft.leader_id
    if operation not in CLUSTER_OPERATIONS or leader is None:
        return versions.refusal(BASE + 1)
    if operation in MEMBER_OPERATIONS and leader != raft.node_id and raft.is_outdated(leader):
        detail = f"node {leader} leads, and its version has no changes of members: upgrade it"
        return Problem("mixed_versions", detail, {"node": leader, "nodes": [leader]}, RETRY_S)
    return versions.refusal(BASE + 1, [leader])


def note_of(ask: Ask, outcome: Outcome) -> AuditNote | None:
    """What the audit is told of an operation that has ended: a change of members that has come about."""
    if not isinstance(outcome, MembersReply):
        return None
    request: Any = ask.request
    kind, detail = "remove_member", ""
    if isinstance(request, AddMemberRequest):
        kind = "move_member" if request.readdress else "add_member"
        detail = f"peer {request.peer}, http {request.http}"
    return AuditNote(kind, "", ask.actor, ask.origin, subject=request.id, detail=detail)


def _change(request: Any) -> Change:
    if isinstance(request, RemoveMemberRequest):
        return Remove(request.id)
    assert isinstance(request, AddMemberRequest)
    kind = Readdress if request.readdress else Add
    return kind(request.id, request.peer, request.http.rstrip("/"))


def _handed_over(outcome: Transferred | RaftError, done: Done) -> None:
    if isinstance(outcome, Transferred | NotLeader):
        done(NoAnswer.NOT_EXECUTED)
    else:
        done(
            Problem(
                "change_refused", f"the leader is to be removed, and can't hand its office over: {outcome}"
            )
        )


def _reply(membership: Membership) -> MembersReply:
    return MembersReply(
        index=membership.index,
        members=[
            MemberIsBody(id=info.id, peer=info.peer, http=info.http, voter=info.voter)
            for info in membership.members
        ],
    )
