"""Answers of the cluster, typed. Fields that a newer server adds are ignored.

Durations end in ``_ms`` and were computed by the leader when it answered: they count from the moment the
request was *sent*, never from the receipt of the answer. Times for people are RFC 3339 in UTC and decide
nothing.
"""

from __future__ import annotations

import base64
from typing import Literal

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


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


class LeaseInfo(Holder, frozen=True, kw_only=True):
    """A lease as anybody of the tenant may see it."""

    ttl_ms: int
    renewed_at: str
    revision: int


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
    """``next`` goes into ``after`` of the next page; None on the last."""

    leases: list[LeaseInfo]
    next: str | None = None


class QueuedWaiter(_Answer, frozen=True, kw_only=True):
    position: int
    owner: str
    mode: str
    waiting_ms: int
    queued_at: str
    metadata: dict[str, str]


class Queue(_Answer, frozen=True, kw_only=True):
    """Holders and waiters of a key, in order. ``waiters`` may be cut off; ``waiters_total`` is not."""

    key: str
    holders: list[Holder]
    waiters: list[QueuedWaiter]
    waiters_total: int


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


class Event(_Answer, frozen=True, kw_only=True):
    """One thing that happened to a key: granted, renewed, progress, parked, unparked, released, expired,
    broken, handed_over, committed, commit_refused, record_deleted, queue_joined or queue_left; of a newer
    server others.

    ``detail`` is a reason, a refusal's code, or empty. A ``gap`` is no event: what happened before
    ``revision`` may have been missed; look at the state.
    """

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


class Member(_Answer, frozen=True, kw_only=True):
    """``match_index`` and ``lag`` are known on the leader only."""

    id: str
    role: str
    http: str
    peer: str
    match_index: int | None = None
    lag: int | None = None


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
