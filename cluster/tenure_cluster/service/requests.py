"""Bodies of the calls, as the public contract has them. The HTTP front, batches and forwarding decode to
these.

Unknown fields are refused. Bounds that name themselves in an ``out_of_range`` answer are checked in
validation.py; the schema repeats them for the generated OpenAPI document.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenure_cluster.lease import limits
from tenure_cluster.service.audit_messages import AUDIT_OPERATIONS, AuditRequest
from tenure_cluster.service.backup_messages import BackupPointRequest
from tenure_cluster.service.cluster_requests import CLUSTER_OPERATIONS, ClusterRequest
from tenure_cluster.service.credential_requests import CREDENTIAL_OPERATIONS, CredentialRequest

Key = Annotated[
    str,
    Meta(
        description="Name of what is protected: 1 to 512 bytes of UTF-8 without control characters; "
        "`/` is allowed.",
        extra_json_schema={"minLength": 1, "maxLength": limits.KEY_BYTES_MAX},
    ),
]
Owner = Annotated[
    str,
    Meta(
        description="Label of the worker or agent, for people; never an authority for any check.",
        extra_json_schema={"minLength": 1, "maxLength": limits.OWNER_BYTES_MAX},
    ),
]
Id = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.ID_BYTES_MAX})]
Metadata = Annotated[
    dict[str, str],
    Meta(description=f"String map, {limits.METADATA_BYTES_MAX} bytes at most, keys and values together."),
]
DurationMs = Annotated[int, Meta(description="Milliseconds.", extra_json_schema={"minimum": 0})]
Token = Annotated[
    int, Meta(description="Fencing token.", extra_json_schema={"minimum": 0, "maximum": limits.TOKEN_MAX})
]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies."""


class AcquireRequest(_Request, frozen=True, kw_only=True):
    """Exactly one of ``key`` and ``keys``; ``ttl_ms`` is required without ``session_id`` and refused with
    it.
    """

    owner: Owner
    key: Key | None = None
    keys: (
        Annotated[
            list[Key],
            Meta(
                description="A set of different keys: all are granted, in one entry, or none.",
                extra_json_schema={"minItems": 1, "maxItems": limits.SET_KEYS_MAX, "uniqueItems": True},
            ),
        ]
        | None
    ) = None
    ttl_ms: DurationMs | None = None
    wait_ms: DurationMs = 0
    mode: Literal["exclusive", "shared", "permit"] = "exclusive"
    slots: (
        Annotated[
            int,
            Meta(
                description="Number of slots of the pool; required in mode `permit` and refused in others.",
                extra_json_schema={"minimum": 1, "maximum": limits.HOLDERS_PER_KEY_MAX},
            ),
        ]
        | None
    ) = None
    request_id: Id | None = None
    metadata: Metadata = {}
    session_id: Id | None = None
    grace_ms: DurationMs = 0
    if_held: Literal["return", "conflict"] = "return"
    progress_ms: (
        Annotated[
            int,
            Meta(
                description="Within so many milliseconds the holder must tell of progress, again and again; "
                "renewals alone then don't keep the lease.",
                extra_json_schema={"minimum": limits.PROGRESS_MS_MIN, "maximum": limits.PROGRESS_MS_MAX},
            ),
        ]
        | None
    ) = None


class ProgressNote(_Request, frozen=True, kw_only=True):
    """How far the holder is, in its own words. Saying the same again is no progress, and within a step
    neither is a counter that is not 0 and below one that was told before: such a note was late on its way."""

    step: Annotated[str, Meta(extra_json_schema={"maxLength": limits.PROGRESS_STEP_BYTES_MAX})] = ""
    text: Annotated[str, Meta(extra_json_schema={"maxLength": limits.PROGRESS_TEXT_BYTES_MAX})] = ""
    counter: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": limits.SEQ_MAX})] = 0


class RenewRequest(_Request, frozen=True, kw_only=True):
    """Exactly one of ``lease_id`` and ``session_id``; ``progress`` goes with a lease."""

    lease_id: Id | None = None
    session_id: Id | None = None
    ttl_ms: DurationMs | None = None
    progress: ProgressNote | None = None


class ReleaseRequest(_Request, frozen=True, kw_only=True):
    """With ``whole_set`` everything that is left of the set of keys that the lease was granted in."""

    lease_id: Id
    whole_set: bool = False


class AbandonRequest(_Request, frozen=True, kw_only=True):
    request_id: Id
    session_id: Id | None = None


class HandoverRequest(_Request, frozen=True, kw_only=True):
    lease_id: Id
    to_session_id: Id


class ParkRequest(_Request, frozen=True, kw_only=True):
    """With ``token`` only if it is the lease's still: a request that was delayed then does nothing."""

    lease_id: Id
    token: Token | None = None
    limit_ms: Annotated[
        int,
        Meta(
            description="For how long no heartbeats are needed, in milliseconds from now.",
            extra_json_schema={"minimum": limits.PARK_MS_MIN, "maximum": limits.PARK_MS_MAX},
        ),
    ]


class UnparkRequest(_Request, frozen=True, kw_only=True):
    """At most one of ``session_id`` and ``ttl_ms``; without either the lease has the TTL that it had.
    ``token`` is the lease's from before it was parked: nothing that was asked under it takes effect later."""

    lease_id: Id
    token: Token | None = None
    session_id: Id | None = None
    ttl_ms: DurationMs | None = None


class BreakRequest(_Request, frozen=True, kw_only=True):
    key: Key
    reason: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.REASON_BYTES_MAX})]


class ResizeRequest(_Request, frozen=True, kw_only=True):
    key: Key
    slots: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": limits.HOLDERS_PER_KEY_MAX})]


class ValidateRequest(_Request, frozen=True, kw_only=True):
    key: Key
    token: Token


class CommitRequest(_Request, frozen=True, kw_only=True):
    key: Key
    lease_id: Id
    token: Token
    mode: Literal["current", "once", "sequence"]
    slot: int = 0
    seq: int | None = None
    op_id: Id | None = None
    require_live: bool = True
    if_revision: int | None = None
    value: str | None = None
    value_encoding: Literal["utf8", "base64"] = "utf8"
    digest: str | None = None


class GetLeaseRequest(_Request, frozen=True, kw_only=True):
    key: Key
    consistency: Literal["linearizable", "stale"] = "linearizable"


class ListLeasesRequest(_Request, frozen=True, kw_only=True):
    """``after`` is the last key of the page before; pages are in the order of the keys' UTF-8 bytes."""

    prefix: str = ""
    limit: int = 100
    after: str | None = None
    owner: str | None = None
    consistency: Literal["linearizable", "stale"] = "linearizable"


class QueueRequest(_Request, frozen=True, kw_only=True):
    key: Key
    consistency: Literal["linearizable", "stale"] = "linearizable"


class GetRecordRequest(_Request, frozen=True, kw_only=True):
    key: Key
    consistency: Literal["linearizable", "stale"] = "linearizable"


class DeleteRecordRequest(_Request, frozen=True, kw_only=True):
    key: Key
    if_revision: int | None = None


class OpenSessionRequest(_Request, frozen=True, kw_only=True):
    owner: Owner
    ttl_ms: DurationMs
    metadata: Metadata = {}


class GetSessionRequest(_Request, frozen=True, kw_only=True):
    session_id: Id
    consistency: Literal["linearizable", "stale"] = "linearizable"


class CloseSessionRequest(_Request, frozen=True, kw_only=True):
    session_id: Id


class EventsRequest(_Request, frozen=True, kw_only=True, rename={"after": "from"}):
    """``from`` is the revision that was told last: what is told begins after it. Without it, now."""

    prefix: str = ""
    after: int | None = None


class BatchRequest(_Request, frozen=True, kw_only=True):
    """Up to 1,000 operations; each is the body of its call with ``op`` beside it."""

    ops: list[dict[str, Any]]


Request: TypeAlias = (
    AcquireRequest
    | RenewRequest
    | ReleaseRequest
    | HandoverRequest
    | ParkRequest
    | UnparkRequest
    | AbandonRequest
    | BreakRequest
    | ResizeRequest
    | ValidateRequest
    | CommitRequest
    | GetLeaseRequest
    | ListLeasesRequest
    | QueueRequest
    | GetRecordRequest
    | DeleteRecordRequest
    | OpenSessionRequest
    | GetSessionRequest
    | CloseSessionRequest
    | CredentialRequest
    | AuditRequest
    | ClusterRequest
    | BackupPointRequest
)

OPERATIONS: dict[str, type[msgspec.Struct]] = {
    "acquire": AcquireRequest,
    "renew": RenewRequest,
    "release": ReleaseRequest,
    "handover": HandoverRequest,
    "park": ParkRequest,
    "unpark": UnparkRequest,
    "abandon": AbandonRequest,
    "break": BreakRequest,
    "resize": ResizeRequest,
    "validate": ValidateRequest,
    "commit": CommitRequest,
    "get_lease": GetLeaseRequest,
    "list_leases": ListLeasesRequest,
    "queue": QueueRequest,
    "get_record": GetRecordRequest,
    "delete_record": DeleteRecordRequest,
    "open_session": OpenSessionRequest,
    "get_session": GetSessionRequest,
    "close_session": CloseSessionRequest,
}
"""Every operation on leases, guards and sessions by its name: what streams and batches may name."""

ALL_OPERATIONS: dict[str, type[msgspec.Struct]] = {
    **OPERATIONS,
    **CREDENTIAL_OPERATIONS,
    **AUDIT_OPERATIONS,
    **CLUSTER_OPERATIONS,
    "backup_point": BackupPointRequest,
}
"""Every operation of the service: what forwarding may name."""

BATCH_OPERATIONS = frozenset(
    {
        "acquire",
        "renew",
        "release",
        "handover",
        "park",
        "unpark",
        "abandon",
        "break",
        "resize",
        "validate",
        "commit",
    }
)
"""The operations that a batch may hold. An acquire in a batch must have ``wait_ms`` 0."""
