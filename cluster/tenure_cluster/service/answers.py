"""The one place where results of the state machine become answers to a caller.

Results speak of cluster time and know nothing of who asked; answers speak of what remains. What remains is
computed when the answer is made, by the cluster clock of the node that makes it, so time spent between the
entry and the answer is never given to the holder.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from msgspec import UNSET, UnsetType

from tenure_cluster.lease import limits, results
from tenure_cluster.lease.audit_trail import Noted
from tenure_cluster.lease.types import LeaseLife, Session
from tenure_cluster.service.asks import Answer, Ask
from tenure_cluster.service.audit_messages import NotedReply
from tenure_cluster.service.credential_answers import CREDENTIAL_ANSWERS
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import (
    AbandonedReply,
    AcceptedReply,
    AheadBody,
    BrokenBody,
    BrokenReply,
    DeletedReply,
    GrantedReply,
    HandedOverReply,
    HolderBody,
    LeaseBody,
    ParkedReply,
    ProgressBody,
    ReleasedReply,
    RenewedReply,
    ResizedReply,
    SessionBody,
    SessionClosedReply,
    SessionReply,
    UnparkedReply,
    WaitingReply,
)
from tenure_cluster.service.requests import AcquireRequest
from tenure_cluster.service.times import rfc3339 as rfc3339

RETRY_S: Final = 1.0
"""What a caller is told to wait before it asks again when nothing better is known."""

QUEUE_FULL_RETRY_S: Final = 5.0
"""The same for a key whose queue is full: places come free no faster than leases end."""


def remaining_ms(deadline_ms: int, now_ms: int) -> int:
    return deadline_ms - now_ms if deadline_ms > now_ms else 0


def deadline_of(grant: results.Grant) -> int:
    """When a grant ends if nothing happens: a grant to a waiter must be claimed before its session would end,
    and a lease that demands progress ends without it."""
    lease, deadline_ms = grant.lease, grant.session.deadline_ms
    if 0 < lease.claim_deadline_ms < deadline_ms:
        deadline_ms = lease.claim_deadline_ms
    if lease.life is not None and 0 < lease.life.progress_deadline_ms < deadline_ms:
        deadline_ms = lease.life.progress_deadline_ms
    return deadline_ms


def lease_body(grant: results.Grant, now_ms: int, *, for_holder: bool) -> LeaseBody:
    lease, session, life = grant.lease, grant.session, grant.lease.life
    return LeaseBody(
        lease_id=lease.lease_id if for_holder else UNSET,
        session_id=session.session_id if for_holder else UNSET,
        key=lease.key,
        owner=lease.owner,
        token=lease.token,
        mode=lease.mode,
        slot=lease.slot,
        ttl_ms=session.ttl_ms,
        expires_in_ms=remaining_ms(deadline_of(grant), now_ms),
        metadata=lease.metadata,
        granted_at=rfc3339(lease.granted_wall_ms),
        renewed_at=rfc3339(session.renewed_wall_ms),
        revision=lease.revision,
        state="parked" if life is not None and lease.parked else UNSET,
        progress=progress_body(life, now_ms) if life is not None else UNSET,
        progress_ms=(life.progress_ms or UNSET) if life is not None else UNSET,
    )


def progress_body(life: LeaseLife | None, now_ms: int) -> ProgressBody | UnsetType:
    note = life.progress if life is not None else None
    if note is None:
        return UNSET
    return ProgressBody(
        step=note.step,
        text=note.text,
        counter=note.counter,
        at=rfc3339(note.wall_ms),
        age_ms=remaining_ms(now_ms, note.at_ms),
    )


def holder_of(grant: results.Grant) -> results.Holder:
    """What anybody of the tenant may know of a grant."""
    lease = grant.lease
    return results.Holder(
        key=lease.key,
        owner=lease.owner,
        token=lease.token,
        mode=lease.mode,
        slot=lease.slot,
        deadline_ms=deadline_of(grant),
        granted_wall_ms=lease.granted_wall_ms,
        metadata=lease.metadata,
    )


def holder_body(holder: results.Holder, now_ms: int) -> HolderBody:
    return HolderBody(
        key=holder.key,
        owner=holder.owner,
        token=holder.token,
        mode=holder.mode,
        slot=holder.slot,
        expires_in_ms=remaining_ms(holder.deadline_ms, now_ms),
        granted_at=rfc3339(holder.granted_wall_ms),
        metadata=holder.metadata,
    )


def session_body(session: Session, leases: int, now_ms: int) -> SessionBody:
    return SessionBody(
        session_id=session.session_id,
        owner=session.owner,
        ttl_ms=session.ttl_ms,
        expires_in_ms=remaining_ms(session.deadline_ms, now_ms),
        metadata=session.metadata,
        leases=leases,
        opened_at=rfc3339(session.opened_wall_ms),
        renewed_at=rfc3339(session.renewed_wall_ms),
    )


def waiting_reply(
    position: int, holders: Sequence[results.Holder], ahead: Sequence[str], request_id: str
) -> WaitingReply:
    return WaitingReply(
        position=position,
        ahead=[AheadBody(owner=holder.owner, state="holding") for holder in holders]
        + [AheadBody(owner=owner, state="waiting") for owner in ahead],
        request_id=request_id,
    )


def held(result: results.Held, ask: Ask, now_ms: int) -> Problem:
    """Refused because of others: the holder, those who wait, or a grace period that runs."""
    extra: dict[str, Any] = {"key": result.key, "waiters": result.waiters}
    blocked_ms = remaining_ms(result.blocked_until_ms, now_ms)
    if result.holders:
        first = holder_body(result.holders[0], now_ms)
        extra |= {"reason": "held", "holder": first}
        if len(result.holders) > 1:
            extra["holders"] = [holder_body(holder, now_ms) for holder in result.holders]
        detail = f"{result.key!r} is held by {first.owner!r} for another {first.expires_in_ms} ms"
        if not isinstance(ask.request, AcquireRequest):
            detail = f"the session has a lease of {result.key!r} already"
        elif _has_room(result, ask.request):
            # It is not the holders who are in the way.
            if blocked_ms:
                extra["reason"] = "grace"
                detail = f"{result.key!r} has room, but nobody is granted it for {blocked_ms} ms more: "
                detail += "the grace period of somebody who held it too"
            elif result.waiters and _holds_none(ask.request):
                extra["reason"] = "queued"
                detail = f"{result.key!r} has room, but others came before and wait for it: {result.waiters}"
        if blocked_ms:
            extra["blocked_ms"] = blocked_ms
    elif blocked_ms:
        extra |= {"reason": "grace", "expires_in_ms": blocked_ms, "blocked_ms": blocked_ms}
        detail = f"{result.key!r} stays free for {blocked_ms} ms more: its last holder's grace period"
    else:
        extra["reason"] = "queued"
        detail = f"{result.key!r} is about to be granted to another"
    return Problem("held", detail, extra)


def _has_room(result: results.Held, asked: AcquireRequest) -> bool:
    """Whether the acquire would go beside the holders, as far as those that are named tell."""
    if asked.mode == "shared":
        return result.holders[0].mode == "shared"
    places = min(asked.slots or 0, limits.HOLDERS_NAMED_MAX) if asked.mode == "permit" else 0
    return len(result.holders) < places


def _holds_none(asked: AcquireRequest) -> bool:
    """Whether those who are named can't be leases of the asker's own, because of which it was refused."""
    returned = asked.mode == "shared" and asked.key is not None and asked.if_held == "return"
    return asked.session_id is None or returned


def answer(result: object, ask: Ask, now_ms: int) -> Answer:
    """What the caller of `ask` is told of `result`, with what remains at `now_ms` of the cluster clock."""
    make = _ANSWERS.get(type(result))
    if make is None:
        return Problem("internal", f"the state machine answered {type(result).__name__} to {ask.operation}")
    return make(result, ask, now_ms)


def _granted(result: results.Granted, ask: Ask, now_ms: int) -> Answer:
    as_set = isinstance(ask.request, AcquireRequest) and ask.request.keys is not None
    replayed = True if result.replayed else UNSET
    if as_set:
        leases = [lease_body(grant, now_ms, for_holder=True) for grant in result.grants]
        return GrantedReply(leases=leases, replayed=replayed)
    return GrantedReply(lease=lease_body(result.grants[0], now_ms, for_holder=True), replayed=replayed)


def _waiting(result: results.Waiting, ask: Ask, now_ms: int) -> Answer:
    request_id = cast(AcquireRequest, ask.request).request_id or ""
    return waiting_reply(result.position, result.holders, result.ahead, request_id)


_WOULD_CLOSE: Final = {"handover": "handing it over", "unpark": "taking it up"}


def _deadlock(result: results.Deadlock, ask: Ask, now_ms: int) -> Answer:
    return deadlock(result.cycle, _WOULD_CLOSE.get(ask.operation, "waiting"))


def deadlock(cycle: list[str], what: str = "this") -> Problem:
    """Refused because `what` was asked for would close this cycle of owners and keys."""
    if len(cycle) == 2:
        detail = f"{cycle[0]!r} waits for {cycle[1]!r} already, by the same lease session"
    else:
        detail = f"{what} would close a cycle: {' -> '.join([*cycle, cycle[0]])}"
    return Problem("deadlock", detail, {"cycle": cycle})


def _mode_conflict(result: results.ModeConflict, ask: Ask, now_ms: int) -> Answer:
    present = _in_words(result.present, result.present_slots)
    asked = _in_words(result.asked, result.asked_slots)
    detail = f"{result.key!r} is in use in mode {present}, not {asked}"
    extra: dict[str, Any] = {"key": result.key, "present": result.present, "asked": result.asked}
    if result.present_slots:
        extra["present_slots"] = result.present_slots
    if result.asked_slots:
        extra["asked_slots"] = result.asked_slots
    return Problem("mode_conflict", detail, extra)


def _in_words(mode: str, slots: int) -> str:
    return f"{mode!r} with {slots} slot{'s' * (slots > 1)}" if slots else repr(mode)


def _guard_conflict(result: results.GuardConflict, ask: Ask, now_ms: int) -> Answer:
    detail = f"the key's first commit fixed its guard's mode to {result.present!r}, not {result.asked!r}"
    return Problem("mode_conflict", detail, {"present": result.present, "asked": result.asked})


_LOST_BECAUSE: Final = {
    "expired": "it was not renewed in time",
    "released": "its holder released it",
    "broken": "it was broken by force",
    "handed_over": "its holder handed it over",
    "session_closed": "its session was closed",
    "restored": "the cluster was restored from a backup",
    "abandoned": "the acquire that asked for it was given up",
    "unknown": "no such lease is remembered",
}


def _lost(result: results.Lost, ask: Ask, now_ms: int) -> Answer:
    because = _LOST_BECAUSE.get(result.reason, result.reason)
    extra: dict[str, Any] = {"reason": result.reason}
    if result.detail == "no_progress":
        because = "its holder told of no progress in time"
        extra["cause"] = "no_progress"
    elif result.detail:
        because = f"{because}: {result.detail}"
        extra["cause"] = result.detail
    return Problem("lost", f"the lease is over: {because}", extra)


def _renewed(result: results.Renewed, ask: Ask, now_ms: int) -> Answer:
    return RenewedReply(lease=lease_body(result.grant, now_ms, for_holder=True))


def _handed_over(result: results.HandedOver, ask: Ask, now_ms: int) -> Answer:
    lease = lease_body(result.grant, now_ms, for_holder=True)
    return HandedOverReply(lease=lease, replayed=True if result.replayed else UNSET)


def _unparked(result: results.Unparked, ask: Ask, now_ms: int) -> Answer:
    lease = lease_body(result.grant, now_ms, for_holder=True)
    return UnparkedReply(lease=lease, replayed=True if result.replayed else UNSET)


def _session_is(result: results.SessionIs, ask: Ask, now_ms: int) -> Answer:
    return SessionReply(session=session_body(result.session, result.leases, now_ms))


def _broken(result: results.Broken, ask: Ask, now_ms: int) -> Answer:
    return BrokenReply(broken=[BrokenBody(owner=lease.owner, token=lease.token) for lease in result.leases])


_COMMIT_REFUSALS: Final = {
    "stale_token": "a newer token has been issued for the key, the guard's floor is {floor}",
    "token_used": "the guard's mode allows one write per token, and token {last_token} has made its write",
    "seq_replayed": "the guard has already accepted (token {last_token}, seq {last_seq})",
    "not_live": "the lease has ended or is parked, or its id, token and slot are not of one grant; "
    "the guard's floor is {floor}",
    "revision_conflict": "the record's revision is {revision}",
}

_NEVER_GRANTED: Final = "no grant of this key and slot is known, so no token of it can write"
"""For a floor of 0: the key has no state, or the slot was never granted."""


def _commit_refused(result: results.CommitRefused, ask: Ask, now_ms: int) -> Answer:
    extra = {
        "floor": result.floor,
        "last_token": result.last_token,
        "last_seq": result.last_seq,
        "revision": result.revision,
    }
    known = result.floor or result.code not in ("stale_token", "not_live")
    detail = _COMMIT_REFUSALS[result.code].format(**extra) if known else _NEVER_GRANTED
    return Problem(result.code, detail, extra)


def _revision_conflict(result: results.RevisionConflict, ask: Ask, now_ms: int) -> Answer:
    return Problem(
        "revision_conflict", f"the record's revision is {result.revision}", {"revision": result.revision}
    )


def _invalid(result: results.Invalid, ask: Ask, now_ms: int) -> Answer:
    """The machine's sentence begins with the field at fault, where there is one."""
    field = result.detail.partition(" ")[0]
    is_field = field in ask.request.__struct_fields__
    return Problem("invalid", result.detail, {"path": f"$.{field}" if is_field else "$"})


def _queue_full(result: results.QueueFull, ask: Ask, now_ms: int) -> Answer:
    detail = f"the key has {result.waiters_max} waiters, the most it may have"
    return Problem("overloaded", detail, {"waiters_max": result.waiters_max}, QUEUE_FULL_RETRY_S)


_ANSWERS: Final[dict[type, Callable[[Any, Ask, int], Answer]]] = {
    results.Granted: _granted,
    results.Waiting: _waiting,
    results.Held: held,
    results.Deadlock: _deadlock,
    results.ModeConflict: _mode_conflict,
    results.GuardConflict: _guard_conflict,
    results.Renewed: _renewed,
    results.SessionIs: _session_is,
    results.HandedOver: _handed_over,
    results.Parked: lambda result, ask, now_ms: ParkedReply(
        lease=lease_body(result.grant, now_ms, for_holder=True)
    ),
    results.Unparked: _unparked,
    results.StaleToken: lambda result, ask, now_ms: Problem(
        "stale_token",
        f"the lease has been taken up since, its token is {result.token}",
        {"floor": result.token},
    ),
    results.Released: lambda result, ask, now_ms: ReleasedReply(
        status="already_released" if result.already else "released"
    ),
    results.Lost: _lost,
    results.SessionExpired: lambda result, ask, now_ms: Problem(
        "session_expired", "the session was not renewed in time"
    ),
    results.NoSession: lambda result, ask, now_ms: Problem("no_session", "no such session is known"),
    results.SessionClosed: lambda result, ask, now_ms: SessionClosedReply(leases=result.leases),
    results.Abandoned: lambda result, ask, now_ms: AbandonedReply(),
    results.Broken: _broken,
    results.Resized: lambda result, ask, now_ms: ResizedReply(
        slots=result.slots, before=result.before, holders=result.holders
    ),
    results.NotHeld: lambda result, ask, now_ms: Problem("not_held", "nobody holds the key or waits for it"),
    results.Committed: lambda result, ask, now_ms: AcceptedReply(revision=result.revision),
    results.CommitRefused: _commit_refused,
    results.RecordDeleted: lambda result, ask, now_ms: DeletedReply(),
    results.NoRecord: lambda result, ask, now_ms: Problem("no_record", "the key has no record"),
    results.RevisionConflict: _revision_conflict,
    results.QueueFull: _queue_full,
    results.Invalid: _invalid,
    results.Unsupported: lambda result, ask, now_ms: Problem("unsupported", result.detail),
    results.TokensExhausted: lambda result, ask, now_ms: Problem(
        "quota", "the tenant's fencing tokens are used up"
    ),
    Noted: lambda result, ask, now_ms: NotedReply(),
    **CREDENTIAL_ANSWERS,
}
"""Every result that an operation of the API can meet. Done is for Expire and Tick, which nobody calls."""
