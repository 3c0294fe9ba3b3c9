"""Leases that change hands, rest while a human thinks, or end without progress."""

from typing import Any

from tenure import _requests
from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.crowding import POOL, slots_of
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle, Session
from tenure_chaos.sim.workloads.shared import close, open_session

LIMITS_MS = (1_000, 2_000, 5_000, 15_000)

PROGRESS_MS = (1_000, 1_500, 3_000)

ASKED_AGAIN = 3


def _any_place(program: Program) -> tuple[str, dict[str, Any]]:
    """A key, or sometimes the pool, and the fields of an acquire there."""
    if program.chance(0.2):
        return POOL, {"mode": "permit", "slots": slots_of(program, POOL), "owner": program.new_id("-as")}
    return program.any_key(), {}


async def pass_on(program: Program) -> None:
    """Acquire, write, and hand over: to a session of one's own, which may be waiting for it, or to somebody
    else's, who is not told.
    """
    rng, world = program.rng, program.world
    others = [session for session in world.successors if session.program is not program]
    own = await open_session(program) if not others or program.chance(0.7) else None
    to = own or (rng.choice(others) if others else None)
    if to is None:
        return
    if own is not None:
        own.keep()
    key, fields = _any_place(program)
    handle = await acquire(program, key, wait_s=rng.choice((0.0, 3.0, 10.0)), **fields)
    if handle is not None:
        if program.chance(0.5):
            await commit(program, handle)
        await _hand_over(program, handle, to, fields)
    if own is not None:
        own.stop_keeping()
        await close(program, own)


async def _hand_over(program: Program, handle: Handle, to: Session, fields: dict[str, Any]) -> None:
    own, awaited = to.program is program, None
    if own and program.chance(0.3):
        asked_for = {**fields, "owner": program.new_id("-as")}
        waiting = acquire(program, handle.key, wait_s=5.0, session=to, **asked_for)
        awaited = program.begin(waiting)
        await program.sleep(program.rng.choice((0.0, 0.05, 0.5)))
    handle.give_away("handed over")
    asked = {**handle.named, "to_session_id": to.session_id}
    record, answer, sent_at = await program.call(
        _requests.handover(lease_id=handle.lease_id, to_session_id=to.session_id), **asked
    )
    program.ended.append(handle)
    if record.outcome == "refused":
        await handle.release()
    if awaited is not None:
        # It is the waiter's, who may give it up just as well.
        given = await awaited
    elif not own:
        program.world.count("handed over to another client", int(record.outcome == "ok"))
        return
    elif record.outcome == "ok":
        given = to.handle(answer["lease"], sent_at)
    else:
        # Perhaps it was handed over all the same: then the session has it.
        given = await acquire(program, handle.key, session=to, **fields)
    if given is not None:
        await _use(program, given)


async def rest(program: Program) -> None:
    """Park a lease, and take it up again before its limit, or a little late, or never."""
    rng = program.rng
    key, where = _any_place(program)
    fields: dict[str, Any] = {"progress_ms": rng.choice(PROGRESS_MS)} if program.chance(0.2) else {}
    if program.chance(0.1):
        fields["grace_ms"] = 1_500
    handle = await acquire(program, key, wait_s=rng.choice((0.0, 3.0, 10.0)), **where, **fields)
    if handle is None:
        return
    if program.chance(0.5):
        await commit(program, handle)
    handle.give_away("parked")
    limit_ms = rng.choice(LIMITS_MS)
    if not await _park(program, handle, limit_ms):
        await handle.release()
        return
    await program.sleep(limit_ms / 1000 * rng.choice((0.1, 0.5, 1.0, 1.2)) * rng.uniform(0.8, 1.0))
    await _while_parked(program, handle)
    roll = rng.random()
    if roll < 0.1:
        await handle.release()
    elif roll < 0.9:
        await _take_up(program, handle, explicit=not fields and program.chance(0.3))
    else:
        program.ended.append(handle)


async def _park(program: Program, handle: Handle, limit_ms: int) -> bool:
    record, _, _ = await program.call(
        _requests.park(lease_id=handle.lease_id, limit_ms=limit_ms, token=handle.token),
        **handle.named,
        limit_ms=limit_ms,
    )
    return record.outcome == "ok" or (record.outcome == "unknown" and program.chance(0.7))


async def _while_parked(program: Program, handle: Handle) -> None:
    """What others see of it, and what its holder should not do."""
    key, roll = handle.key, program.rng.random()
    if roll < 0.3:
        await program.call(_requests.queue(key), key=key)
    elif roll < 0.5:
        await commit(program, handle)
    elif roll < 0.6:
        await program.call(_requests.renew(lease_id=handle.lease_id), **handle.named)
    elif roll < 0.7:
        await _park(program, handle, program.rng.choice(LIMITS_MS))


async def _take_up(program: Program, parked: Handle, *, explicit: bool) -> None:
    session = await open_session(program) if explicit else None
    how: dict[str, Any] = {}
    if session is not None:
        how["session_id"] = session.session_id
    elif program.chance(0.5):
        how["ttl_ms"] = program.any_ttl_ms()
    for _ in range(ASKED_AGAIN):
        record, answer, sent_at = await program.call(
            _requests.unpark(lease_id=parked.lease_id, token=parked.token, **how), **{**parked.named, **how}
        )
        if record.outcome not in ("unknown", "unavailable") or program.stopping:
            break
    if record.outcome == "ok":
        lease = answer["lease"]
        # Asked again it is answered as it is, by whatever session it lives.
        mine = session is not None and lease["session_id"] == session.session_id
        live_by = session if session is not None and mine else program.session(ttl_ms=lease["ttl_ms"])
        await _use(program, live_by.handle(lease, sent_at))
    if session is not None:
        await close(program, session)


async def progress(program: Program) -> None:
    """Hold what demands progress, and tell of it mostly in time; renewing alone does not help."""
    rng = program.rng
    progress_ms = rng.choice(PROGRESS_MS)
    wait_s = rng.choice((0.0, 3.0, 10.0))
    owner = program.new_id("-as")
    handle = await acquire(program, program.any_key(), wait_s=wait_s, progress_ms=progress_ms, owner=owner)
    if handle is None:
        return
    counter = 0
    diligent, careless = program.chance(0.5), program.chance(0.3)
    for _ in range(rng.randint(1, 8)):
        pause = rng.choice((0.2, 0.4)) if diligent else rng.choice((0.3, 0.6, 1.1))
        await program.sleep(progress_ms / 1000 * pause * rng.random())
        if program.stopping or not (handle.held() or careless):
            break
        roll = rng.random()
        counter += roll < 0.6 or diligent
        note = {"step": "work", "text": "", "counter": counter} if roll < 0.8 else None
        if not await _renew(program, handle, note):
            break
        if program.chance(0.2):
            await commit(program, handle)
    await handle.leave(released=0.8)


async def _renew(program: Program, handle: Handle, note: dict[str, Any] | None) -> bool:
    asked = handle.named if note is None else {**handle.named, "progress": note}
    record, answer, sent_at = await program.call(
        _requests.renew(lease_id=handle.lease_id, progress=note), **asked
    )
    if record.outcome == "ok":
        lease = answer["lease"]
        handle.session.extend(sent_at, lease["expires_in_ms"], lease["ttl_ms"])
    elif record.code == "lost":
        if record.answer.get("cause") == "no_progress":
            program.world.count("told that it was lost without progress")
        handle.lost(str(record.answer.get("reason")))
        return False
    return True


async def _use(program: Program, handle: Handle) -> None:
    rng = program.rng
    for _ in range(rng.randint(0, 2)):
        await program.sleep(handle.ttl_s * rng.choice((0.05, 0.3)) * rng.random())
        if not handle.held() or program.stopping:
            break
        if program.chance(0.5):
            await commit(program, handle)
        else:
            await handle.session.renew(by=handle)
    await handle.leave(released=0.85)
