"""The calls about the cluster itself: who leads it, and who its members are."""

from typing import Final

from tenure_cluster.api.route import NEWER_CALL, WRITE_CALL, Route
from tenure_cluster.service import cluster_replies, cluster_requests

CLUSTER_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/cluster/transfer",
        operation="transfer",
        access="admin",
        summary="Let another node lead",
        description=(
            "The leader takes in nothing new until the follower has all that it has, and has it elected at "
            "once. Calls that come meanwhile wait, and are answered by the new leader. If that fails, after "
            "an election time-out the leader goes on. No lease is shortened by it."
        ),
        tag="cluster",
        request=cluster_requests.TransferRequest,
        source="body",
        replies={200: (cluster_replies.TransferredReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "no_member", "not_transferred"),
        example={"to": "n2"},
    ),
    Route(
        method="POST",
        path="/v1/cluster/members",
        operation="add_member",
        access="admin",
        summary="Add a member, or say where one is",
        description=(
            "The new node has been started with `join = true`. It is a learner at first, which counts in no "
            "majority; the leader makes it a voter by itself once it has caught up, and `/v1/cluster` tells "
            "when. One change at a time: the next is refused until this one is committed. A name that was "
            "removed is not given again. With `readdress` a member that is there gets other addresses."
        ),
        tag="cluster",
        request=cluster_requests.AddMemberRequest,
        source="body",
        replies={200: (cluster_replies.MembersReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "no_member", "member_exists", "change_refused"),
        example={"id": "n4", "peer": "10.0.0.4:7701", "http": "http://10.0.0.4:7601"},
    ),
    Route(
        method="DELETE",
        path="/v1/cluster/members/{id}",
        operation="remove_member",
        access="admin",
        summary="Remove a member, for ever",
        description=(
            "It is told so, and stops. Refused if the voters that are left and can be reached would be no "
            "majority. A leader hands its office over first."
        ),
        tag="cluster",
        request=cluster_requests.RemoveMemberRequest,
        source="query",
        path_field="id",
        replies={200: (cluster_replies.MembersReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "no_member", "change_refused"),
    ),
)
