"""The calls about sessions."""

from typing import Final

from tenure_cluster.api.route import LEADER_CALL, WRITE_CALL, Link, Route
from tenure_cluster.service import replies, requests

_SESSION = "$response.body#/session/session_id"

SESSION_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/sessions",
        operation="open_session",
        access="acquire",
        summary="Open a session",
        description="The unit of liveness: it holds any number of leases, and renewing it renews them all.",
        tag="sessions",
        request=requests.OpenSessionRequest,
        source="body",
        replies={200: (replies.SessionReply,)},
        problems=(*WRITE_CALL, "quota"),
        example={"owner": "agent-a", "ttl_ms": 30000},
        links={
            200: (
                *(
                    Link(operation, {"session_id": _SESSION})
                    for operation in ("acquire", "renew", "unpark", "get_session", "close_session")
                ),
                Link("handover", {"to_session_id": _SESSION}),
            )
        },
    ),
    Route(
        method="GET",
        path="/v1/sessions/{id}",
        operation="get_session",
        access="acquire",
        summary="A session as it stands",
        tag="sessions",
        request=requests.GetSessionRequest,
        source="query",
        path_field="session_id",
        replies={200: (replies.SessionReply,)},
        problems=(*LEADER_CALL, "no_session", "session_expired"),
    ),
    Route(
        method="DELETE",
        path="/v1/sessions/{id}",
        operation="close_session",
        access="acquire",
        summary="End a session, its leases and its waiters",
        tag="sessions",
        request=requests.CloseSessionRequest,
        source="query",
        path_field="session_id",
        replies={200: (replies.SessionClosedReply,)},
        problems=(*WRITE_CALL, "no_session", "session_expired"),
    ),
)
