"""The route table: every call of the interface, typed. Handlers and the OpenAPI document are made from it.

A call takes all its fields from one place: a POST from its body, a GET or DELETE from its path and query.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from tenure_cluster.api.cluster_routes import cluster_routes
from tenure_cluster.lease.credentials import Right
from tenure_cluster.service import (
    credential_replies,
    credential_requests,
    replies,
    requests,
)
from tenure_cluster.service.watch_messages import EventBody

Source: TypeAlias = Literal["body", "query", "nothing"]
Struct: TypeAlias = type[msgspec.Struct]
Access: TypeAlias = Right | Literal["open", "any"]
"""A right; or `any`: a valid credential with whatever right, as for calls whose parts are looked at one by
one; or `open`: nothing."""


class Link(msgspec.Struct, frozen=True):
    """What an answer can be used for: fields of another call, as runtime expressions of OpenAPI."""

    operation: str
    fields: dict[str, str]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    """A template: at most one ``{name}``, always last, which takes the rest of the path, slashes included."""
    operation: str
    """Name of the service's operation, or of the front's own for the calls that it answers itself."""
    access: Access
    """What its caller must have, once credentials are asked for. It has no default: a route that says nothing
    of it can't be made."""
    summary: str
    description: str = ""
    tag: Literal["leases", "guards", "sessions", "events", "cluster", "credentials"]
    request: Struct | None = None
    source: Source = "nothing"
    path_field: str | None = None
    """The request's field that ``{name}`` fills."""
    replies: dict[int, tuple[Struct, ...]]
    text: str | None = None
    """Media type of a body that is neither JSON nor MessagePack."""
    streamed: tuple[str, Struct] | None = None
    """Media type of a body that does not end, and what its parts are."""
    problems: tuple[str, ...]
    """Codes that the call can meet, beside those that any call of its source can."""
    example: dict[str, Any] | None = None
    """A request body."""
    links: dict[int, tuple[Link, ...]] = {}
    """By status of the answer."""

    @property
    def prefix(self) -> str:
        """The fixed part of the path."""
        return self.path.partition("{")[0]

    @property
    def long(self) -> bool:
        """Whether its answer goes on until one of the two sides ends it."""
        return self.streamed is not None or 101 in self.replies

    @property
    def parameter(self) -> str | None:
        """Name of the path's parameter."""
        return self.path.partition("{")[2].removesuffix("}") or None


ANY_CALL: Final = ("invalid", "internal")
"""Codes that every call can meet."""
GUARDED_CALL: Final = ("unauthenticated", "forbidden")
"""Codes that every call can meet that needs a credential."""
BODY_CALL: Final = ("too_large", "unsupported_media_type")
"""Codes that every call with a body can meet."""
LEADER_CALL: Final = ("quota", "overloaded", "no_leader", "no_quorum", "shutting_down", "out_of_range")
"""Codes that every call to the replicated state can meet."""
WRITE_CALL: Final = (*LEADER_CALL, "outcome_unknown")
"""Codes that every call that changes the replicated state can meet."""

_KEY = "payment/security/42"
_LEASE = "$response.body#/lease/"
_SESSION = "$response.body#/session/session_id"
_CREDENTIAL = "$response.body#/credential/credential_id"
_GRANTED_LINKS = (
    Link("renew", {"lease_id": f"{_LEASE}lease_id"}),
    Link("release", {"lease_id": f"{_LEASE}lease_id"}),
    Link("park", {"lease_id": f"{_LEASE}lease_id"}),
    Link("handover", {"lease_id": f"{_LEASE}lease_id"}),
    Link("commit", {"key": f"{_LEASE}key", "lease_id": f"{_LEASE}lease_id", "token": f"{_LEASE}token"}),
    Link("validate", {"key": f"{_LEASE}key", "token": f"{_LEASE}token"}),
    Link("get_lease", {"key": f"{_LEASE}key"}),
)

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/acquire",
        operation="acquire",
        access="acquire",
        summary="Acquire a lease, or queue for it",
        description=(
            "With `wait_ms` a held key is queued for: the call answers 202 `waiting` after at most 25 s, and "
            "is made again with the same `request_id` to keep its place. So is a call whose answer was lost."
        ),
        tag="leases",
        request=requests.AcquireRequest,
        source="body",
        replies={200: (replies.GrantedReply,), 202: (replies.WaitingReply,)},
        problems=(
            *WRITE_CALL,
            "no_session",
            "held",
            "deadlock",
            "mode_conflict",
            "lost",
            "session_expired",
            "quota",
        ),
        links={200: _GRANTED_LINKS, 202: (Link("abandon", {"request_id": "$response.body#/request_id"}),)},
        example={
            "key": _KEY,
            "owner": "agent-a",
            "ttl_ms": 30000,
            "request_id": "r-1",
            "metadata": {"workflow": "w1"},
        },
    ),
    Route(
        method="POST",
        path="/v1/renew",
        operation="renew",
        access="acquire",
        summary="Renew a lease, or a session and all its leases",
        description="Never shortens. Refused once the deadline has passed, even if the key is still free.",
        tag="leases",
        request=requests.RenewRequest,
        source="body",
        replies={200: (replies.RenewedReply, replies.SessionReply)},
        problems=(*WRITE_CALL, "no_session", "lost", "session_expired"),
        example={"lease_id": "5yqn3rZkT1m0qO8v4hXb2w", "progress": {"step": "review", "counter": 3}},
    ),
    Route(
        method="POST",
        path="/v1/release",
        operation="release",
        access="acquire",
        summary="Release a lease",
        description="Can never touch a later lease. The next waiter is granted in the same log entry.",
        tag="leases",
        request=requests.ReleaseRequest,
        source="body",
        replies={200: (replies.ReleasedReply,)},
        problems=(*WRITE_CALL, "lost"),
        example={"lease_id": "5yqn3rZkT1m0qO8v4hXb2w"},
    ),
    Route(
        method="POST",
        path="/v1/handover",
        operation="handover",
        access="acquire",
        summary="Give a lease to another session",
        description=(
            "In one entry the old token ends and the successor's begins, past all who wait. Metadata and "
            "progress go with it. If the successor waits for the key, its request is answered with the lease."
        ),
        tag="leases",
        request=requests.HandoverRequest,
        source="body",
        replies={200: (replies.HandedOverReply,)},
        problems=(
            *WRITE_CALL,
            "no_session",
            "session_expired",
            "held",
            "deadlock",
            "mode_conflict",
            "lost",
            "quota",
        ),
        links={200: _GRANTED_LINKS},
        example={"lease_id": "5yqn3rZkT1m0qO8v4hXb2w", "to_session_id": "mJ0c2b9Qk7vT5xW1aYd3eg"},
    ),
    Route(
        method="POST",
        path="/v1/park",
        operation="park",
        access="acquire",
        summary="Keep a lease without heartbeats until a limit",
        description=(
            "For a human in the loop. The lease keeps its id, leaves its session and can't write until it is "
            "taken up again. Shared leases and those of a set can't be parked."
        ),
        tag="leases",
        request=requests.ParkRequest,
        source="body",
        replies={200: (replies.ParkedReply,)},
        problems=(*WRITE_CALL, "unsupported", "stale_token", "lost"),
        links={200: (Link("unpark", {"lease_id": f"{_LEASE}lease_id"}),)},
        example={"lease_id": "5yqn3rZkT1m0qO8v4hXb2w", "limit_ms": 86400000},
    ),
    Route(
        method="POST",
        path="/v1/unpark",
        operation="unpark",
        access="acquire",
        summary="Take up a parked lease again, with a new token",
        tag="leases",
        request=requests.UnparkRequest,
        source="body",
        replies={200: (replies.UnparkedReply,)},
        problems=(
            *WRITE_CALL,
            "no_session",
            "session_expired",
            "held",
            "deadlock",
            "mode_conflict",
            "stale_token",
            "lost",
            "quota",
        ),
        links={200: _GRANTED_LINKS},
        example={"lease_id": "5yqn3rZkT1m0qO8v4hXb2w", "ttl_ms": 30000},
    ),
    Route(
        method="POST",
        path="/v1/abandon",
        operation="abandon",
        access="acquire",
        summary="Give up an acquire",
        description="Leaves the queue, or releases what the acquire was granted.",
        tag="leases",
        request=requests.AbandonRequest,
        source="body",
        replies={200: (replies.AbandonedReply,)},
        problems=(*WRITE_CALL,),
        example={"request_id": "r-1"},
    ),
    Route(
        method="POST",
        path="/v1/break",
        operation="break",
        access="force",
        summary="End every lease of a key by force",
        tag="leases",
        request=requests.BreakRequest,
        source="body",
        replies={200: (replies.BrokenReply,)},
        problems=(*WRITE_CALL,),
        example={"key": _KEY, "reason": "agent-a's machine is gone"},
    ),
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
        method="POST",
        path="/v1/batch",
        operation="batch",
        access="any",
        summary="Many operations in one round",
        description=(
            "`status` of each result is the HTTP status that the single call would have had, beside the "
            "members of its body; the word that some bodies have in `status` is under `result`. An acquire "
            "must have `wait_ms` 0. A `validate` sees the effects of the whole batch."
        ),
        tag="leases",
        request=requests.BatchRequest,
        source="body",
        replies={200: (replies.BatchReply,)},
        problems=(*WRITE_CALL,),
        example={"ops": [{"op": "renew", "lease_id": "5yqn3rZkT1m0qO8v4hXb2w"}]},
    ),
    Route(
        method="GET",
        path="/v1/leases/{key}",
        operation="get_lease",
        access="observe",
        summary="Who holds a key",
        tag="leases",
        request=requests.GetLeaseRequest,
        source="query",
        path_field="key",
        replies={200: (replies.LeaseBody,)},
        problems=(*LEADER_CALL, "not_held"),
    ),
    Route(
        method="GET",
        path="/v1/leases",
        operation="list_leases",
        access="observe",
        summary="Leases by prefix of their key",
        tag="leases",
        request=requests.ListLeasesRequest,
        source="query",
        replies={200: (replies.LeasesReply,)},
        problems=(*LEADER_CALL,),
    ),
    Route(
        method="GET",
        path="/v1/queues/{key}",
        operation="queue",
        access="observe",
        summary="Holders and waiters of a key, in order",
        tag="leases",
        request=requests.QueueRequest,
        source="query",
        path_field="key",
        replies={200: (replies.QueueReply,)},
        problems=(*LEADER_CALL,),
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
            "revision to resume; `shutting_down` ends a watch whose node stops; `leader_changed` has no "
            "place in the order. The kind `restored` is reserved for a cluster that is put back to a backup. "
            "Comments are signs of life."
        ),
        tag="events",
        request=requests.EventsRequest,
        source="query",
        replies={200: ()},
        streamed=("text/event-stream", EventBody),
        problems=("compacted", "out_of_range", "overloaded", "shutting_down"),
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
    Route(
        method="POST",
        path="/v1/credentials",
        operation="create_credential",
        access="admin",
        summary="Make a credential",
        description=(
            "`bearer` in the answer is what its holder shows in `Authorization: Bearer`. It is told once and "
            "kept nowhere: the cluster knows a digest of it. An answer that is lost leaves a credential that "
            "nobody can use; find it in the list and revoke it."
        ),
        tag="credentials",
        request=credential_requests.CreateCredentialRequest,
        source="body",
        replies={200: (credential_replies.CredentialReply,)},
        problems=(*WRITE_CALL, "quota"),
        example={"name": "agent-a", "tenant": "default", "rights": ["acquire", "commit"], "prefixes": ["a/"]},
        links={
            200: (
                Link("rotate_credential", {"credential_id": _CREDENTIAL}),
                Link("revoke_credential", {"credential_id": _CREDENTIAL}),
            )
        },
    ),
    Route(
        method="POST",
        path="/v1/credentials/rotate",
        operation="rotate_credential",
        access="admin",
        summary="Give a credential a new secret",
        description=(
            "The present secret stays valid for `overlap_ms` beside the new one; with 0 it is over at once, "
            "and so are those of earlier rotations. The lifetime begins anew."
        ),
        tag="credentials",
        request=credential_requests.RotateCredentialRequest,
        source="body",
        replies={200: (credential_replies.CredentialReply,)},
        problems=(*WRITE_CALL, "no_credential"),
        example={"credential_id": "x3Kc0Zr9Qm1t", "overlap_ms": 3600000},
    ),
    Route(
        method="GET",
        path="/v1/credentials",
        operation="list_credentials",
        access="admin",
        summary="Credentials, without their secrets",
        tag="credentials",
        request=credential_requests.ListCredentialsRequest,
        source="query",
        replies={200: (credential_replies.CredentialsReply,)},
        problems=(*LEADER_CALL,),
    ),
    Route(
        method="DELETE",
        path="/v1/credentials/{id}",
        operation="revoke_credential",
        access="admin",
        summary="Take a credential away",
        description=(
            "Its bearer is refused from now on, at a node that lags behind as soon as it knows. What it "
            "holds ends by its TTL. The last credential with the right `admin` is kept."
        ),
        tag="credentials",
        request=credential_requests.RevokeCredentialRequest,
        source="query",
        path_field="credential_id",
        replies={200: (credential_replies.RevokedReply,)},
        problems=(*WRITE_CALL, "no_credential"),
    ),
    Route(
        method="GET",
        path="/v1/tenants",
        operation="list_tenants",
        access="admin",
        summary="Tenants, what they have and what they may have",
        tag="credentials",
        request=credential_requests.ListTenantsRequest,
        source="query",
        replies={200: (credential_replies.TenantsReply,)},
        problems=(*LEADER_CALL,),
    ),
    Route(
        method="POST",
        path="/v1/quotas",
        operation="set_quota",
        access="admin",
        summary="Set what a tenant may have",
        description=(
            "The whole of it: what is left out has no bound. A tenant that has more already keeps that, and "
            "its renewals and releases are never refused for it."
        ),
        tag="credentials",
        request=credential_requests.SetQuotaRequest,
        source="body",
        replies={200: (credential_replies.QuotaReply,)},
        problems=(*WRITE_CALL, "quota"),
        example={"tenant": "build", "leases_max": 1000, "operations_per_s": 100},
    ),
    Route(
        method="DELETE",
        path="/v1/quotas/{tenant}",
        operation="reset_quota",
        access="admin",
        summary="Let a tenant have what the configuration says",
        tag="credentials",
        request=credential_requests.ResetQuotaRequest,
        source="query",
        path_field="tenant",
        replies={200: (credential_replies.QuotaReply,)},
        problems=(*WRITE_CALL,),
    ),
    *cluster_routes(Route, WRITE_CALL),
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
