"""The calls about what is written with a lease: guards and records."""

from typing import Final

from tenure_cluster.api.route import LEADER_CALL, WRITE_CALL, Link, Route
from tenure_cluster.service import replies, requests

_KEY = "payment/security/42"

GUARD_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/validate",
        operation="validate",
        access="observe",
        summary="Ask whether a token is the current one",
        description="Linearizable, without effect, and advice only: asking is not writing.",
        tag="guards",
        request=requests.ValidateRequest,
        source="body",
        replies={200: (replies.ValidateReply,)},
        problems=(*LEADER_CALL,),
        example={"key": _KEY, "token": 7},
    ),
    Route(
        method="POST",
        path="/v1/commit",
        operation="commit",
        access="commit",
        summary="Write through a key's guard",
        description="Refusals name the cause and the guard's present floor.",
        tag="guards",
        request=requests.CommitRequest,
        source="body",
        replies={200: (replies.AcceptedReply,)},
        problems=(
            *WRITE_CALL,
            "mode_conflict",
            "stale_token",
            "token_used",
            "seq_replayed",
            "not_live",
            "revision_conflict",
        ),
        example={
            "key": _KEY,
            "lease_id": "5yqn3rZkT1m0qO8v4hXb2w",
            "token": 7,
            "mode": "once",
            "value": "the accepted artifact",
        },
        links={
            200: tuple(
                Link(operation, {"key": "$request.body#/key"})
                for operation in ("get_record", "delete_record")
            )
        },
    ),
    Route(
        method="GET",
        path="/v1/records/{key}",
        operation="get_record",
        access="observe",
        summary="The value last accepted for a key",
        tag="guards",
        request=requests.GetRecordRequest,
        source="query",
        path_field="key",
        replies={200: (replies.RecordReply,)},
        problems=(*LEADER_CALL, "no_record"),
    ),
    Route(
        method="DELETE",
        path="/v1/records/{key}",
        operation="delete_record",
        access="force",
        summary="Remove a key's record",
        tag="guards",
        request=requests.DeleteRecordRequest,
        source="query",
        path_field="key",
        replies={200: (replies.DeletedReply,)},
        problems=(*WRITE_CALL, "no_record", "revision_conflict"),
    ),
)
