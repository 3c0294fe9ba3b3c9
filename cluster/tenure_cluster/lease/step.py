"""One command being applied: the table, the entry's effective time and the events so far."""

from tenure_cluster.lease import limits
from tenure_cluster.lease.events import ENDS, Event, EventKind
from tenure_cluster.lease.indexes import KeyRef
from tenure_cluster.lease.restoration import counters_of
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import ClusterTime, FencingToken, Key, Lease, Revision, Tenant, TenantId


class InvariantBroken(Exception):
    """The state contradicts itself: a bug, or damage. The node must stop before it answers anything."""


class Step:
    """What the functions of the machine share while one command is applied."""

    __slots__ = (
        "_stuck",
        "_stuck_at",
        "drops_left",
        "events",
        "grants_left",
        "leading_sets",
        "looks_left",
        "now_ms",
        "serving",
        "table",
        "unserved",
        "wall_ms",
    )

    def __init__(self, table: LeaseTable, now_ms: ClusterTime, wall_ms: int) -> None:
        self.table = table
        self.now_ms = now_ms
        """The effective time of the command: the greatest stamp so far, this entry's included."""
        self.wall_ms = wall_ms
        self.events: list[Event] = []
        self.unserved: dict[KeyRef, None] = {}
        """Keys that may have come free for a waiter, in the order in which they were touched."""
        self.serving = False
        self.drops_left = limits.DROPS_PER_ENTRY_MAX
        """How many dead waiters may still be dropped in passing."""
        self.grants_left = limits.GRANTS_PER_ENTRY_MAX
        """How many leases may still be granted to waiters."""
        self.looks_left = limits.LOOKS_PER_ENTRY_MAX
        """At how many keys of waiters it may still be looked, to see whether they are free."""
        self.leading_sets: dict[KeyRef, int] = {}
        """How many waiters at the head of a queue let others pass, where that is known."""
        self._stuck: dict[int, KeyRef] = {}
        """Waiting sets, by ticket, that were looked at and need a key that is not free for them."""
        self._stuck_at: dict[KeyRef, list[int]] = {}

    def full(self) -> bool:
        """Whether the entry has done so much that what else is due is left to another one."""
        much = len(self.events) >= limits.EVENTS_PER_EXPIRE_MAX
        return much or self.grants_left <= 0 or self.looks_left <= 0

    def note_stuck(self, ticket: int, ref: KeyRef) -> None:
        """A waiting set needs not be looked at again until this key has changed."""
        self._stuck[ticket] = ref
        self._stuck_at.setdefault(ref, []).append(ticket)

    def is_stuck(self, ticket: int) -> bool:
        return ticket in self._stuck

    def changed(self, ref: KeyRef) -> None:
        """A lease of the key has ended, or a waiter has left its queue."""
        self.leading_sets.pop(ref, None)
        for ticket in self._stuck_at.pop(ref, ()):
            del self._stuck[ticket]

    def counters(self, tenant: TenantId) -> Tenant:
        """The tenant's counters. Its name is the one string that all values of the tenant share."""
        return counters_of(self.table, tenant)

    def emit(
        self,
        kind: EventKind,
        tenant: TenantId,
        key: Key,
        owner: str,
        token: FencingToken,
        detail: str = "",
        mode: str = "",
        slot: int = 0,
        since_ms: ClusterTime = 0,
    ) -> Revision:
        """Record that something happened, at the tenant's next revision."""
        counters = self.counters(tenant)
        revision = counters.revision + 1
        self.table.tenants[tenant] = Tenant(counters.tenant, counters.last_token, revision)
        self.events.append(
            Event(
                counters.tenant,
                revision,
                kind,
                key,
                owner,
                token,
                self.now_ms,
                self.wall_ms,
                detail,
                mode,
                slot,
                since_ms,
            )
        )
        return revision

    def mint_for(
        self, tenant: TenantId, key: Key, owner: str, mode: str, slot: int
    ) -> tuple[FencingToken, Revision]:
        """Mint a token for a grant, and record the grant."""
        counters = self.counters(tenant)
        tenant, token, revision = counters.tenant, counters.last_token + 1, counters.revision + 1
        if token > limits.TOKEN_MAX:
            raise InvariantBroken(f"tenant {tenant!r}: minted beyond the greatest token")
        self.table.tenants[tenant] = Tenant(tenant, token, revision)
        self.events.append(
            Event(tenant, revision, "granted", key, owner, token, self.now_ms, self.wall_ms, "", mode, slot)
        )
        return token, revision

    def tell(self, kind: EventKind, lease: Lease, detail: str = "") -> Revision:
        """Record that something happened to a lease."""
        since_ms = lease.granted_ms if kind in ENDS else 0
        return self.emit(
            kind, lease.tenant, lease.key, lease.owner, lease.token, detail, lease.mode, lease.slot, since_ms
        )

    def tokens_left(self, tenant: TenantId, count: int = 1) -> bool:
        """Whether so many more tokens can be minted."""
        return self.counters(tenant).last_token + count <= limits.TOKEN_MAX

    def mint(self, tenant: TenantId) -> FencingToken:
        """The tenant's next fencing token; tokens_left() must hold."""
        counters = self.counters(tenant)
        token = counters.last_token + 1
        if token > limits.TOKEN_MAX:
            raise InvariantBroken(f"tenant {tenant!r}: minted beyond the greatest token")
        self.table.tenants[tenant] = Tenant(counters.tenant, token, counters.revision)
        return token
