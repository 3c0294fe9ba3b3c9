"""Sessions and leases as their holders keep and end them: open, renew, close, release, break."""

from typing import Final

from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Break, CloseSession, OpenSession, ProgressNote, Release, Renew
from tenure_cluster.lease.granting import EMPTY_METADATA, raise_all_floors
from tenure_cluster.lease.holding import bury, end_lease, expire_lease, serve
from tenure_cluster.lease.indexes import LeaseRef
from tenure_cluster.lease.liveness import drop_dead, drop_waiter, lease_live, session_live
from tenure_cluster.lease.results import (
    Broken,
    BrokenLease,
    Grant,
    Invalid,
    Lost,
    NoSession,
    Released,
    Renewed,
    Result,
    SessionClosed,
    SessionExpired,
    SessionIs,
    TokensExhausted,
)
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import (
    NO_LIFE,
    KeySet,
    Lease,
    LeaseLife,
    Progress,
    Session,
    SessionId,
    TenantId,
)

DURATION_MS_MAX: Final = 2**53 - 1
"""Greatest TTL that the machine takes: any sum with a cluster time can still be encoded. What callers may ask
for is bounded much lower, by the configuration."""


def find_session(step: Step, tenant: TenantId, session_id: SessionId) -> Session | NoSession | SessionExpired:
    """The live explicit session of that id, or the refusal. Nothing can be acquired in a private one."""
    table = step.table
    ref = (tenant, session_id)
    session = table.sessions.get(ref)
    if session is None:
        return SessionExpired() if ref in table.expired_sessions else NoSession()
    if session.private or session.closed:
        return NoSession()
    return session if session_live(step, session) else SessionExpired()


def find_private_lease(step: Step, tenant: TenantId, session_id: SessionId) -> Lease | SessionExpired | None:
    """The live lease of the private session of that id; None if there is no such session. One that waits has
    an id that nobody has been told. One that has expired is remembered by its lease."""
    table = step.table
    ref = (tenant, session_id)
    session = table.sessions.get(ref)
    held = table.leases_in(*ref) if session is not None and session.private else []
    if held:
        return held[0] if lease_live(step, held[0]) else SessionExpired()
    ended = table.ended.get(ref)
    expired = ended is not None and not ended.session_id and ended.reason == "expired"
    return SessionExpired() if expired else None


def find_lease(step: Step, tenant: TenantId, lease_id: str) -> Lease | Lost:
    """The live lease of that id, or why there is none. A lease that is found expired ends here."""
    table = step.table
    ref = (tenant, lease_id)
    lease = table.leases.get(ref)
    if lease is None:
        return lost(step, ref)
    if not lease_live(step, lease):
        expire_lease(step, lease)
        return lost(step, ref)
    return lease


def lost(step: Step, ref: LeaseRef) -> Lost:
    """What is remembered of a lease that is not there."""
    ended = step.table.ended.get(ref)
    return Lost(ended.reason, ended.detail) if ended is not None else Lost("unknown")


def open_session(step: Step, asked: OpenSession) -> Result:
    """Open a session; asked again, answer the present one."""
    if not asked.session_id:
        return Invalid("a session needs an id")
    if not 0 < asked.ttl_ms <= DURATION_MS_MAX:
        return Invalid("a session needs a ttl_ms above 0")
    table = step.table
    tenant = step.counters(asked.tenant).tenant
    ref = (tenant, asked.session_id)
    present = table.sessions.get(ref)
    if present is not None and not present.private:
        if not session_live(step, present):
            return SessionExpired()
        return SessionIs(present, table.lease_count(*ref))
    if ref in table.expired_sessions:
        return SessionExpired()
    if table.id_known(ref):
        return Invalid("session_id is in use")
    session = Session(
        tenant,
        asked.session_id,
        asked.owner,
        asked.ttl_ms,
        step.now_ms + asked.ttl_ms,
        False,
        asked.metadata or EMPTY_METADATA,
        step.wall_ms,
        step.wall_ms,
    )
    table.add_session(ref, session)
    table.watch_session(ref)
    return SessionIs(session, 0)


def renew(step: Step, asked: Renew) -> Result:
    """Renew by a lease or by its session, which may be its private one. The deadline never moves back."""
    if (asked.lease_id is None) == (asked.session_id is None):
        return Invalid("a renewal has either a lease_id or a session_id")
    if asked.progress is not None and asked.lease_id is None:
        return Invalid("progress goes with a lease_id")
    if asked.ttl_ms is not None and not 0 < asked.ttl_ms <= DURATION_MS_MAX:
        return Invalid("a ttl_ms is above 0")
    table = step.table
    if asked.session_id is not None:
        return _renew_session(step, asked.tenant, asked.session_id, asked.ttl_ms)
    assert asked.lease_id is not None
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return lease
    ref = (lease.tenant, lease.session_id)
    session = renewed = table.sessions[ref]
    if not lease.parked:
        renewed = _renewed(step, session, asked.ttl_ms)
        table.replace_session(ref, renewed)
        if _to_be_told(step, session):
            step.tell("renewed", lease)
    if asked.progress is not None:
        for each in table.together(lease):
            _note_progress(step, each, asked.progress)
        lease = table.leases[(lease.tenant, lease.lease_id)]
    return Renewed(Grant(lease, renewed))


def _note_progress(step: Step, lease: Lease, note: ProgressNote) -> None:
    """Keep a note of how far a holder is, with every lease of a set. What it has said already is no
    progress, and neither is a note that comes late, after one of the same step with a greater counter."""
    life = lease.life or NO_LIFE
    if not _is_news(life, note):
        return
    reached = life.reached
    if note.counter:
        others = {step: counter for step, counter in (reached or {}).items() if step != note.step}
        if len(others) >= limits.PROGRESS_STEPS_MAX:
            del others[next(iter(others))]
        reached = {**others, note.step: note.counter}
    deadline_ms = life.progress_deadline_ms
    if deadline_ms:
        deadline_ms = max(deadline_ms, step.now_ms + life.progress_ms)
    progress = Progress(note.step, note.text, note.counter, step.now_ms, step.wall_ms)
    told = replace(life, progress=progress, progress_deadline_ms=deadline_ms, reached=reached)
    noted = replace(lease, life=told)
    step.table.replace_lease((lease.tenant, lease.lease_id), noted)
    step.tell("progress", noted, note.step)


def _is_news(life: LeaseLife, note: ProgressNote) -> bool:
    """Whether a note says anything new. Counters order the notes of a step, also of one that was left since;
    notes without one are taken as they come."""
    known = life.progress
    if known is not None and (known.step, known.text, known.counter) == (note.step, note.text, note.counter):
        return False
    if not note.counter or life.reached is None:
        return True
    reached = life.reached.get(note.step, 0)
    same = known is not None and (known.step, known.counter) == (note.step, note.counter)
    return note.counter > reached or (same and note.counter == reached)


def _renew_session(step: Step, tenant: TenantId, session_id: SessionId, ttl_ms: int | None) -> Result:
    table = step.table
    session: Session | NoSession | SessionExpired
    private = find_private_lease(step, tenant, session_id)
    if isinstance(private, Lease):
        session = table.sessions[(private.tenant, private.session_id)]
    else:
        session = private or find_session(step, tenant, session_id)
    if not isinstance(session, Session):
        return session
    if isinstance(private, Lease) and private.parked:
        return SessionIs(session, 1)
    renewed = _renewed(step, session, ttl_ms)
    table.replace_session((session.tenant, session.session_id), renewed)
    leases = table.lease_count(tenant, session_id)
    if leases <= limits.RENEWED_TOLD_MAX and _to_be_told(step, session):
        for lease in table.leases_in(tenant, session_id):
            step.tell("renewed", lease)
    return SessionIs(renewed, leases)


def _to_be_told(step: Step, session: Session) -> bool:
    """Whether the renewal of a session as it was is told: the first in each second of cluster time. What is
    known of the last renewal is the deadline that it left."""
    last_ms = session.deadline_ms - session.ttl_ms
    return last_ms < step.now_ms and last_ms // 1_000 != step.now_ms // 1_000


def _renewed(step: Step, session: Session, ttl_ms: int | None) -> Session:
    if ttl_ms is None:
        ttl_ms = session.ttl_ms
    deadline_ms = step.now_ms + ttl_ms
    if deadline_ms < session.deadline_ms:
        deadline_ms = session.deadline_ms
    return replace(session, ttl_ms=ttl_ms, deadline_ms=deadline_ms, renewed_wall_ms=step.wall_ms)


def close_session(step: Step, asked: CloseSession) -> Result:
    """End a session with all that it holds and waits for."""
    private = find_private_lease(step, asked.tenant, asked.session_id)
    session: Session | NoSession | SessionExpired
    if isinstance(private, Lease):
        session = step.table.sessions[(private.tenant, private.session_id)]
    else:
        session = private or find_session(step, asked.tenant, asked.session_id)
    if not isinstance(session, Session):
        return session
    table = step.table
    ref = (session.tenant, session.session_id)
    held = table.lease_count(*ref)
    waiters = [table.waiters[waiter_ref] for waiter_ref in table.indexes.session_waiters.get(ref, ())]
    if held + sum(len(waiter.keys) for waiter in waiters) > limits.CLOSE_AT_ONCE_MAX:
        table.close_session(ref, replace(session, closed=True, deadline_ms=step.now_ms))
        return SessionClosed(held)
    # Its waiters first, or it would be granted what it hands on.
    for waiter in waiters:
        drop_waiter(step, waiter, "session_closed")
    for waiter in waiters:
        for key in waiter.keys:
            serve(step, session.tenant, key)
    closed = 0
    for lease in table.leases_in(*ref):
        if (lease.tenant, lease.lease_id) not in table.leases:
            continue  # a grant that nobody claimed, found dead when its key was served
        live = lease_live(step, lease)
        end_lease(step, lease, "session_closed" if live else "expired")
        serve(step, session.tenant, lease.key)
        closed += live
    if not session.private:
        table.remove_session(ref)
    return SessionClosed(closed)


def release(step: Step, asked: Release) -> Result:
    """End a lease by its id, or its set, and hand on."""
    member, table = (asked.tenant, asked.lease_id), step.table
    if (
        asked.whole_set
        and (member in table.leases or member in table.ended)
        and member in table.indexes.set_members
    ):
        return _release_set(step, table.sets[table.indexes.set_members[member]])
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return Released(True) if lease.reason == "released" else lease
    end_lease(step, lease, "released")
    serve(step, lease.tenant, lease.key)
    return Released(False)


def _release_set(step: Step, key_set: KeySet) -> Result:
    """End what is left of a set. What became of it before is told as of its first key."""
    table, tenant = step.table, key_set.tenant
    released = False
    for lease_id in key_set.lease_ids:
        lease = table.leases.get((tenant, lease_id))
        if lease is not None and lease_live(step, lease):
            end_lease(step, lease, "released")
            released = True
    for key in key_set.keys:
        serve(step, tenant, key)
    if released:
        return Released(False)
    ended = next((table.ended[(tenant, i)] for i in key_set.lease_ids if (tenant, i) in table.ended), None)
    reason = ended.reason if ended is not None else "unknown"
    return Released(True) if reason == "released" else Lost(reason)


def break_key(step: Step, asked: Break) -> Result:
    """End every lease of a key, and whatever was issued for it before."""
    table = step.table
    tenant, key = step.counters(asked.tenant).tenant, asked.key
    if table.key_state(tenant, key) is None:
        return Broken([])
    if not step.tokens_left(tenant):
        return TokensExhausted()
    broken: list[BrokenLease] = []
    # What is over is over before the break. Its successors are due only now, and get their grants after it.
    bury(step, tenant, key)
    drop_dead(step, tenant, key)
    for lease in tuple(table.leases_of(tenant, key)):
        end_lease(step, lease, "broken", asked.reason)
        broken.append(BrokenLease(lease.owner, lease.token))
    raise_all_floors(step, tenant, key)
    serve(step, tenant, key)
    return Broken(broken)
