"""What happened: the vocabulary of the event stream.

Every event has its own revision; a tenant's revisions are consecutive.
"""

from typing import Literal, TypeAlias

import msgspec

from tenure_cluster.lease.types import ClusterTime, FencingToken, Key, Revision, TenantId

EventKind: TypeAlias = Literal[
    "granted",
    "renewed",
    "released",
    "expired",
    "broken",
    "committed",
    "commit_refused",
    "record_deleted",
    "queue_joined",
    "queue_left",
]


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened to one key. ``detail`` is the reason, the refusal's code or empty."""

    tenant: TenantId
    revision: Revision
    kind: EventKind
    key: Key
    owner: str
    token: FencingToken
    at_ms: ClusterTime
    wall_ms: int
    detail: str = ""
