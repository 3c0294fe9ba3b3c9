"""Bodies of the answers, as the public contract has them. Fields that are UNSET are left out.

Times for people are RFC 3339 strings in UTC with milliseconds; durations end in ``_ms``.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class LeaseBody(_Reply, frozen=True, kw_only=True):
    """``lease_id`` and ``session_id`` are shown only to the holder."""

    lease_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    key: str
    owner: str
    token: int
    mode: str
    slot: int
    ttl_ms: int
    expires_in_ms: int
    metadata: dict[str, str]
    granted_at: str
    renewed_at: str
    revision: int
    holders: int | UnsetType = UNSET
    """How many hold the key, if asked for one key that more than one holds; this is the first of them."""
    applied_index: int | UnsetType = UNSET
    """Only on a read with consistency=stale."""


class HolderBody(_Reply, frozen=True, kw_only=True):
    """What anybody of the tenant may know of a holder."""

    key: str
    owner: str
    token: int
    mode: str
    slot: int
    expires_in_ms: int
    granted_at: str
    metadata: dict[str, str]


class GrantedReply(_Reply, frozen=True, kw_only=True):
    """``lease`` for one key, ``leases`` for a set."""

    status: Literal["granted"] = "granted"
    lease: LeaseBody | UnsetType = UNSET
    leases: list[LeaseBody] | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET


class AheadBody(_Reply, frozen=True, kw_only=True):
    """One of those that a waiter waits for."""

    owner: str
    state: Literal["holding", "waiting"]


class WaitingReply(_Reply, frozen=True, kw_only=True):
    status: Literal["waiting"] = "waiting"
    position: int
    ahead: list[AheadBody]
    request_id: str


class RenewedReply(_Reply, frozen=True, kw_only=True):
    lease: LeaseBody


class SessionBody(_Reply, frozen=True, kw_only=True):
    session_id: str
    owner: str
    ttl_ms: int
    expires_in_ms: int
    metadata: dict[str, str]
    leases: int
    opened_at: str
    renewed_at: str


class SessionReply(_Reply, frozen=True, kw_only=True):
    session: SessionBody


class SessionClosedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["closed"] = "closed"
    leases: int


class ReleasedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["released", "already_released"]


class AbandonedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["abandoned"] = "abandoned"


class BrokenBody(_Reply, frozen=True, kw_only=True):
    owner: str
    token: int


class BrokenReply(_Reply, frozen=True, kw_only=True):
    broken: list[BrokenBody]


class ValidateReply(_Reply, frozen=True, kw_only=True):
    """``reason`` is empty when valid, else ``stale_token`` or ``not_live``. ``current_token`` is the
    guard's floor.
    """

    valid: bool
    reason: str
    current_token: int


class AcceptedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["accepted"] = "accepted"
    revision: int


class LeasesReply(_Reply, frozen=True, kw_only=True):
    """``next`` goes into ``after`` of the next page; null on the last. ``revision`` is that of the state that
    was listed: watching from the first page's tells everything that happened since.
    """

    leases: list[LeaseBody]
    next: str | None
    revision: int
    applied_index: int | UnsetType = UNSET


class WaiterBody(_Reply, frozen=True, kw_only=True):
    position: int
    owner: str
    mode: str
    waiting_ms: int
    queued_at: str
    metadata: dict[str, str]


class QueueReply(_Reply, frozen=True, kw_only=True):
    key: str
    holders: list[HolderBody]
    waiters: list[WaiterBody]
    waiters_total: int
    applied_index: int | UnsetType = UNSET


class RecordReply(_Reply, frozen=True, kw_only=True):
    key: str
    value: str
    value_encoding: Literal["utf8", "base64"]
    digest: str | None
    token: int
    owner: str
    revision: int
    committed_at: str
    applied_index: int | UnsetType = UNSET


class DeletedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["deleted"] = "deleted"


class BatchResult(_Reply, frozen=True, kw_only=True):
    """``body`` is what the single call would have answered."""

    status: int
    body: Any


class BatchReply(_Reply, frozen=True, kw_only=True):
    results: list[dict[str, Any]]


class MemberBody(_Reply, frozen=True, kw_only=True):
    id: str
    role: Literal["leader", "follower", "candidate", "unknown"]
    http: str
    peer: str
    match_index: int | None
    """Known on the leader only: greatest index known to be on this member's durable log."""
    lag: int | None
    """Known on the leader only: entries between the leader's last and ``match_index``."""


class ClusterReply(_Reply, frozen=True, kw_only=True):
    """One node's view of the cluster; ``node`` says whose."""

    cluster_id: str
    node: str
    role: Literal["leader", "follower", "candidate"]
    leader: str | None
    leader_url: str | None
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    cluster_time_ms: int
    durability: str
    version: str
    members: list[MemberBody]


class StatusReply(_Reply, frozen=True, kw_only=True):
    """Body of livez and readyz."""

    status: str


Reply: TypeAlias = (
    GrantedReply
    | WaitingReply
    | RenewedReply
    | SessionReply
    | SessionClosedReply
    | ReleasedReply
    | AbandonedReply
    | BrokenReply
    | ValidateReply
    | AcceptedReply
    | LeaseBody
    | LeasesReply
    | QueueReply
    | RecordReply
    | DeletedReply
)
