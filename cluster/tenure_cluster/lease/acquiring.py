"""Acquire, claim and abandon: one request from its first try to its end.

A request is known by (tenant, scope, request_id), where the scope is its explicit session or empty. It is
at most one of: waiting, granted, or over and remembered. An acquire first asks which, and only a request
of which nothing is known is tried afresh. So a retry, whatever became of the first try, finds that
outcome and never makes a second grant.
"""

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Abandon, Acquire, Claim
from tenure_cluster.lease.granting import EMPTY_METADATA, claim_all, grant_all
from tenure_cluster.lease.holding import end_lease, expire_lease, holder_of, holders_of, serve, settle
from tenure_cluster.lease.liveness import drop_waiter, lease_live, waiter_dead
from tenure_cluster.lease.memory import AbandonedRequest
from tenure_cluster.lease.queueing import enqueue, refresh, waiting
from tenure_cluster.lease.results import (
    Abandoned,
    Granted,
    Held,
    Invalid,
    Lost,
    ModeConflict,
    Result,
    TokensExhausted,
)
from tenure_cluster.lease.room import (
    PERMIT,
    Family,
    all_step_aside,
    blocked_until,
    go_together,
    has_room,
    may_pass,
    present_family,
)
from tenure_cluster.lease.sessions import DURATION_MS_MAX, find_lease, find_session, lost
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import EndedLease, Key, KeySet, Lease, Session, SessionId, TenantId, Waiter

REQUEST_REUSED = Invalid("request_id was used for another acquire")
LEASE_ID_IN_USE = Invalid("lease_id is in use")


def acquire(step: Step, asked: Acquire) -> Result:
    """Grant, queue, or say who holds."""
    fault = _fault(asked)
    if fault is not None:
        return fault
    table = step.table
    tenant = step.counters(asked.tenant).tenant
    ref = (tenant, asked.session_id or "", asked.request_id)
    fate = table.indexes.fate(*ref)
    if isinstance(fate, Lease):
        return _replay(step, asked, fate)
    if isinstance(fate, EndedLease):
        return Lost(fate.reason, fate.detail) if [fate.key] == asked.keys else REQUEST_REUSED
    if fate is not None:
        return Lost("abandoned")
    key_set = table.sets.get(ref)
    if key_set is not None:
        return _replay_set(step, key_set) if key_set.keys == asked.keys else REQUEST_REUSED
    waiter = table.waiters.get(ref)
    if waiter is not None:
        if waiter.keys != asked.keys:
            return REQUEST_REUSED
        if not waiter_dead(step, waiter):
            return _poll(step, waiter)
        settle(step, tenant, waiter.keys[0])
        if ref in table.waiters:
            # One of more dead waiters than an entry drops in passing. It must not stay beside the new one.
            _leave(step, waiter)
    if asked.session_id is not None:
        session = find_session(step, tenant, asked.session_id)
        if not isinstance(session, Session):
            return session
    return _try(step, tenant, asked)


def _fault(asked: Acquire) -> Invalid | None:
    """What is wrong with the command's shape, if anything."""
    if asked.mode == PERMIT and not 0 < asked.slots <= limits.HOLDERS_PER_KEY_MAX:
        return Invalid(f"slots is not between 1 and {limits.HOLDERS_PER_KEY_MAX}")
    keys, lease_ids = asked.keys, asked.lease_ids
    if not keys or not all(keys):
        return Invalid("an acquire needs a key")
    if len(keys) > 1 and (len(keys) > limits.SET_KEYS_MAX or len(set(keys)) < len(keys)):
        return Invalid(f"keys are more than {limits.SET_KEYS_MAX} or not all different")
    alone = len(keys) == len(lease_ids) == 1
    if (not alone and len(set(lease_ids)) != len(keys)) or not all(lease_ids):
        return Invalid("an acquire needs one lease_id for each key")
    if not asked.request_id:
        return Invalid("an acquire needs a request_id")
    if asked.session_id is None:
        if asked.ttl_ms is None or not 0 < asked.ttl_ms <= DURATION_MS_MAX:
            return Invalid("a private session needs a ttl_ms above 0")
    elif not asked.session_id or asked.ttl_ms is not None:
        return Invalid("an acquire has either a session_id or a ttl_ms")
    if not 0 <= asked.progress_ms <= limits.PROGRESS_MS_MAX:
        return Invalid(f"progress_ms is not between 0 and {limits.PROGRESS_MS_MAX}")
    if not 0 <= asked.grace_ms <= limits.GRACE_MS_MAX:
        return Invalid(f"grace_ms is not between 0 and {limits.GRACE_MS_MAX}")
    return None


def _replay(step: Step, asked: Acquire, lease: Lease) -> Result:
    """The request was granted before: answer that grant. If nobody has claimed it yet, this is the claim."""
    if [lease.key] != asked.keys:
        return REQUEST_REUSED
    settle(step, lease.tenant, lease.key)
    if (lease.tenant, lease.lease_id) not in step.table.leases:
        return lost(step, (lease.tenant, lease.lease_id))
    if lease.claim_deadline_ms:
        return _granted(step, claim_all(step, lease), replayed=False)
    return _granted(step, [lease], replayed=True)


def _replay_set(step: Step, key_set: KeySet) -> Result:
    """The same for a set. Once a lease of it is over, nothing is left of all-or-none, and it is lost."""
    tenant, table = key_set.tenant, step.table
    for key in key_set.keys:
        settle(step, tenant, key)
    leases: list[Lease] = []
    for lease_id in key_set.lease_ids:
        ref = (tenant, lease_id)
        if ref not in table.leases:
            return lost(step, ref)
        leases.append(table.leases[ref])
    if any(lease.claim_deadline_ms for lease in leases):
        return _granted(step, claim_all(step, leases[0]), replayed=False)
    return _granted(step, leases, replayed=True)


def _granted(step: Step, leases: list[Lease], *, replayed: bool) -> Granted:
    return Granted([step.table.grant_of(lease) for lease in leases], replayed, True)


def _poll(step: Step, waiter: Waiter) -> Result:
    """The request is queued: keep its place, and answer the grant if its turn has come in this very entry."""
    waiter = refresh(step, waiter)
    for key in waiter.keys:
        settle(step, waiter.tenant, key)
    lease = step.table.leases.get((waiter.tenant, waiter.lease_ids[0]))
    if lease is not None:
        return _granted(step, claim_all(step, lease), replayed=False)
    return waiting(step, waiter)


def _try(step: Step, tenant: TenantId, asked: Acquire) -> Result:
    """A request of which nothing is known."""
    table = step.table
    for lease_id in asked.lease_ids:
        if table.id_known((tenant, lease_id)):
            return LEASE_ID_IN_USE
    for key in asked.keys:
        settle(step, tenant, key)
    if not _nobody_there(step, tenant, asked.keys):
        met = _meet(step, tenant, asked)
        if met is not None:
            return met
    if not step.tokens_left(tenant, len(asked.keys)):
        return TokensExhausted()
    session_id = asked.session_id if asked.session_id is not None else asked.lease_ids[0]
    ref = (tenant, session_id)
    if asked.session_id is None:
        ttl_ms = table.shared_ttl(asked.ttl_ms or 0)
        session = Session(
            tenant,
            session_id,
            table.shared_owner(asked.owner),
            ttl_ms,
            step.now_ms + ttl_ms,
            True,
            EMPTY_METADATA,
            step.wall_ms,
            step.wall_ms,
        )
        table.add_session(ref, session)
    else:
        session = table.sessions[ref]
    leases = grant_all(step, ref, asked, session, 0)
    if session.private:
        table.watch_session(ref)
    return _granted(step, leases, replayed=False)


def _nobody_there(step: Step, tenant: TenantId, keys: list[Key]) -> bool:
    """Whether settled keys are certainly free for whatever is asked: not held, not waited for, no grace
    period. Of very many acquires nearly all are of such a key."""
    table = step.table
    for key in keys:
        if table.holder(tenant, key) is not None or table.key_queue(tenant, key) is not None:
            return False
        if blocked_until(step, tenant, key):
            return False
    return True


def _meet(step: Step, tenant: TenantId, asked: Acquire) -> Result | None:
    """What an acquire of settled keys comes to because of somebody else, or of the asker's own leases; None
    if it can be granted."""
    family: Family = (asked.mode, asked.slots if asked.mode == PERMIT else 0)
    own = _own_leases(step, asked)
    conflict = _mode_conflict(step, tenant, asked.keys, family, own)
    if conflict is not None:
        return conflict
    if own:
        return _held_already(step, asked, own)
    for key in asked.keys:
        if not _is_free(step, tenant, key, family, asked.session_id):
            if asked.wait:
                return enqueue(step, tenant, asked)
            blocked_until_ms = blocked_until(step, tenant, key)
            return Held(
                key, holders_of(step, tenant, key), _queue_length(step, tenant, key), blocked_until_ms
            )
    return None


def _mode_conflict(
    step: Step, tenant: TenantId, keys: list[Key], family: Family, own: dict[Key, list[Lease]]
) -> ModeConflict | None:
    """The refusal of a mode that does not go with that of a key, or of the asker's own lease of it."""
    for key in keys:
        present = present_family(step.table, tenant, key)
        if present is None:
            continue
        mine = own.get(key)
        if not go_together(present, family) or (mine is not None and mine[0].mode != family[0]):
            mode, slots = present if mine is None else (mine[0].mode, present[1])
            return ModeConflict(mode, family[0], key, slots, family[1])
    return None


def _held_already(step: Step, asked: Acquire, own: dict[Key, list[Lease]]) -> Result:
    """The asking session holds some of the keys, and can't wait for itself. What it holds is answered if it
    is all that it asks for, and nothing of it is parked: that can't be acted under, so it is only named."""
    held = [lease for leases in own.values() for lease in leases]
    parked = any(lease.parked for lease in held)
    if asked.if_held == "return" and len(own) == len(asked.keys) and not parked:
        for lease in held:
            if lease.claim_deadline_ms:
                claim_all(step, lease)
        return _granted(
            step, [step.table.leases[(lease.tenant, lease.lease_id)] for lease in held], replayed=False
        )
    key, leases = next(iter(own.items()))
    holders = [holder_of(step, lease) for lease in leases]
    return Held(key, holders, _queue_length(step, asked.tenant, key), 0)


def _is_free(step: Step, tenant: TenantId, key: Key, family: Family, session_id: SessionId | None) -> bool:
    """Whether a settled key can be granted to a newcomer: there is room beside its holders, nobody came
    before who does not step aside, no grace period runs."""
    nobody_before = step.table.key_queue(tenant, key) is None or (
        all_step_aside(step, tenant, key) and may_pass(step, tenant, session_id, 0)
    )
    return (
        nobody_before and has_room(step.table, tenant, key, family) and not blocked_until(step, tenant, key)
    )


def _own_leases(step: Step, asked: Acquire) -> dict[Key, list[Lease]]:
    """The leases that the asking session holds on the keys already, those included that it has parked. It has
    one of a key, or one that it was given beside those of a pool that it has parked."""
    own: dict[Key, list[Lease]] = {}
    if asked.session_id is None:
        return own
    for key in asked.keys:
        for lease in step.table.leases_of(asked.tenant, key):
            parked_from = None if lease.life is None else lease.life.parked_from
            if asked.session_id in (lease.session_id, parked_from):
                own.setdefault(key, []).append(lease)
    return own


def _queue_length(step: Step, tenant: TenantId, key: str) -> int:
    queue = step.table.key_queue(tenant, key)
    return len(queue) if queue is not None else 0


def claim(step: Step, asked: Claim) -> Result:
    """Confirm a grant that was made to a waiter."""
    table = step.table
    lease = find_lease(step, asked.tenant, asked.lease_id)
    if isinstance(lease, Lost):
        return lease
    key_set = table.set_of(lease)
    if key_set is not None:
        return _replay_set(step, key_set)
    if not lease.claim_deadline_ms:
        return _granted(step, [lease], replayed=True)
    return _granted(step, claim_all(step, lease), replayed=False)


def abandon(step: Step, asked: Abandon) -> Result:
    """Give a request up, whatever has become of it. If it arrives late after all, it is not granted."""
    table = step.table
    tenant = step.counters(asked.tenant).tenant
    ref = (tenant, asked.session_id or "", asked.request_id)
    if asked.poll_deadline_ms is not None:
        waiter = table.waiters.get(ref)
        same = waiter is not None and waiter.poll_deadline_ms == asked.poll_deadline_ms
        return _leave(step, waiter) if waiter is not None and same else Abandoned(False)
    fate = table.indexes.fate(*ref)
    if isinstance(fate, Lease):
        if not lease_live(step, fate):
            expire_lease(step, fate)
            return Abandoned(False)
        end_lease(step, fate, "abandoned")
        serve(step, tenant, fate.key)
        return Abandoned(True)
    if isinstance(fate, EndedLease):
        return Abandoned(False)
    key_set = table.sets.get(ref)
    if key_set is not None:
        return _abandon_set(step, key_set)
    table.remember_abandoned(ref, AbandonedRequest(*ref, step.now_ms))
    waiter = table.waiters.get(ref)
    return Abandoned(False) if waiter is None else _leave(step, waiter)


def _abandon_set(step: Step, key_set: KeySet) -> Abandoned:
    tenant, table = key_set.tenant, step.table
    present = [table.leases.get((tenant, lease_id)) for lease_id in key_set.lease_ids]
    if not any(present):
        return Abandoned(False)
    live = [lease for lease in present if lease is not None and lease_live(step, lease)]
    for lease in live:
        end_lease(step, lease, "abandoned")
    for key in key_set.keys:
        settle(step, tenant, key)
    return Abandoned(bool(live))


def _leave(step: Step, waiter: Waiter) -> Abandoned:
    cause = waiter_dead(step, waiter)
    drop_waiter(step, waiter, cause or "abandoned")
    settle(step, waiter.tenant, waiter.keys[0])
    return Abandoned(not cause)
