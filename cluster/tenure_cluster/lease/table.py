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

from collections.abc import Collection, MutableMapping
from operator import attrgetter
from typing import Any, Final

from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_trail import AuditTrail
from tenure_cluster.lease.commands import ExpireItem
from tenure_cluster.lease.credentials import Credential
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
from tenure_cluster.lease.overlay import Overlay
from tenure_cluster.lease.quota import TenantQuota
from tenure_cluster.lease.restoration import Restoration
from tenure_cluster.lease.results import Grant
from tenure_cluster.lease.types import (
    ClusterTime,
    EndedLease,
    Guard,
    Key,
    KeySet,
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
from tenure_cluster.lease.usage import UsageCounts, count_usage

FREEZING: Final = frozenset({"sessions", "leases", "keys", "waiters", "records"})
"""Sections that may be too large to be copied at once."""


SHARED_MAX: Final = 1_000
"""Most different TTLs, and most different owners, that are known for sharing."""


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
        self.rules = 0
        """By which commands are applied; see rules.py."""
        self.tenants: dict[TenantId, Tenant] = {}
        self.sessions: MutableMapping[SessionRef, Session] = {}
        self.leases: MutableMapping[LeaseRef, Lease] = {}
        self.keys: MutableMapping[KeyRef, KeyState] = {}
        self.waiters: MutableMapping[WaiterRef, Waiter] = {}
        self.records: MutableMapping[KeyRef, Record] = {}
        self.sets: dict[WaiterRef, KeySet] = {}
        self.credentials: dict[str, Credential] = {}
        self.quotas: dict[TenantId, TenantQuota] = {}
        self.audit = AuditTrail()
        self.audit_chain, self.audit_records = self.audit.chain, self.audit.records
        self.audit_repeats = self.audit.repeats
        self.restoration: Restoration | None = None  # of a state that was put back to a backup, for good
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
        self.usage = UsageCounts()
        self.idle_look_ms: ClusterTime = 0
        """No idle key is over before this time. Not state: it only saves looking."""
        self.deadlines = Deadlines(self)
        self._ttls: dict[int, int] = {}
        self._owners: dict[str, str] = {}
        self.frozen: dict[str, bool] = {}
        """Sections that are overlays, each with whether the snapshot that it stands still for is done. Not
        state."""

    # Snapshots

    def rows_of(self, section: str, *, freeze: bool) -> Collection[Any]:
        """The rows of a section as they are now, whatever is changed later. With ``freeze`` a large one is
        not copied but stands still until release(); only one snapshot at a time can have that."""
        present = getattr(self, section)
        if section not in FREEZING or not freeze:
            return list(present.values())
        self.frozen[section] = False
        setattr(self, section, Overlay(present))
        rows: Collection[Any] = present.values()
        return rows

    def release(self) -> None:
        """The snapshot is done: what was changed meanwhile is brought in by thaw()."""
        self.frozen = dict.fromkeys(self.frozen, True)

    def thaw(self, steps: int) -> None:
        """Bring up to so many changes into the sections that were frozen."""
        for section, done in list(self.frozen.items()):
            overlay = getattr(self, section)
            if not done or steps <= 0:
                continue
            steps = overlay.merge(steps)
            if steps > 0:
                setattr(self, section, overlay.base)
                del self.frozen[section]

    # Sessions

    def shared_ttl(self, ttl_ms: int) -> int:
        """The same number, as one object for all sessions: most have one of a few TTLs."""
        if len(self._ttls) > SHARED_MAX:
            self._ttls.clear()
        return self._ttls.setdefault(ttl_ms, ttl_ms)

    def shared_owner(self, owner: str) -> str:
        """The same label, as one object for all its leases: an owner often has many."""
        if len(self._owners) > SHARED_MAX:
            self._owners.clear()
        return self._owners.setdefault(owner, owner)

    def add_session(self, ref: SessionRef, session: Session) -> None:
        self.sessions[ref] = session
        if not session.private:
            self.usage.of(session.tenant).sessions += 1

    def replace_session(self, ref: SessionRef, session: Session) -> None:
        self.sessions[ref] = session

    def watch_session(self, ref: SessionRef) -> None:
        """From now on the session's own deadline is what ends it."""
        self.deadlines.sessions.push(ref, self.sessions[ref].deadline_ms, self.time_ms)

    def close_session(self, ref: SessionRef, session: Session) -> None:
        """Replace a session by one whose deadline has moved back to this entry."""
        self.sessions[ref] = session
        self.watch_session(ref)
        for waiting in self.indexes.session_waiters.get(ref, ()):
            for key in self.waiters[waiting].keys:
                self.indexes.queues[ref[0]][key].sessions_until_ms = 0

    def remove_session(self, ref: SessionRef) -> None:
        if not self.sessions[ref].private:
            self.usage.of(ref[0]).sessions -= 1
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
            or ref in self.indexes.set_members
        )

    # Leases

    def add_lease(self, ref: LeaseRef, lease: Lease) -> None:
        self.leases[ref] = lease
        self.usage.of(lease.tenant).leases += 1
        self.indexes.add_lease(lease)
        if lease.claim_deadline_ms:
            self.deadlines.claims.push(ref, lease.claim_deadline_ms, self.time_ms)
        self._watch_progress(ref, lease)

    def replace_lease(self, ref: LeaseRef, lease: Lease) -> None:
        """The lease of the same id with other contents; its key, session and request are the same."""
        before = self.leases.get(ref)
        self.leases[ref] = lease
        self.indexes.add_lease(lease)
        if before is None or before.life is None or not before.life.progress_deadline_ms:
            self._watch_progress(ref, lease)  # else it is watched: its deadline only moves on

    def move_lease(self, ref: LeaseRef, lease: Lease, moved: Lease) -> None:
        """Put a lease into another session; its key and its request with its scope are the same. It becomes
        the last in the order of grants, as it is the last of its new session."""
        self.indexes.leave_session(lease)
        self.indexes.leave_key(lease)
        del self.leases[ref]
        self.replace_lease(ref, moved)

    def _watch_progress(self, ref: LeaseRef, lease: Lease) -> None:
        life = lease.life
        if life is not None and life.progress_deadline_ms:
            self.deadlines.progress.push(ref, life.progress_deadline_ms, self.time_ms)

    def remove_lease(self, ref: LeaseRef, lease: Lease, ended: EndedLease) -> None:
        """Replace a lease by the memory of it."""
        del self.leases[ref]
        self.usage.of(lease.tenant).leases -= 1
        self.deadlines.claims.discard(ref)
        self.deadlines.progress.discard(ref)
        self.indexes.remove_lease(lease, ended)
        self.ended.remember(ref, ended)
        if self.ended.full():
            self.forget_ended()

    def forget_ended(self) -> None:
        """Forget the lease that ended longest ago, and its request."""
        ended = self.ended.forget_oldest()
        ref = (ended.tenant, ended.session_id, ended.request_id)
        if not ended.in_set:
            self.indexes.forget_fate(*ref)
            return
        members = [(ended.tenant, lease_id) for lease_id in self.sets[ref].lease_ids]
        if not any(member in self.leases or member in self.ended for member in members):
            self.indexes.remove_set(self.sets.pop(ref))

    def add_set(self, ref: WaiterRef, key_set: KeySet) -> None:
        """Note that a request has been granted these leases together."""
        self.sets[ref] = key_set
        self.indexes.add_set(ref, key_set)

    def set_of(self, lease: Lease) -> KeySet | None:
        """The set that a lease was granted in, if it was."""
        if not lease.in_set:
            return None
        return self.sets[self.indexes.set_members[(lease.tenant, lease.lease_id)]]

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

    def together(self, lease: Lease) -> list[Lease]:
        """What is there of the set that a lease was granted in, in the order of the keys; else the lease
        alone."""
        key_set = self.set_of(lease)
        if key_set is None:
            return [lease]
        members = [self.leases.get((lease.tenant, lease_id)) for lease_id in key_set.lease_ids]
        return [member for member in members if member is not None]

    # Waiters

    def add_waiter(self, waiter: Waiter) -> None:
        ref = waiter_ref(waiter)
        self.waiters[ref] = waiter
        self.usage.of(waiter.tenant).waiters += len(waiter.keys)
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

    def replace_waiter(self, waiter: Waiter) -> None:
        """The waiter of the same request with other wishes, where it stands."""
        self.waiters[waiter_ref(waiter)] = waiter

    def replace_polled_waiter(self, waiter: Waiter) -> None:
        """The waiter with a later poll deadline, now the last in the order of polling."""
        ref = waiter_ref(waiter)
        del self.waiters[ref]
        self.waiters[ref] = waiter
        self.indexes.waiter_polled(waiter)

    def remove_waiter(self, waiter: Waiter) -> None:
        ref = waiter_ref(waiter)
        del self.waiters[ref]
        self.usage.of(waiter.tenant).waiters -= len(waiter.keys)
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

    def put_record(self, record: Record) -> None:
        """Store the record of a key, in place of the one that it has."""
        ref = (record.tenant, record.key)
        self.usage.put_record(record, self.records.get(ref))
        self.records[ref] = record

    def remove_record(self, record: Record) -> None:
        del self.records[(record.tenant, record.key)]
        self.usage.remove_record(record)

    def put_key_state(self, state: KeyState) -> None:
        """Store the state of a key. One that has just become idle is the last in the order of idleness."""
        ref = (state.tenant, state.key)
        idle = self.indexes.idle
        before = self.keys.get(ref)
        if before is not None and before.idle_since_ms == state.idle_since_ms:
            self.keys[ref] = state
        elif state.idle_since_ms < 0:
            self.keys[ref] = state
            idle.leave(ref)
        else:
            if before is not None:
                del self.keys[ref]
            self.keys[ref] = state
            idle.join(ref, None)
            if len(idle) == 1:
                self.idle_look_ms = state.idle_since_ms + limits.KEY_MEMORY_MS
        self._watch_grace(state)

    def drop_key_state(self, ref: KeyRef) -> None:
        """Forget a key, or leave its state to follow from its lease."""
        del self.keys[ref]
        self.indexes.idle.leave(ref)
        self.deadlines.graces.discard(ref)

    def _watch_grace(self, state: KeyState) -> None:
        """A grace period matters to the reaper only while somebody waits for its end."""
        if state.blocked_until_ms and self.key_queue(state.tenant, state.key) is not None:
            ref = (state.tenant, state.key)
            self.deadlines.graces.push(ref, state.blocked_until_ms, self.time_ms)

    def lease_deadline(self, lease: Lease) -> ClusterTime:
        """When the lease expires unless its session is renewed and, after a hand-off, the grant is
        claimed and, where that is demanded, there is progress."""
        deadline_ms = self.sessions[(lease.tenant, lease.session_id)].deadline_ms
        if 0 < lease.claim_deadline_ms < deadline_ms:
            deadline_ms = lease.claim_deadline_ms
        life = lease.life
        if life is not None and 0 < life.progress_deadline_ms < deadline_ms:
            deadline_ms = life.progress_deadline_ms
        return deadline_ms

    def rebuild_derived(self) -> None:
        """Build indexes and calendars from the primary state."""
        self.indexes = build_indexes(self)
        self.usage = count_usage(self)
        self.audit.rebuild()
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
        """Whether time matters to anybody: while there are sessions, and until a restore is settled."""
        return bool(self.sessions) or (self.restoration is not None and not self.restoration.settled)

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
        of_session = self.indexes.session_leases.get(ref)
        if of_session is not None:
            found = [self.leases.get((tenant, lease_id)) for lease_id in of_session]
            return [lease for lease in found if lease is not None]
        return [self.leases[ref]] if session.private and ref in self.leases else []

    def lease_count(self, tenant: TenantId, session_id: SessionId) -> int:
        """How many leases a session holds."""
        ref = (tenant, session_id)
        session = self.sessions.get(ref)
        if session is None:
            return 0
        of_session = self.indexes.session_leases.get(ref)
        if of_session is not None:
            return len(of_session)
        return 1 if session.private and ref in self.leases else 0

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
        than ``limit``. Looks at no more than LISTING_STEPS_MAX keys, so a page of one owner's may be shorter,
        even empty, and not be the last."""
        ordered = self.indexes.held_keys.get(tenant)
        if ordered is None:
            return [], None
        on = after is not None and after >= prefix
        grants: list[Grant] = []
        last: Key | None = None
        keys = ordered.after(after) if on else ordered.starting(prefix)
        for looked_at, key in enumerate(keys):
            if not key.startswith(prefix):
                break
            if len(grants) >= limit or looked_at >= limits.LISTING_STEPS_MAX:
                return grants, last
            last = key
            grants += [g for g in self.holders(tenant, key) if owner is None or g.lease.owner == owner]
        return grants, None

    def granted(self, tenant: TenantId, scope: str, request_id: RequestId) -> list[Grant] | None:
        """The present grants of a request, None if it has none or one of its set is over."""
        fate = self.indexes.fate(tenant, scope, request_id)
        if isinstance(fate, Lease):
            return [self.grant_of(fate)]
        key_set = self.sets.get((tenant, scope, request_id))
        if key_set is None:
            return None
        leases = [self.leases.get((tenant, lease_id)) for lease_id in key_set.lease_ids]
        present = [self.grant_of(lease) for lease in leases if lease is not None]
        return present if len(present) == len(leases) else None
