"""What must hold in every lease table between two commands, each with a sentence for the case that it
does not.

Checked when a snapshot is loaded and throughout the tests. A violation is a bug or damage, never the
fault of a caller.
"""

from typing import NoReturn

from tenure_cluster.lease import audit_trail, credentials, limits, restoration
from tenure_cluster.lease.indexes import SessionRef, build_indexes, waiter_ref
from tenure_cluster.lease.room import go_together, has_room, present_family
from tenure_cluster.lease.step import InvariantBroken
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import (
    NO_LIFE,
    FencingToken,
    Key,
    KeyState,
    Lease,
    Session,
    Tenant,
    TenantId,
    Waiter,
)
from tenure_cluster.lease.usage import count_usage


def check_table(table: LeaseTable) -> None:
    """Check state and indexes. Raises InvariantBroken with the first violation found."""
    check_state(table)
    check_indexes(table)


def check_state(table: LeaseTable) -> None:
    """Check the primary state alone, with the indexes taken as built from it."""
    waiting = {(w.tenant, w.session_id) for w in table.waiters.values() if w.private}
    for session in table.sessions.values():
        _check_session(table, session, waiting)
    for tenant, held in table.indexes.holders.items():
        for key in held:
            _check_holders(table, tenant, key)
    tokens: dict[TenantId, dict[FencingToken, Key]] = {}
    for ref, lease in table.leases.items():
        if ref != (lease.tenant, lease.lease_id):
            _broken(f"lease {lease.lease_id!r} stands under another id")
        fault = _lease_fault(table, lease)
        if fault:
            _broken(f"lease {lease.lease_id!r} {fault}")
        key = tokens.setdefault(lease.tenant, {}).setdefault(lease.token, lease.key)
        if key != lease.key:
            _broken("a token is held twice")
    for state in table.keys.values():
        _check_key(table, state)
    _check_waiters(table)
    _check_records(table)
    _check_memories(table)
    _check_sets(table)
    fault = (
        credentials.faults(table.credentials)
        or audit_trail.faults(table.audit, table.time_ms)
        or restoration.fault(table.restoration, table.tenants)
    )
    if fault:
        _broken(fault)


def check_indexes(table: LeaseTable) -> None:
    """Check that every derived lookup is what the primary state yields."""
    if table.usage != count_usage(table):
        _broken("the counts of what tenants have differ from the state")
    fault = audit_trail.derived_faults(table.audit)
    if fault:
        _broken(fault)
    derived = build_indexes(table)
    for name in derived.__slots__:
        if name == "queues":
            continue
        kept, built = getattr(table.indexes, name), getattr(derived, name)
        if kept != built:
            _broken(f"index {name} differs from the state")
        if name == "idle" and (list(kept) != list(built) or (kept and kept.first() != built.first())):
            _broken("index idle is in another order than the state")
        if name in ("session_leases", "session_waiters") and any(
            list(kept[ref]) != list(built[ref]) for ref in built
        ):
            _broken(f"index {name} is in another order than the state")
    kept_queues = {(t, k): q for t, of in table.indexes.queues.items() for k, q in of.items()}
    built_queues = {(t, k): q for t, of in derived.queues.items() for k, q in of.items()}
    if kept_queues.keys() != built_queues.keys():
        _broken("index queues has other keys than the waiters")
    for ref, queue in kept_queues.items():
        built_queue = built_queues[ref]
        if queue.tickets != built_queue.tickets or queue.polled != built_queue.polled:
            _broken(f"the queue of key {ref[1]!r} differs from its waiters")


def _broken(what: str) -> NoReturn:
    raise InvariantBroken(what)


def _check_holders(table: LeaseTable, tenant: TenantId, key: Key) -> None:
    leases = list(table.leases_of(tenant, key))
    mode = leases[0].mode
    if any(lease.mode != mode for lease in leases):
        _broken(f"key {key!r} is held in two modes")
    if mode == "exclusive" and len(leases) > 1:
        _broken(f"key {key!r} has two exclusive holders")
    if mode == "shared" and len({lease.token for lease in leases}) > 1:
        _broken(f"key {key!r} has shared holders with different tokens")
    if mode == "permit":
        # A pool that was made smaller keeps the holders that it had.
        slots = limits.HOLDERS_PER_KEY_MAX
        taken = {lease.slot for lease in leases}
        if len(taken) < len(leases) or not all(0 <= slot < slots for slot in taken):
            _broken(f"key {key!r} has a slot that is taken twice or is beyond all pools")
        if len({lease.token for lease in leases}) < len(leases):
            _broken(f"key {key!r} has two permits with one token")
    elif any(lease.slot for lease in leases):
        _broken(f"key {key!r} is held in a slot and is no pool")


def _counters(table: LeaseTable, tenant: str) -> Tenant:
    counters = table.tenants.get(tenant)
    if counters is None:
        _broken(f"tenant {tenant!r} has no counters")
    return counters


def _check_session(table: LeaseTable, session: Session, waiting: set[SessionRef]) -> None:
    ref = (session.tenant, session.session_id)
    if session.ttl_ms <= 0:
        _broken(f"session {session.session_id!r} has no TTL")
    if session.closed and session.deadline_ms > table.time_ms:
        _broken(f"session {session.session_id!r} is closed and goes on")
    if ref in table.expired_sessions:
        _broken(f"session {session.session_id!r} is live and remembered as expired")
    if session.private and bool(table.lease_count(*ref)) == (ref in waiting):
        _broken(f"private session {session.session_id!r} has not exactly one lease or waiter")


def _lease_fault(table: LeaseTable, lease: Lease) -> str:
    session = table.sessions.get((lease.tenant, lease.session_id))
    if session is None:
        return "has no session"
    if session.private != lease.private:
        return "and its session disagree on being private"
    counters = _counters(table, lease.tenant)
    if not 0 < lease.token <= counters.last_token:
        return "has a token that was never minted"
    if not 0 < lease.revision <= counters.revision:
        return "has a revision that never was"
    if lease.granted_ms > table.time_ms:
        return "was granted in the future"
    if not 0 <= lease.claim_deadline_ms <= table.time_ms + limits.CLAIM_WINDOW_MS:
        return "has a claim window that is too long"
    fault = _life_fault(table, lease, session) if lease.life is not None else ""
    if fault:
        return fault
    state = table.keys.get((lease.tenant, lease.key))
    if state is None and lease.mode == "permit":
        return "is of a pool without state"
    if state is not None:
        guard = state.guards.get(lease.slot)
        if guard is None or guard.floor != lease.token:
            return "is not at the floor of its guard"
        alone = lease.mode != "shared"
        if (guard.lease_id, guard.owner) != ((lease.lease_id, lease.owner) if alone else ("", "")):
            return "is not the grant that its guard knows"
        if state.mode != lease.mode:
            return "is in another mode than its key"
        if state.blocked_until_ms and lease.mode == "exclusive":
            return "holds a key in its grace period"
    return ""


def _life_fault(table: LeaseTable, lease: Lease, session: Session) -> str:
    """What is wrong with how a lease rests, or tells of its progress."""
    life = lease.life or NO_LIFE
    if life.progress is not None and life.progress.at_ms > table.time_ms:
        return "told of progress in the future"
    runs = life.progress_ms > 0 and not lease.parked and not lease.claim_deadline_ms
    if runs != (life.progress_deadline_ms > 0):
        return "has no term for its progress, or one that nobody demands"
    if life.progress_deadline_ms > table.time_ms + life.progress_ms:
        return "has a term for its progress that is too long"
    if life.reached is not None and len(life.reached) > limits.PROGRESS_STEPS_MAX:
        return "remembers more steps than it may"
    if lease.parked:
        if lease.mode == "shared" or lease.in_set or lease.claim_deadline_ms:
            return "is parked and can't be"
        if not session.private or life.scope is None:
            return "is parked, and its session or its request is not known"
    return ""


def _check_key(table: LeaseTable, state: KeyState) -> None:
    name = f"key {state.key!r}"
    counters = _counters(table, state.tenant)
    if (state.idle_since_ms >= 0) == table.in_use(state.tenant, state.key):
        _broken(f"{name} is marked idle and in use, or neither")
    if state.idle_since_ms > table.time_ms:
        _broken(f"{name} became idle in the future")
    if not state.guards and table.holder(state.tenant, state.key) is not None:
        _broken(f"{name} is held and has no guard")
    for guard in state.guards.values():
        if not 0 <= guard.last_token <= guard.floor <= counters.last_token:
            _broken(f"{name} has a guard beyond the tokens that were minted")
        if guard.owner and not guard.lease_id:
            _broken(f"{name} has a guard with an owner and no grant")
    if state.guard_mode is None and any(guard.last_token for guard in state.guards.values()):
        _broken(f"{name} was written in no mode")


def _check_waiters(table: LeaseTable) -> None:
    tickets: set[int] = set()
    poll_deadline_ms = 0
    for ref, waiter in table.waiters.items():
        name = f"waiter {waiter.request_id!r}"
        if ref != waiter_ref(waiter):
            _broken(f"{name} stands under another request")
        session = table.sessions.get((waiter.tenant, waiter.session_id))
        if session is None or session.private != waiter.private:
            _broken(f"{name} has no session of its kind")
        if waiter.private and (
            waiter.session_id != waiter.lease_ids[0] or session.deadline_ms != waiter.poll_deadline_ms
        ):
            _broken(f"{name} and its private session disagree")
        if not waiter.keys or len(set(waiter.keys)) != len(set(waiter.lease_ids)):
            _broken(f"{name} has not one lease id for each key")
        if not 0 < waiter.ticket <= table.last_ticket or waiter.ticket in tickets:
            _broken(f"{name} has a ticket that was not given to it")
        tickets.add(waiter.ticket)
        if not poll_deadline_ms <= waiter.poll_deadline_ms <= table.time_ms + limits.WAITER_SILENCE_MS:
            _broken(f"{name} is out of the order of polling")
        poll_deadline_ms = waiter.poll_deadline_ms
    for tenant, queues in table.indexes.queues.items():
        for key, queue in queues.items():
            _check_queue(table, tenant, key, [table.waiters[ref] for ref in queue.in_order()])


def _check_queue(table: LeaseTable, tenant: TenantId, key: Key, waiters: list[Waiter]) -> None:
    """Nobody waits for what is free, and only those wait together that go together."""
    family = present_family(table, tenant, key)
    assert family is not None
    if not all(go_together(family, (waiter.mode, waiter.slots)) for waiter in waiters):
        _broken(f"key {key!r} is waited for in modes that don't go together")
    state = table.keys.get((tenant, key))
    blocked = state is not None and state.blocked_until_ms > 0
    exhausted = _counters(table, tenant).last_token >= limits.TOKEN_MAX
    first = waiters[0]
    alone = len(first.keys) == 1
    session = table.sessions[(tenant, first.session_id)]
    over = min(first.poll_deadline_ms, session.deadline_ms) <= table.time_ms
    if (
        alone
        and not over
        and has_room(table, tenant, key, (first.mode, first.slots))
        and not blocked
        and not exhausted
    ):
        _broken(f"waiter {first.request_id!r} waits for a key that is free")


def _check_records(table: LeaseTable) -> None:
    for record in table.records.values():
        name = f"record of key {record.key!r}"
        state = table.keys.get((record.tenant, record.key))
        if state is None or state.guard_mode is None:
            _broken(f"{name} has no guard that was written")
        if record.token > max(guard.floor for guard in state.guards.values()):
            _broken(f"{name} has a token above its guard's floor")
        if not 0 < record.revision <= _counters(table, record.tenant).revision:
            _broken(f"{name} has a revision that never was")


def _check_memories(table: LeaseTable) -> None:
    for memory in (table.ended, table.expired_sessions, table.abandoned, table.operations):
        fault = memory.fault(table.time_ms)
        if fault:
            _broken(fault)
    for ref, ended in table.ended.items():
        if ref in table.leases or (ref in table.sessions and not ended.in_set):
            _broken(f"lease {ended.lease_id!r} is live and remembered as ended")
    indexes = table.indexes
    fates = sum(map(len, indexes.requests.values())) + sum(map(len, indexes.scoped_requests.values()))
    alone = [row for memory in (table.leases, table.ended) for row in memory.values() if not row.in_set]
    if fates != len(alone) + len(table.abandoned):
        _broken("a request has two fates")
    for request in table.waiters:
        if indexes.fate(*request) is not None or request in table.sets:
            _broken(f"request {request[2]!r} waits and has a fate")


def _check_sets(table: LeaseTable) -> None:
    members = 0
    for ref, key_set in table.sets.items():
        name = f"set of request {key_set.request_id!r}"
        if ref != (key_set.tenant, key_set.scope, key_set.request_id):
            _broken(f"{name} stands under another request")
        if table.indexes.fate(*ref) is not None:
            _broken(f"{name} has another fate too")
        known = 0
        for key, lease_id in zip(key_set.keys, key_set.lease_ids, strict=True):
            member = (key_set.tenant, lease_id)
            row = table.leases.get(member) or table.ended.get(member)
            if row is not None and (not row.in_set or row.key != key):
                _broken(f"{name} names a lease that is not of it")
            known += row is not None
        if not known:
            _broken(f"{name} has no lease that is known")
        members += known
    of_sets = [row for memory in (table.leases, table.ended) for row in memory.values() if row.in_set]
    if members != len(of_sets):
        _broken("a lease of a set belongs to none")
