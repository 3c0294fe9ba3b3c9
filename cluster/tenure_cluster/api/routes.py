"""The route table: every call of the interface, typed. Handlers and the OpenAPI document are made from it.

A call takes all its fields from one place: a POST from its body, a GET or DELETE from its path and query.
"""

from typing import Final

from tenure_cluster.api.admin_routes import ADMIN_ROUTES
from tenure_cluster.api.cluster_routes import CLUSTER_ROUTES
from tenure_cluster.api.guard_routes import GUARD_ROUTES
from tenure_cluster.api.lease_routes import LEASE_ROUTES
from tenure_cluster.api.route import ANY_CALL as ANY_CALL
from tenure_cluster.api.route import BODY_CALL as BODY_CALL
from tenure_cluster.api.route import GUARDED_CALL as GUARDED_CALL
from tenure_cluster.api.route import LEADER_CALL
from tenure_cluster.api.route import Access as Access
from tenure_cluster.api.route import Link as Link
from tenure_cluster.api.route import Route as Route
from tenure_cluster.api.session_routes import SESSION_ROUTES
from tenure_cluster.service import replies, requests
from tenure_cluster.service.watch_messages import EventBody

ROUTES: Final[tuple[Route, ...]] = (
    *LEASE_ROUTES,
    *GUARD_ROUTES,
    *SESSION_ROUTES,
    Route(
        method="GET",
        path="/v1/events",
        operation="events",
        access="observe",
        summary="Follow what happens",
        description=(
            "Server-Sent Events: `id` is the revision, `event` the kind, `data` a JSON object. Every node "
            "tells the same events, each once and in the order of revisions, so a watch goes on after the "
            "last `id` on any of them: by `from`, or by the header `Last-Event-ID`. To know the state too, "
            "list the leases first and watch from the `revision` of that list. `bookmark` says how far "
            "everything has been told; `gap` ends a watch whose client was too slow, and says after which "
            "revision to resume, or one whose client this node is behind, and moves no `id`; `shutting_down` "
            "ends a watch whose node stops; `leader_changed` has no place in the order. The kind `restored` "
            "has no key: the cluster was put back to a backup. "
            "Comments are signs of life."
        ),
        tag="events",
        request=requests.EventsRequest,
        source="query",
        replies={200: ()},
        streamed=("text/event-stream", EventBody),
        problems=("compacted", "out_of_range", "overloaded", "quota", "shutting_down"),
    ),
    Route(
        method="GET",
        path="/v1/stream",
        operation="stream",
        access="any",
        summary="Everything over one connection",
        description=(
            "A WebSocket of binary MessagePack messages. A client sends arrays of `[id, op, body]`, one "
            "or many in a message; it gets arrays of `[id, status, body]` as answers come, in no "
            "particular order. `op` is an `operationId` of this document, and `body`, `status` and the "
            "answer are those of that call; a problem has `retry_after_s` where the call has `Retry- "
            "After`. Operations of one message share a log entry. `watch` takes the fields of `events`; "
            "what it is told comes with id 0, status 200 and its id in `watch`; `unwatch` takes that id. "
            "A message that is none of this is answered with id 0 and closes the connection (1003, 1007, "
            "1008 or 1009); a node that stops closes with 1001 and names another one."
        ),
        tag="events",
        replies={101: ()},
        problems=("forbidden",),
    ),
    Route(
        method="GET",
        path="/v1/cluster",
        operation="cluster",
        access="any",
        summary="The cluster as the node that is asked sees it",
        description="Answered by the node itself, whether it leads or not, and without a quorum.",
        tag="cluster",
        replies={200: (replies.ClusterReply,)},
        problems=(),
    ),
    *ADMIN_ROUTES,
    *CLUSTER_ROUTES,
    Route(
        method="GET",
        path="/v1/nodes",
        operation="nodes",
        access="any",
        summary="Every member, as it describes itself",
        description=(
            "Role, lag, disk and version. The node that is asked asks the others, without a quorum too, and "
            "answers within a second; a member that does not answer it is told as not `reached`."
        ),
        tag="cluster",
        replies={200: (replies.NodesReply,)},
        problems=(),
    ),
    Route(
        method="GET",
        path="/v1/cluster/backup",
        operation="backup",
        access="admin",
        summary="The whole state as one file",
        description=(
            "Consistent: it has everything that was acknowledged before the call, of all tenants. It ends in "
            "a checksum, which `tenure backup save` checks. `tenured restore` begins a new cluster with it."
        ),
        tag="cluster",
        replies={200: ()},
        text="application/octet-stream",
        problems=(*LEADER_CALL,),
    ),
    Route(
        method="GET",
        path="/livez",
        operation="livez",
        access="open",
        summary="The process is alive",
        tag="cluster",
        replies={200: (replies.StatusReply,)},
        problems=(),
    ),
    Route(
        method="GET",
        path="/readyz",
        operation="readyz",
        access="open",
        summary="The node serves with a quorum",
        tag="cluster",
        replies={200: (replies.StatusReply,)},
        problems=("no_leader", "no_quorum", "shutting_down"),
    ),
    Route(
        method="GET",
        path="/metrics",
        operation="metrics",
        access="admin",
        summary="What Prometheus asks for",
        description="Answered by the node itself; deploy/METRICS.md names every metric.",
        tag="cluster",
        replies={200: ()},
        text="text/plain; version=0.0.4; charset=utf-8",
        problems=(),
    ),
    Route(
        method="GET",
        path="/openapi.json",
        operation="openapi",
        access="open",
        summary="This document",
        tag="cluster",
        replies={200: ()},
        problems=(),
    ),
)
