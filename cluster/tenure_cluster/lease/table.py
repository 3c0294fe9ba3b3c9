"""The replicated state: plain dictionaries of immutable values, with derived indexes beside them.

Primary state is what a snapshot holds. It is changed only by the methods below, which keep the indexes in
step; they decide nothing. The queries at the end serve linearizable and stale reads and have no effect on
the state.

The state of a key whose guard was never written follows from its lease while it is held, except in mode
permit: the floor is the lease's token, granted to it, and there is no grace. Such a key has no entry in
``keys`` until a lease of it ends; ask key_state(). A held lease would cost half as much again otherwise.

Some orders are state and are kept by the order of the dictionaries: ``waiters`` stand in the order in which
they last polled, ``keys`` without holder, waiter or record in the order in which they became idle.
"""

import heapq
from collections.abc import Collection
from operator import attrgetter

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import ExpireItem
from tenure_cluster.lease.deadlines import Deadlines
from tenure_cluster.lease.indexes import (
    Indexes,
    KeyQueue,
    KeyRef,
    LeaseRef,
    SessionRef,
    WaiterRef,
    build_indexes,
    request_item_id,
    waiter_ref,
)
from tenure_cluster.lease.memory import AbandonedRequest, ExpiredSession, Memory, Operation
from tenure_cluster.lease.results import Grant
from tenure_cluster.lease.types import (
    ClusterTime,
    EndedLease,
    Guard,
    Key,
    KeyState,
    Lease,
    Record,
    RequestId,
    Session,
    SessionId,
    Tenant,
    TenantId,
    Waiter,
)


def waiter_item_id(waiter: Waiter) -> str:
    """The id of a waiter in an ExpireItem."""
    return request_item_id("" if waiter.private else waiter.session_id, waiter.request_id)


class LeaseTable:
    """Sessions, leases, queues, guards, records, counters and memories of all tenants."""

    def __init__(self) -> None:
        self.time_ms: ClusterTime = 0
        """Cluster time: the greatest stamp applied."""
        self.last_ticket = 0
        """Ticket of the waiter that queued last."""
        self.tenants: dict[TenantId, Tenant] = {}
        self.sessions: dict[SessionRef, Session] = {}
        self.leases: dict[LeaseRef, Lease] = {}
        self.keys: dict[KeyRef, KeyState] = {}
        self.waiters: dict[WaiterRef, Waiter] = {}
        self.records: dict[KeyRef, Record] = {}
        self.ended: Memory[LeaseRef, EndedLease] = Memory(attrgetter("ended_ms"), limits.ENDED_LEASES_MAX)
        self.expired_sessions: Memory[SessionRef, ExpiredSession] = Memory(
            attrgetter("ended_ms"), limits.ENDED_LEASES_MAX
        )
        self.abandoned: Memory[WaiterRef, AbandonedRequest] = Memory(
            attrgetter("ended_ms"), limits.ENDED_LEASES_MAX
        )
        self.operations: Memory[tuple[TenantId, Key, str], Operation] = Memory(
            attrgetter("answered_ms"), limits.OPERATIONS_MAX
        )

        self.indexes = Indexes()
        self.idle_look_ms: ClusterTime = 0
        """No idle key is over before this time. Not state: it only saves looking."""
        self.deadlines = Deadlines(self)

    # Sessions

    def add_session(self, ref: SessionRef, session: Session) -> None:
        self.sessions[ref] = session

    def replace_session(self, ref: SessionRef, session: Session) -> None:
        self.sessions[ref] = session

    def watch_session(self, ref: SessionRef) -> None:
        """From now on the session's own deadline is what ends it."""
        self.deadlines.sessions.push(ref, self.sessions[ref].deadline_ms, self.time_ms)

    def remove_session(self, ref: SessionRef) -> None:
        del self.sessions[ref]
        self.deadlines.sessions.discard(ref)

    def remember_expired_session(self, ref: SessionRef, expired: ExpiredSession) -> None:
        self.expired_sessions.remember(ref, expired)
        if self.expired_sessions.full():
            self.expired_sessions.forget_oldest()

    def id_known(self, ref: SessionRef | LeaseRef) -> bool:
        """Whether the id stands for a session or lease, present, remembered or promised to a waiter. Ids
        of both kinds are kept apart, because a private session has its lease's id."""
        return (
            ref in self.sessions
            or ref in self.leases
            or ref in self.ended
            or ref in self.expired_sessions
            or ref in self.indexes.reserved
        )

    # Leases

    def add_lease(self, ref: LeaseRef, lease: Lease) -> None:
        self.leases[ref] = lease
        self.indexes.add_lease(lease)
        if lease.claim_deadline_ms:
            self.deadlines.claims.push(ref, lease.claim_deadline_ms, self.time_ms)

    def replace_lease(self, ref: LeaseRef, lease: Lease) -> None:
        """The lease of the same id with other contents; its key, session and request are the same."""
        self.leases[ref] = lease
        self.indexes.add_lease(lease)

    def remove_lease(self, ref: LeaseRef, lease: Lease, ended: EndedLease) -> None:
        """Replace a lease by the memory of it."""
        del self.leases[ref]
        self.deadlines.claims.discard(ref)
        self.indexes.remove_lease(lease, ended)
        self.ended.remember(ref, ended)
        if self.ended.full():
            self.forget_ended()

    def forget_ended(self) -> None:
        """Forget the lease that ended longest ago, and its request."""
        ended = self.ended.forget_oldest()
        self.indexes.forget_fate(ended.tenant, ended.session_id, ended.request_id)

    def remember_abandoned(self, ref: WaiterRef, abandoned: AbandonedRequest) -> None:
        self.abandoned.remember(ref, abandoned)
        self.indexes.set_fate(*ref, abandoned)
        if self.abandoned.full():
            self.forget_abandoned()

    def forget_abandoned(self) -> None:
        """Forget the request that was given up longest ago."""
        abandoned = self.abandoned.forget_oldest()
        self.indexes.forget_fate(abandoned.tenant, abandoned.scope, abandoned.request_id)

    def remember_operation(self, operation: Operation) -> None:
        self.operations.remember((operation.tenant, operation.key, operation.op_id), operation)
        if self.operations.full():
            self.operations.forget_oldest()

    # Waiters

    def add_waiter(self, waiter: Waiter) -> None:
        ref = waiter_ref(waiter)
        self.waiters[ref] = waiter
        self.indexes.add_waiter(waiter, ref)
        self.deadlines.waiters.push(ref, waiter.poll_deadline_ms, self.time_ms)
        for key in waiter.keys:
            if not waiter.private:
                queue = self.indexes.queues[waiter.tenant][key]
                deadline_ms = self.sessions[(waiter.tenant, waiter.session_id)].deadline_ms
                queue.sessions_until_ms = min(queue.sessions_until_ms, deadline_ms)
            state = self.keys.get((waiter.tenant, key))
            if state is not None:
                self._watch_grace(state)

    def replace_polled_waiter(self, waiter: Waiter) -> None:
        """The waiter with a later poll deadline, now the last in the order of polling."""
        ref = waiter_ref(waiter)
        del self.waiters[ref]
        self.waiters[ref] = waiter
        self.indexes.waiter_polled(waiter)

    def remove_waiter(self, waiter: Waiter) -> None:
        ref = waiter_ref(waiter)
        del self.waiters[ref]
        self.deadlines.waiters.discard(ref)
        self.indexes.remove_waiter(waiter, ref)

    # Keys and records

    def holder(self, tenant: TenantId, key: Key) -> Lease | None:
        """The key's lease, expired or not; of several the one that was granted first."""
        held = self.indexes.holders.get(tenant)
        found = held.get(key) if held is not None else None
        return next(iter(found.values())) if isinstance(found, dict) else found

    def leases_of(self, tenant: TenantId, key: Key) -> Collection[Lease]:
        """All leases of the key in the order of their grants, expired or not."""
        held = self.indexes.holders.get(tenant)
        found = held.get(key) if held is not None else None
        if found is None:
            return ()
        return found.values() if isinstance(found, dict) else (found,)

    def key_queue(self, tenant: TenantId, key: Key) -> KeyQueue | None:
        """The key's queue; None if nobody waits."""
        queues = self.indexes.queues.get(tenant)
        return queues.get(key) if queues is not None else None

    def in_use(self, tenant: TenantId, key: Key) -> bool:
        """Whether the key has a holder, a waiter or a record, and so must keep its state."""
        return (
            self.holder(tenant, key) is not None
            or self.key_queue(tenant, key) is not None
            or (tenant, key) in self.records
        )

    def put_key_state(self, state: KeyState) -> None:
        """Store the state of a key. One that has just become idle is the last in the order of idleness."""
        ref = (state.tenant, state.key)
        idle = self.indexes.idle
        before = self.keys.get(ref)
        if before is not None and before.idle_since_ms == state.idle_since_ms:
            self.keys[ref] = state
        elif state.idle_since_ms < 0:
            self.keys[ref] = state
            idle.pop(ref, None)
        else:
            if before is not None:
                del self.keys[ref]
            self.keys[ref] = state
            idle[ref] = None
            idle.move_to_end(ref)
            if len(idle) == 1:
                self.idle_look_ms = state.idle_since_ms + limits.KEY_MEMORY_MS
        self._watch_grace(state)

    def drop_key_state(self, ref: KeyRef) -> None:
        """Forget a key, or leave its state to follow from its lease."""
        del self.keys[ref]
        self.indexes.idle.pop(ref, None)
        self.deadlines.graces.discard(ref)

    def _watch_grace(self, state: KeyState) -> None:
        """A grace period matters to the reaper only while somebody waits for its end."""
        if state.blocked_until_ms and self.key_queue(state.tenant, state.key) is not None:
            ref = (state.tenant, state.key)
            self.deadlines.graces.push(ref, state.blocked_until_ms, self.time_ms)

    def lease_deadline(self, lease: Lease) -> ClusterTime:
        """When the lease expires unless its session is renewed and, after a hand-off, the grant is
        claimed."""
        deadline_ms = self.sessions[(lease.tenant, lease.session_id)].deadline_ms
        claim_deadline_ms = lease.claim_deadline_ms
        return claim_deadline_ms if 0 < claim_deadline_ms < deadline_ms else deadline_ms

    def rebuild_derived(self) -> None:
        """Build indexes and calendars from the primary state."""
        self.indexes = build_indexes(self)
        self.deadlines = Deadlines(self)
        self.deadlines.rebuild()

    # Queries

    def due(self, now_ms: ClusterTime, limit: int) -> list[ExpireItem]:
        """What seems to be due at ``now_ms``, for the reaper to propose: at most ``limit`` items. The
        same items are named again until they have ended or were renewed."""
        return self.deadlines.due(now_ms, limit)

    def next_deadline(self) -> ClusterTime | None:
        """When to ask due() again: not later than the earliest deadline, or some time that is past if that is
        past; later than the time for which due() has just found nothing. None if nothing can become due."""
        return self.deadlines.next_ms()

    def has_live_sessions(self) -> bool:
        """Whether time matters to anybody: while there are sessions, cluster time must go on."""
        return bool(self.sessions)

    def grant_of(self, lease: Lease) -> Grant:
        """A lease with its session."""
        return Grant(lease, self.sessions[(lease.tenant, lease.session_id)])

    def holders(self, tenant: TenantId, key: Key) -> list[Grant]:
        """The key's leases, also unclaimed ones and expired ones that no command has met yet."""
        return [self.grant_of(lease) for lease in self.leases_of(tenant, key)]

    def queue(self, tenant: TenantId, key: Key) -> list[Waiter]:
        """The key's waiters, first come first."""
        queue = self.key_queue(tenant, key)
        return [self.waiters[ref] for ref in queue.in_order()] if queue is not None else []

    def session(self, tenant: TenantId, session_id: SessionId) -> Session | None:
        return self.sessions.get((tenant, session_id))

    def leases_in(self, tenant: TenantId, session_id: SessionId) -> list[Lease]:
        """The leases of a session in the order of their grants."""
        ref = (tenant, session_id)
        session = self.sessions.get(ref)
        if session is None:
            return []
        if session.private:
            return [self.leases[ref]] if ref in self.leases else []
        return [self.leases[(tenant, lease_id)] for lease_id in self.indexes.session_leases.get(ref, ())]

    def lease_count(self, tenant: TenantId, session_id: SessionId) -> int:
        """How many leases a session holds."""
        ref = (tenant, session_id)
        session = self.sessions.get(ref)
        if session is None:
            return 0
        if session.private:
            return 1 if ref in self.leases else 0
        return len(self.indexes.session_leases.get(ref, ()))

    def record(self, tenant: TenantId, key: Key) -> Record | None:
        return self.records.get((tenant, key))

    def key_state(self, tenant: TenantId, key: Key) -> KeyState | None:
        """The key's state, whether it is stored or follows from its lease."""
        state = self.keys.get((tenant, key))
        if state is not None:
            return state
        lease = self.holder(tenant, key)
        if lease is None:
            return None
        alone = lease.mode != "shared"
        guard = Guard(lease.token, 0, 0, lease.lease_id, lease.owner) if alone else Guard(lease.token)
        return KeyState(lease.tenant, lease.key, lease.mode, 0, {lease.slot: guard}, None, 0, -1)

    def list_leases(
        self, tenant: TenantId, prefix: str, after: Key | None, owner: str | None, limit: int
    ) -> tuple[list[Grant], Key | None]:
        """One page of leases in the order of their keys' UTF-8 bytes, and the key to go on after (None
        on the last page). All leases of a key stand on one page, so the last key of a page may make it longer
        than ``limit``. Looks at every held key of the tenant once."""
        held = self.indexes.holders.get(tenant, {})
        # Comparing strings by code points and their UTF-8 by bytes gives the same order.
        keys = (
            key
            for key in held
            if key.startswith(prefix)
            and (after is None or key > after)
            and (owner is None or any(lease.owner == owner for lease in self.leases_of(tenant, key)))
        )
        grants: list[Grant] = []
        last: Key | None = None
        for key in heapq.nsmallest(limit + 1, keys):
            if len(grants) >= limit:
                return grants, last
            grants += [g for g in self.holders(tenant, key) if owner is None or g.lease.owner == owner]
            last = key
        return grants, None

    def granted(self, tenant: TenantId, scope: str, request_id: RequestId) -> list[Grant] | None:
        """The live grants of a request, None if it has none."""
        fate = self.indexes.fate(tenant, scope, request_id)
        return [self.grant_of(fate)] if isinstance(fate, Lease) else None
