"""Derived lookups of the lease table: nothing in here is in a snapshot, all of it is rebuilt at load.

An index never changes what a command does, only how fast it is found. Where the order of an index is
looked at (the leases and waiters of a session, the waiters of a key), it follows from the order of the
primary dictionaries, so that a table which was loaded and one which has run all along go on alike.

Per-tenant dictionaries have plain strings as keys: they cost a third less than tuples would, and a held
lease is in two of them.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from tenure_cluster.lease.line import Line
from tenure_cluster.lease.memory import AbandonedRequest
from tenure_cluster.lease.sorted_keys import SortedKeys
from tenure_cluster.lease.types import (
    ClusterTime,
    EndedLease,
    Key,
    KeySet,
    Lease,
    LeaseId,
    RequestId,
    SessionId,
    TenantId,
    Waiter,
)

if TYPE_CHECKING:
    from tenure_cluster.lease.table import LeaseTable

LeaseRef: TypeAlias = tuple[TenantId, LeaseId]
SessionRef: TypeAlias = tuple[TenantId, SessionId]
KeyRef: TypeAlias = tuple[TenantId, Key]
WaiterRef: TypeAlias = tuple[TenantId, str, RequestId]
"""Tenant, scope and request_id; the scope is the session's id, or empty for a private session."""

RequestFate: TypeAlias = Lease | EndedLease | AbandonedRequest
"""What became of a request for one key that is not waiting."""


def request_item_id(scope: str, request_id: RequestId) -> str:
    """Scope and request_id as one string, unambiguous whatever they contain."""
    return f"{len(scope)}:{scope}{request_id}"


def parse_request_item_id(item_id: str) -> tuple[str, RequestId] | None:
    """Inverse of request_item_id(); None if the text is not one."""
    length, colon, rest = item_id.partition(":")
    if not colon or not length.isdecimal() or not length.isascii() or len(length) > 9:
        return None
    size = int(length)
    if size > len(rest) or request_item_id(rest[:size], rest[size:]) != item_id:
        return None
    return rest[:size], rest[size:]


def waiter_ref(waiter: Waiter) -> WaiterRef:
    """The waiter's key in LeaseTable.waiters."""
    return (waiter.tenant, "" if waiter.private else waiter.session_id, waiter.request_id)


class KeyQueue:
    """The waiters of one key, in the order of their tickets and in the order in which they last polled.

    All waiters may stay silent equally long, so those that have been silent for too long are always the first
    in the order of polling.
    """

    __slots__ = ("polled", "sessions_until_ms", "tickets")

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.polled: OrderedDict[int, WaiterRef] = OrderedDict()
        self.sessions_until_ms: ClusterTime = 0
        """No explicit session of a waiter here expires before this time; deadlines never move back."""

    def __len__(self) -> int:
        return len(self.tickets)

    def join(self, ticket: int, ref: WaiterRef) -> None:
        """Add a waiter at the end; tickets only rise."""
        self.tickets.append(ticket)
        self.polled[ticket] = ref

    def leave(self, ticket: int) -> None:
        """Take a waiter out, wherever it stands."""
        del self.tickets[bisect_left(self.tickets, ticket)]
        del self.polled[ticket]

    def head(self) -> WaiterRef:
        """The waiter whose turn is next."""
        return self.polled[self.tickets[0]]

    def at(self, place: int) -> WaiterRef:
        """The waiter at a place, counted from 0."""
        return self.polled[self.tickets[place]]

    def position(self, ticket: int) -> int:
        """A waiter's place, counted from 1."""
        return bisect_left(self.tickets, ticket) + 1

    def in_order(self) -> Iterable[WaiterRef]:
        """All waiters, first come first."""
        return (self.polled[ticket] for ticket in self.tickets)


class Indexes:
    """All derived lookups except the calendars of deadlines."""

    __slots__ = (
        "held_keys",
        "holders",
        "idle",
        "queues",
        "requests",
        "reserved",
        "scoped_requests",
        "session_leases",
        "session_waiters",
        "set_members",
    )

    def __init__(self) -> None:
        self.holders: dict[TenantId, dict[Key, Lease | dict[LeaseId, Lease]]] = {}
        """The present lease of each held key, or its leases in the order of their grants if it has more than
        one."""
        self.held_keys: dict[TenantId, SortedKeys] = {}
        """The held keys in the order of their UTF-8 bytes."""
        self.requests: dict[TenantId, dict[RequestId, RequestFate]] = {}
        """Requests of private sessions, granted or over."""
        self.scoped_requests: dict[TenantId, dict[str, RequestFate]] = {}
        """Requests of explicit sessions, by request_item_id()."""
        self.session_leases: dict[SessionRef, dict[LeaseId, None]] = {}
        """Leases of explicit sessions, and of private ones with a set of keys, in the order of their grants.
        Another private session has the lease of its own id."""
        self.session_waiters: dict[SessionRef, dict[WaiterRef, None]] = {}
        """Waiters of explicit sessions in the order of their tickets."""
        self.queues: dict[TenantId, dict[Key, KeyQueue]] = {}
        """Queues that are not empty."""
        self.reserved: dict[LeaseRef, WaiterRef] = {}
        """Lease ids that waiters will be granted."""
        self.set_members: dict[LeaseRef, WaiterRef] = {}
        """The request of each lease that was granted in a set, present or over."""
        self.idle: Line[KeyRef, None] = Line()
        """Keys with state and no holder, waiter or record, longest idle first."""

    # Requests

    def fate(self, tenant: TenantId, scope: str, request_id: RequestId) -> RequestFate | None:
        """The lease of a request, or how it ended; None if nothing is known or it waits."""
        if scope:
            scoped = self.scoped_requests.get(tenant)
            return scoped.get(request_item_id(scope, request_id)) if scoped is not None else None
        private = self.requests.get(tenant)
        return private.get(request_id) if private is not None else None

    def set_fate(self, tenant: TenantId, scope: str, request_id: RequestId, fate: RequestFate) -> None:
        """Record what became of a request, in place of what was known before."""
        if scope:
            self.scoped_requests.setdefault(tenant, {})[request_item_id(scope, request_id)] = fate
            return
        private = self.requests.get(tenant)
        if private is None:
            private = self.requests[tenant] = {}
        private[request_id] = fate

    def forget_fate(self, tenant: TenantId, scope: str, request_id: RequestId) -> None:
        """Nothing is known of the request any more."""
        index = self.scoped_requests if scope else self.requests
        of_tenant = index[tenant]
        del of_tenant[request_item_id(scope, request_id) if scope else request_id]
        if not of_tenant:
            del index[tenant]

    # Leases

    def add_lease(self, lease: Lease) -> None:
        tenant = lease.tenant
        held = self.holders.get(tenant)
        if held is None:
            held = self.holders[tenant] = {}
        present = held.get(lease.key)
        if present is None:
            held[lease.key] = lease
            ordered = self.held_keys.get(tenant)
            if ordered is None:
                ordered = self.held_keys[tenant] = SortedKeys()
            ordered.add(lease.key)
        elif isinstance(present, dict):
            present[lease.lease_id] = lease
        elif present.lease_id == lease.lease_id:
            held[lease.key] = lease
        else:
            held[lease.key] = {present.lease_id: present, lease.lease_id: lease}
        if not lease.in_set:
            self.set_fate(tenant, lease.scope, lease.request_id, lease)
        if lease.in_set or not lease.private:
            self.session_leases.setdefault((tenant, lease.session_id), {})[lease.lease_id] = None

    def leave_key(self, lease: Lease) -> None:
        """The lease holds its key no more."""
        tenant = lease.tenant
        held = self.holders[tenant]
        present = held[lease.key]
        if isinstance(present, dict):
            del present[lease.lease_id]
            if len(present) == 1:
                held[lease.key] = next(iter(present.values()))
        else:
            del held[lease.key]
            self.held_keys[tenant].remove(lease.key)
            if not held:
                del self.holders[tenant]
                del self.held_keys[tenant]

    def remove_lease(self, lease: Lease, ended: EndedLease) -> None:
        self.leave_key(lease)
        if not lease.in_set:
            self.set_fate(lease.tenant, ended.session_id, ended.request_id, ended)
        self.leave_session(lease)

    def leave_session(self, lease: Lease) -> None:
        """The lease is not of its session any more."""
        if lease.in_set or not lease.private:
            ref = (lease.tenant, lease.session_id)
            leases = self.session_leases[ref]
            del leases[lease.lease_id]
            if not leases:
                del self.session_leases[ref]

    def add_set(self, ref: WaiterRef, key_set: KeySet) -> None:
        for lease_id in key_set.lease_ids:
            self.set_members[(key_set.tenant, lease_id)] = ref

    def remove_set(self, key_set: KeySet) -> None:
        for lease_id in key_set.lease_ids:
            del self.set_members[(key_set.tenant, lease_id)]

    # Waiters

    def add_waiter(self, waiter: Waiter, ref: WaiterRef) -> None:
        queues = self.queues.setdefault(waiter.tenant, {})
        for key in waiter.keys:
            queue = queues.get(key)
            if queue is None:
                queue = queues[key] = KeyQueue()
            queue.join(waiter.ticket, ref)
        for lease_id in waiter.lease_ids:
            self.reserved[(waiter.tenant, lease_id)] = ref
        if not waiter.private:
            self.session_waiters.setdefault((waiter.tenant, waiter.session_id), {})[ref] = None

    def waiter_polled(self, waiter: Waiter) -> None:
        queues = self.queues[waiter.tenant]
        for key in waiter.keys:
            queues[key].polled.move_to_end(waiter.ticket)

    def remove_waiter(self, waiter: Waiter, ref: WaiterRef) -> None:
        queues = self.queues[waiter.tenant]
        for key in waiter.keys:
            queue = queues[key]
            queue.leave(waiter.ticket)
            if not queue.tickets:
                del queues[key]
        if not queues:
            del self.queues[waiter.tenant]
        for lease_id in waiter.lease_ids:
            del self.reserved[(waiter.tenant, lease_id)]
        if not waiter.private:
            session_ref = (waiter.tenant, waiter.session_id)
            waiters = self.session_waiters[session_ref]
            del waiters[ref]
            if not waiters:
                del self.session_waiters[session_ref]


def build_indexes(table: "LeaseTable") -> Indexes:
    """The indexes of a table, from its primary state alone."""
    indexes = Indexes()
    for lease in table.leases.values():
        indexes.add_lease(lease)
    for ended in table.ended.values():
        if not ended.in_set:
            indexes.set_fate(ended.tenant, ended.session_id, ended.request_id, ended)
    for ref, key_set in table.sets.items():
        indexes.add_set(ref, key_set)
    for ref, abandoned in table.abandoned.items():
        indexes.set_fate(*ref, abandoned)
    in_ticket_order = sorted(table.waiters.items(), key=lambda item: item[1].ticket)
    for ref, waiter in in_ticket_order:
        indexes.add_waiter(waiter, ref)
    for waiter in table.waiters.values():
        indexes.waiter_polled(waiter)
    for key_ref, state in table.keys.items():
        if state.idle_since_ms >= 0:
            indexes.idle.join(key_ref, None)
    return indexes
