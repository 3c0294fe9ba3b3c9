"""The calls about the cluster itself: who leads it."""

from typing import Final

from tenure_cluster.api.route import WRITE_CALL, Route
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
        problems=(*WRITE_CALL, "no_member", "not_transferred"),
        example={"to": "n2"},
    ),
)
