"""Leases that change hands or rest: handover to another session, parking, and taking up again.

A handover is one entry: the old lease and its token end, the successor's begins, and nobody else can come
between. The successor's session must not come to wait for itself by that, neither directly nor through
others.

A parked lease waits for a human: it leaves its session, because nobody will send heartbeats for it, and is
kept by a private session of its own until a limit. Its id stays, so whoever keeps it can take the lease up
again; then it gets a new token, so that nothing written before the pause can come after it. Both name the
token, so that a request which was delayed on its way can't park a lease that was taken up since. The scope of
the request that made the lease is kept with it (see Lease.scope), because its session is another now. So is
the session that it was parked from: that one can't wait for the key, because it would wait for itself.
"""

from msgspec.structs import replace

from tenure_cluster.lease.commands import Handover, Park, Unpark
from tenure_cluster.lease.deadlock import find_cycle_through
from tenure_cluster.lease.granting import EMPTY_METADATA, Wanted, claim_lease, grant, raise_floor
from tenure_cluster.lease.holding import end_lease, holder_of, serve
from tenure_cluster.lease.liveness import waiter_dead
from tenure_cluster.lease.results import (
    Deadlock,
    HandedOver,
    Held,
    Invalid,
    Lost,
    ModeConflict,
    Parked,
    Result,
    StaleToken,
    TokensExhausted,
    Unparked,
    Unsupported,
)
from tenure_cluster.lease.room import PERMIT, SHARED
from tenure_cluster.lease.sessions import DURATION_MS_MAX, find_lease, find_session
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import NO_LIFE, Lease, Session, Waiter


def handover(step: Step, asked: Handover) -> Result:
    """End a lease in favour of another session's."""
    table = step.table
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return _handed_over_before(step, asked) or lease
    tenant, key = lease.tenant, lease.key
    serve(step, tenant, key)
    session = find_session(step, tenant, asked.to_session_id)
    if not isinstance(session, Session):
        return session
    refusal = _may_not_have(step, lease, session)
    if refusal is not None:
        return refusal
    waiter = _own_waiter(step, lease, session)
    request_id = waiter.request_id if waiter is not None else asked.new_lease_id
    new_ref, scope = (tenant, asked.new_lease_id), (tenant, session.session_id, request_id)
    if not asked.new_lease_id or table.id_known(new_ref):
        return Invalid("lease_id is in use")
    if waiter is None and (scope in table.waiters or scope in table.sets or table.indexes.fate(*scope)):
        return Invalid("lease_id is in use")
    if not step.tokens_left(tenant):
        return TokensExhausted()
    if waiter is not None:
        table.remove_waiter(waiter)
        step.changed((tenant, key))
    owner = waiter.owner if waiter is not None else session.owner
    slots = table.keys[(tenant, key)].slots if lease.mode == PERMIT else 0
    life = lease.life or NO_LIFE
    wanted = Wanted(lease.mode, slots, owner, lease.grace_ms, lease.metadata, request_id, life.progress_ms)
    end_lease(step, lease, "handed_over", owner)
    given = grant(step, new_ref, key, session.session_id, wanted, 0, same_slot=lease.slot)
    if life.progress is not None:
        given = replace(given, life=replace(given.life or NO_LIFE, progress=life.progress))
        table.replace_lease(new_ref, given)
    serve(step, tenant, key)
    return HandedOver(table.grant_of(given), False)


def _handed_over_before(step: Step, asked: Handover) -> HandedOver | None:
    """The successor's lease, if this very handover was made before and it holds still."""
    table = step.table
    ended = table.ended.get((asked.tenant, asked.lease_id))
    if ended is None or ended.reason != "handed_over":
        return None
    for lease in table.leases_of(asked.tenant, ended.key):
        if lease.session_id == asked.to_session_id:
            return HandedOver(table.grant_of(lease), True)
    return None


def _own_waiter(step: Step, lease: Lease, session: Session) -> Waiter | None:
    """The live waiter that a session has on the lease's key."""
    table = step.table
    for ref in table.indexes.session_waiters.get((session.tenant, session.session_id), ()):
        waiter = table.waiters[ref]
        if lease.key in waiter.keys and not waiter_dead(step, waiter):
            return waiter
    return None


def _may_not_have(step: Step, lease: Lease, session: Session) -> Held | ModeConflict | Deadlock | None:
    """Why a session can't become the holder in this lease's place."""
    table = step.table
    tenant, key = lease.tenant, lease.key
    for other in table.leases_of(tenant, key):
        if other.session_id == session.session_id and other.lease_id != lease.lease_id:
            queue = table.key_queue(tenant, key)
            return Held(key, [holder_of(step, other)], len(queue) if queue is not None else 0, 0)
    waiter = _own_waiter(step, lease, session)
    if waiter is not None and len(waiter.keys) > 1:
        return Deadlock([waiter.owner, key])
    if waiter is not None and waiter.mode != lease.mode:
        return ModeConflict(lease.mode, waiter.mode, key)
    cycle = find_cycle_through(step, tenant, session.session_id, key)
    return Deadlock(cycle) if cycle is not None else None


def park(step: Step, asked: Park) -> Result:
    """Keep a lease until a limit. Asked again, the limit counts anew."""
    if not 0 < asked.limit_ms <= DURATION_MS_MAX:
        return Invalid("limit_ms is above 0")
    table = step.table
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return lease
    if asked.token is not None and asked.token != lease.token:
        return StaleToken(lease.token)
    if lease.mode == SHARED or lease.in_set:
        return Unsupported("a shared lease, or one of a set, can't be parked")
    if lease.claim_deadline_ms:
        lease = claim_lease(step, lease)
    ref = (lease.tenant, lease.lease_id)
    session = table.sessions[(lease.tenant, lease.session_id)]
    life = lease.life or NO_LIFE
    ttl_ms = life.parked_ttl_ms or session.ttl_ms
    parked_from = life.parked_from if lease.private else lease.session_id
    resting = replace(
        life, parked_ttl_ms=ttl_ms, progress_deadline_ms=0, scope=lease.scope, parked_from=parked_from
    )
    parked = replace(lease, session_id=lease.lease_id, life=resting)
    alone = _private_session(step, parked, asked.limit_ms)
    table.sessions.pop(ref, None)
    table.add_session(ref, alone)
    table.move_lease(ref, lease, parked)
    table.watch_session(ref)
    step.tell("parked", parked)
    return Parked(table.grant_of(parked))


def _private_session(step: Step, lease: Lease, ttl_ms: int) -> Session:
    return Session(
        lease.tenant,
        lease.lease_id,
        lease.owner,
        ttl_ms,
        step.now_ms + ttl_ms,
        True,
        EMPTY_METADATA,
        step.wall_ms,
        step.wall_ms,
    )


def _not_parked(step: Step, lease: Lease, asked: Unpark) -> Result:
    """A lease that is not parked is answered as it is. If it has the token yet that it was to be parked with,
    the parking may still come: a new token keeps it out."""
    table, ref = step.table, (lease.tenant, lease.lease_id)
    fixed = lease.mode == SHARED or lease.in_set or lease.claim_deadline_ms
    if asked.token != lease.token or fixed:
        return Unparked(table.grant_of(lease), True)
    if not step.tokens_left(lease.tenant):
        return TokensExhausted()
    taken = replace(lease, token=step.mint(lease.tenant))
    taken = replace(taken, revision=step.tell("unparked", taken))
    table.replace_lease(ref, taken)
    raise_floor(step, taken)
    return Unparked(table.grant_of(taken), False)


def unpark(step: Step, asked: Unpark) -> Result:
    """Take up a parked lease again. One that is not parked is answered as it is."""
    if asked.ttl_ms is not None and (asked.session_id is not None or not 0 < asked.ttl_ms <= DURATION_MS_MAX):
        return Invalid("ttl_ms is above 0, and goes with no session_id")
    table = step.table
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return lease
    if not lease.parked:
        return _not_parked(step, lease, asked)
    if asked.token is not None and asked.token != lease.token:
        return StaleToken(lease.token)
    serve(step, lease.tenant, lease.key)
    tenant, ref = lease.tenant, (lease.tenant, lease.lease_id)
    life = lease.life or NO_LIFE
    session: Session | None = None
    if asked.session_id is not None:
        found = find_session(step, tenant, asked.session_id)
        if not isinstance(found, Session):
            return found
        session = found
        refusal = _may_not_have(step, lease, session)
        if refusal is not None:
            return refusal
        waiter = _own_waiter(step, lease, session)
        if waiter is not None:
            return Deadlock([waiter.owner, lease.key])
    if not step.tokens_left(tenant):
        return TokensExhausted()
    deadline_ms = step.now_ms + life.progress_ms if life.progress_ms else 0
    awake = replace(life, parked_ttl_ms=0, progress_deadline_ms=deadline_ms, parked_from=None, reached=None)
    taken = replace(lease, token=step.mint(tenant), life=awake)
    taken = replace(taken, revision=step.tell("unparked", taken))
    table.remove_session(ref)
    if session is None:
        table.add_session(ref, _private_session(step, taken, asked.ttl_ms or life.parked_ttl_ms))
        table.replace_lease(ref, taken)
        table.watch_session(ref)
    else:
        taken = replace(taken, session_id=session.session_id)
        table.move_lease(ref, lease, taken)
    raise_floor(step, taken)
    return Unparked(table.grant_of(taken), False)
