"""Answers of the cluster, typed. Fields that a newer server adds are ignored.

Durations end in ``_ms`` and were computed by the leader when it answered: they count from the moment the
request was *sent*, never from the receipt of the answer. Times for people are RFC 3339 in UTC and decide
nothing.
"""

from __future__ import annotations

import base64
import enum
from typing import Any, Final, Literal

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Progress(_Answer, frozen=True, kw_only=True):
    """What a holder last said of its progress, in its own words, and for how long it has said so."""

    step: str
    text: str
    counter: int
    at: str
    age_ms: int


class Holder(_Answer, frozen=True, kw_only=True):
    """What anybody of the tenant may know of a holder."""

    key: str
    owner: str
    token: int
    mode: str
    slot: int
    expires_in_ms: int
    granted_at: str
    metadata: dict[str, str] = {}
    state: Literal["held", "parked"] = "held"


class QueueHolder(Holder, frozen=True, kw_only=True):
    """A holder as a queue shows it, with how long it has held the key already."""

    held_ms: int = 0


class LeaseInfo(Holder, frozen=True, kw_only=True):
    """A lease as anybody of the tenant may see it. ``progress`` is what its holder last told;
    ``progress_ms``, if not 0, within how long it has to tell anew, which ``expires_in_ms`` counts in."""

    ttl_ms: int
    renewed_at: str
    revision: int
    progress: Progress | None = None
    progress_ms: int = 0
    holders: int = 1
    """How many hold the key, if asked for one key; this is the first of them."""
    waiters: int = 0
    """How many wait for the key, if it stands in a list of leases."""


class Grant(LeaseInfo, frozen=True, kw_only=True):
    """A lease as its holder sees it. Whoever has the ``lease_id`` can renew, release and commit: keep it to
    yourself."""

    lease_id: str
    session_id: str


class Ahead(_Answer, frozen=True, kw_only=True):
    """One of those that a waiter waits for."""

    owner: str
    state: Literal["holding", "waiting"]


class Acquired(_Answer, frozen=True, kw_only=True):
    """Answer of an acquire: ``granted`` with the lease, or ``waiting`` with the place in the queue (from 1).

    ``replayed``: the request_id had been granted before, and this is that grant.
    """

    status: Literal["granted", "waiting"]
    lease: Grant | None = None
    leases: list[Grant] = []
    """In the place of ``lease`` for a set of keys."""
    replayed: bool = False
    position: int = 0
    ahead: list[Ahead] = []

    @property
    def grants(self) -> list[Grant]:
        """The leases, one or those of a set."""
        return self.leases if self.lease is None else [self.lease]


class Renewed(_Answer, frozen=True, kw_only=True):
    lease: Grant


class Passed(_Answer, frozen=True, kw_only=True):
    """Answer of a handover, of parking and of taking up again: the lease as it is now. ``replayed``: that had
    been done before."""

    status: Literal["handed_over", "parked", "unparked"]
    lease: Grant
    replayed: bool = False


class BatchResult(_Answer, frozen=True, kw_only=True):
    """One operation's answer: its status, and of a refusal the code and the reason."""

    status: int
    code: str = ""
    reason: str = ""


class BatchAnswer(_Answer, frozen=True, kw_only=True):
    results: list[BatchResult]


class Session(_Answer, frozen=True, kw_only=True):
    """A session: what keeps its leases alive as long as it is renewed."""

    session_id: str
    owner: str
    ttl_ms: int
    expires_in_ms: int
    metadata: dict[str, str]
    leases: int
    opened_at: str
    renewed_at: str


class SessionAnswer(_Answer, frozen=True, kw_only=True):
    session: Session


class Released(_Answer, frozen=True, kw_only=True):
    status: Literal["released", "already_released"]


class BrokenLease(_Answer, frozen=True, kw_only=True):
    owner: str
    token: int


class Broken(_Answer, frozen=True, kw_only=True):
    """The leases that a break ended; empty if nobody held the key."""

    broken: list[BrokenLease]


class Resized(_Answer, frozen=True, kw_only=True):
    """A pool has so many slots and had ``before``. ``holders`` may be more: then none is granted until enough
    of them have ended."""

    slots: int
    before: int
    holders: int


class Validation(_Answer, frozen=True, kw_only=True):
    """Advice, not proof: the moment of checking is not the moment of writing. ``reason`` is empty when
    valid."""

    valid: bool
    reason: str
    current_token: int


class Accepted(_Answer, frozen=True, kw_only=True):
    """The write passed the guard."""

    revision: int


class LeasePage(_Answer, frozen=True, kw_only=True):
    """``next`` goes into ``after`` of the next page; None on the last. ``revision`` is that of the state that
    was listed: watching after the first page's tells everything that has happened since."""

    leases: list[LeaseInfo]
    next: str | None = None
    revision: int = 0


class QueuedWaiter(_Answer, frozen=True, kw_only=True):
    position: int
    owner: str
    mode: str
    waiting_ms: int
    queued_at: str
    metadata: dict[str, str]
    keys: list[str] = []
    """All keys of a set, if it waits for one."""


class Blocker(_Answer, frozen=True, kw_only=True):
    """Who is in the way at a key, and for how long already. ``token`` is 0 for one that does not hold the key
    but waits for it as the first."""

    key: str
    owner: str
    state: Literal["holding", "parked", "waiting"]
    token: int
    since_ms: int
    expires_in_ms: int
    progress: Progress | None = None


class Queue(_Answer, frozen=True, kw_only=True):
    """Holders and waiters of a key, in order. ``waiters`` may be cut off; ``waiters_total`` is not.

    ``chain`` leads from whom this key waits for to the one that everybody waits for: each but the last waits
    for the next one's key. ``blocked_ms`` is what is left of a grace period.
    """

    key: str
    holders: list[QueueHolder]
    waiters: list[QueuedWaiter]
    waiters_total: int
    chain: list[Blocker] = []
    blocked_ms: int = 0


class Record(_Answer, frozen=True, kw_only=True):
    """The value last accepted for a key through its guard."""

    key: str
    value: str
    value_encoding: Literal["utf8", "base64"]
    digest: str | None
    token: int
    owner: str
    revision: int
    committed_at: str

    def data(self) -> bytes:
        """The value as bytes, whichever way it travelled."""
        if self.value_encoding == "base64":
            return base64.b64decode(self.value)
        return self.value.encode()


class EventKind(enum.StrEnum):
    """What happens, as a watch tells it. They compare as strings, so a newer server's others do no harm."""

    GRANTED = "granted"
    """A lease begins; the successor's too, after a handover."""
    RENEWED = "renewed"
    """It was renewed; told at most once a second of a lease."""
    PROGRESS = "progress"
    """Its holder told how far it is; ``detail`` is the note's step."""
    PARKED = "parked"
    """It is kept without heartbeats until a limit."""
    UNPARKED = "unparked"
    """It is back in its holder's hands, with the new token."""
    RELEASED = "released"
    """It ended by its holder's wish; ``detail`` is empty, ``abandoned`` or ``session_closed``."""
    EXPIRED = "expired"
    """It ended by time; ``detail`` is empty, or ``no_progress``."""
    BROKEN = "broken"
    """It ended by force; ``detail`` is the reason."""
    HANDED_OVER = "handed_over"
    """It ended in favour of another session; ``detail`` is the successor's owner."""
    RESIZED = "resized"
    """A pool of permits got another number of slots while in use: ``detail``, by ``owner``."""
    COMMITTED = "committed"
    """A write passed the guard."""
    COMMIT_REFUSED = "commit_refused"
    """A write did not pass; ``detail`` is the code."""
    RECORD_DELETED = "record_deleted"
    QUEUE_JOINED = "queue_joined"
    """An acquire waits from now on."""
    QUEUE_LEFT = "queue_left"
    """It does not wait any more and was not granted; ``detail`` says why."""
    RESTORED = "restored"
    """The cluster was put back to a backup: every lease of before is over. It has no key."""
    GAP = "gap"
    """No event: what happened up to ``revision`` may have been missed. Look at the state."""


ENDS: Final = frozenset({EventKind.RELEASED, EventKind.EXPIRED, EventKind.BROKEN, EventKind.HANDED_OVER})
"""The kinds that end a lease; of each lease there is exactly one."""


class Event(_Answer, frozen=True, kw_only=True):
    """One thing that happened to a key. ``kind`` is an EventKind, or of a newer server another word.
    ``detail`` is a reason, a refusal's code, or empty."""

    revision: int
    kind: str
    key: str = ""
    owner: str = ""
    token: int = 0
    mode: str = ""
    slot: int = 0
    detail: str = ""
    at: str = ""
    cluster_time_ms: int = 0

    @property
    def ends_lease(self) -> bool:
        """The lease of this token is over."""
        return self.kind in ENDS


class SavedBackup(_Answer, frozen=True, kw_only=True):
    """A backup that is whole and durable. ``sha256`` is of everything but its trailer, which has it too."""

    file: str
    bytes: int
    sha256: str


class Member(_Answer, frozen=True, kw_only=True):
    """``match_index`` and ``lag`` are known on the leader only."""

    id: str
    role: str
    http: str
    peer: str
    match_index: int | None = None
    lag: int | None = None
    voter: bool = True
    """Whether it counts in majorities; a learner does not yet."""


class Cluster(_Answer, frozen=True, kw_only=True):
    """One node's view of the cluster; ``node`` says whose."""

    cluster_id: str
    node: str
    role: str
    leader: str | None
    leader_url: str | None
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    cluster_time_ms: int
    durability: str
    version: str
    members: list[Member]


class AboutNode(_Answer, frozen=True, kw_only=True):
    """What a node says of itself. ``reason`` says why it is not ready; below ``disk_reserve_bytes`` of free
    space it refuses acquires."""

    role: str
    term: int
    last_index: int
    applied_index: int
    ready: bool
    reason: str
    version: str
    disk_free_bytes: int
    disk_reserve_bytes: int


class NodeView(_Answer, frozen=True, kw_only=True):
    """A member, and what it says of itself if the node that was asked has reached it. ``lag`` counts entries
    behind the leader; a learner is no ``voter`` yet."""

    id: str
    http: str
    reached: bool
    lag: int | None = None
    voter: bool = True
    about: AboutNode | None = None


class Nodes(_Answer, frozen=True, kw_only=True):
    """All members, as ``node`` sees them; ``leader`` is the one that it knows."""

    node: str
    leader: str | None
    term: int
    nodes: list[NodeView]


class Credential(_Answer, frozen=True, kw_only=True):
    """A credential as the cluster knows it: without its secret. Times are None where there is none."""

    credential_id: str
    tenant: str
    name: str
    rights: list[str]
    prefixes: list[str]
    created_at: str
    created_by: str | None = None
    rotated_at: str = ""
    expires_at: str | None = None
    overlap_until: str | None = None


class NewCredential(_Answer, frozen=True, kw_only=True):
    """``bearer`` is what its holder shows: it is told here, and never again."""

    credential: Credential
    bearer: str


class CredentialPage(_Answer, frozen=True, kw_only=True):
    """``next`` goes into ``after`` for the next page, or is None on the last."""

    credentials: list[Credential]
    next: str | None = None


class Quota(_Answer, frozen=True, kw_only=True):
    """What a tenant may have; 0 is no bound."""

    leases_max: int = 0
    sessions_max: int = 0
    waiters_max: int = 0
    watches_max: int = 0
    records_max: int = 0
    record_bytes_max: int = 0
    operations_per_s: int = 0
    ttl_min_ms: int = 0
    ttl_max_ms: int = 0


class QuotaAnswer(_Answer, frozen=True, kw_only=True):
    """``quota`` is None where the nodes' configuration counts."""

    quota: Quota | None


class Tenant(_Answer, frozen=True, kw_only=True):
    """A tenant, what it has, and what it may have if that was set for it."""

    tenant: str
    leases: int
    sessions: int
    waiters: int
    records: int
    record_bytes: int
    credentials: int
    quota: Quota | None = None


class Transferred(_Answer, frozen=True, kw_only=True):
    """``leader`` leads in ``term``; None if the former leader has not heard of a new one yet."""

    leader: str | None
    term: int


class MemberIs(_Answer, frozen=True, kw_only=True):
    """A member as the cluster's log says; addresses are empty where each node's configuration has them. One
    that is no voter is a learner: it counts in no majority until it has caught up."""

    id: str
    peer: str
    http: str
    voter: bool


class Members(_Answer, frozen=True, kw_only=True):
    """All members, by the entry at ``index``."""

    index: int
    members: list[MemberIs]


class TenantPage(_Answer, frozen=True, kw_only=True):
    """``next`` goes into ``after`` for the next page, or is None on the last."""

    tenants: list[Tenant]
    next: str | None = None


class AuditPage(_Answer, frozen=True, kw_only=True):
    """A page of the audit, oldest first; ``tenure.audit`` verifies its chain.

    A record is told as it came, for its hash is of everything in it: ``seq``, ``at``, ``kind``, ``tenant``,
    ``actor`` (a credential's id), ``origin``, ``key``, ``token``, ``owner``, ``subject``, ``code`` (why it
    was refused), ``detail``, ``count``, ``at_ms`` (cluster time), ``wall_ms``, ``prev``, ``hash``. ``next``
    goes into ``after`` for the next page, or is None on the last. ``head`` is the hash of the last record
    that there is, ``first_seq`` the number of the oldest that is kept."""

    records: list[dict[str, Any]]
    next: int | None = None
    first_seq: int
    head_seq: int
    head: str
    recording: bool = True
