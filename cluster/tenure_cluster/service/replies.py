"""Bodies of the answers, as the public contract has them. Fields that are UNSET are left out.

Times for people are RFC 3339 strings in UTC with milliseconds; durations end in ``_ms``.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tenure_cluster.service.audit_messages import AuditReply, NotedReply
from tenure_cluster.service.backup_messages import BackupPointReply
from tenure_cluster.service.cluster_replies import MembersReply, TransferredReply
from tenure_cluster.service.credential_replies import (
    CredentialReply,
    CredentialsReply,
    QuotaReply,
    RevokedReply,
    TenantsReply,
)


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class ProgressBody(_Reply, frozen=True, kw_only=True):
    """What a holder last said of its progress, and when that was new."""

    step: str
    text: str
    counter: int
    at: str
    age_ms: int


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
    state: Literal["parked"] | UnsetType = UNSET
    """Only of a parked lease: it needs no heartbeats until ``expires_in_ms`` is over."""
    progress: ProgressBody | UnsetType = UNSET
    progress_ms: int | UnsetType = UNSET
    """Within how long progress is demanded, if it is; ``expires_in_ms`` counts it in."""
    holders: int | UnsetType = UNSET
    """How many hold the key, if asked for one key that more than one holds; this is the first of them."""
    applied_index: int | UnsetType = UNSET
    """Only on a read with consistency=stale."""
    waiters: int | UnsetType = UNSET
    """Only in a list of leases: how many wait for the key, if any do."""


class HolderBody(_Reply, frozen=True, kw_only=True):
    """What anybody of the tenant may know of a holder. ``held_ms`` and ``state`` are told by a queue."""

    key: str
    owner: str
    token: int
    mode: str
    slot: int
    expires_in_ms: int
    granted_at: str
    metadata: dict[str, str]
    held_ms: int | UnsetType = UNSET
    state: Literal["held", "parked"] | UnsetType = UNSET


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


class HandedOverReply(_Reply, frozen=True, kw_only=True):
    """``lease`` is the successor's."""

    status: Literal["handed_over"] = "handed_over"
    lease: LeaseBody
    replayed: bool | UnsetType = UNSET


class ParkedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["parked"] = "parked"
    lease: LeaseBody


class UnparkedReply(_Reply, frozen=True, kw_only=True):
    """``replayed``: the lease was not parked, and is answered as it is."""

    status: Literal["unparked"] = "unparked"
    lease: LeaseBody
    replayed: bool | UnsetType = UNSET


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
    applied_index: int | UnsetType = UNSET
    """Only on a read with consistency=stale."""


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


class ResizedReply(_Reply, frozen=True, kw_only=True):
    """``holders`` may be more than ``slots``: then none is granted until enough of them have ended."""

    slots: int
    before: int
    holders: int
    status: Literal["resized"] = "resized"


class ValidateReply(_Reply, frozen=True, kw_only=True):
    """``reason`` is empty when valid, else ``stale_token`` or ``not_live``. ``current_token`` is the
    guard's floor; of a pool, that of the slot whose token it is, else the newest.
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
    keys: list[str] | UnsetType = UNSET
    """All keys of a set, if it waits for one; then it may be passed at first."""


class BlockerBody(_Reply, frozen=True, kw_only=True):
    """One link of the chain of those who wait for one another: who is in the way at a key, and for how long
    already. ``token`` is 0 for one that does not hold the key but waits for it as the first."""

    key: str
    owner: str
    state: Literal["holding", "parked", "waiting"]
    token: int
    since_ms: int
    expires_in_ms: int
    progress: ProgressBody | UnsetType = UNSET


class QueueReply(_Reply, frozen=True, kw_only=True):
    key: str
    holders: list[HolderBody]
    waiters: list[WaiterBody]
    waiters_total: int
    chain: list[BlockerBody]
    """From whom this key waits for to the one that everybody waits for: each but the last waits for the next
    one's key. Empty if nobody is in the way."""
    blocked_ms: int | UnsetType = UNSET
    """What is left of a grace period, if one runs."""
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
    voter: bool
    """Whether it counts in majorities; a learner does not yet."""


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


class OwnBody(_Reply, frozen=True, kw_only=True):
    """What a node says of itself. ``ready`` is what its /readyz says, ``reason`` why not."""

    role: Literal["leader", "follower", "candidate"]
    term: int
    last_index: int
    applied_index: int
    ready: bool
    reason: str
    version: str
    disk_free_bytes: int
    """Free space of the data directory's file system."""
    disk_reserve_bytes: int
    """Free space below which the node refuses acquires."""
    wall_ms: int = 0
    """Its wall clock, in Unix milliseconds; 0 from a version that does not say it."""


class NodeBody(_Reply, frozen=True, kw_only=True):
    """A member. ``about`` is there if it was reached, by the node that was asked."""

    id: str
    http: str
    reached: bool
    lag: int | None
    """Entries between the leader's last and this node's; null if one of the two was not reached."""
    voter: bool
    """Whether it counts in majorities; a learner does not yet."""
    about: OwnBody | UnsetType = UNSET


class NodesReply(_Reply, frozen=True, kw_only=True):
    """All members, each as it describes itself to ``node``. ``leader`` is the one that ``node`` knows."""

    node: str
    leader: str | None
    term: int
    nodes: list[NodeBody]


class StatusReply(_Reply, frozen=True, kw_only=True):
    """Body of livez and readyz."""

    status: str


Reply: TypeAlias = (
    GrantedReply
    | WaitingReply
    | RenewedReply
    | HandedOverReply
    | ParkedReply
    | UnparkedReply
    | SessionReply
    | SessionClosedReply
    | ReleasedReply
    | AbandonedReply
    | BrokenReply
    | ResizedReply
    | ValidateReply
    | AcceptedReply
    | LeaseBody
    | LeasesReply
    | QueueReply
    | RecordReply
    | DeletedReply
    | CredentialReply
    | CredentialsReply
    | RevokedReply
    | QuotaReply
    | TenantsReply
    | AuditReply
    | NotedReply
    | TransferredReply
    | BackupPointReply
    | MembersReply
)
