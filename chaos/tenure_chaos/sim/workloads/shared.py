"""Explicit sessions: several leases that live by one renewal, and end together."""

from tenure import _requests
from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Session


async def use_session(program: Program) -> None:
    """Open one, hold several keys in it for a while, and close it, or let it run out."""
    rng = program.rng
    session = await open_session(program)
    if session is None:
        return
    kept = program.chance(0.7)
    if kept:
        session.keep()
    for _ in range(rng.randint(1, 6)):
        if program.stopping or session.over():
            break
        await _step(program, session)
        await program.sleep(session.validity.ttl_ms / 1000 * rng.choice((0.02, 0.1, 0.5)) * rng.random())
    if session.over():
        program.world.count("session ran out")
    if kept:
        session.stop_keeping()
    if program.chance(0.75):
        await close(program, session)
    program.ended.extend(session.handles)


async def open_session(program: Program) -> Session | None:
    """A session of its own; others may hand something over to it."""
    body = {"owner": program.client.name, "ttl_ms": program.any_ttl_ms()}
    record, answer, sent_at = await program.call(_requests.open_session(body), **body)
    if record.outcome != "ok":
        return None
    told = answer["session"]
    session = program.session(ttl_ms=told["ttl_ms"], session_id=told["session_id"])
    session.extend(sent_at, told["expires_in_ms"], told["ttl_ms"])
    program.world.successors.append(session)
    return session


async def _step(program: Program, session: Session) -> None:
    rng = program.rng
    held = [handle for handle in session.handles if handle.held()]
    roll = rng.random()
    if not held or roll < 0.35:
        key = program.any_key()
        if not any(handle.key == key for handle in held):
            wait_s = rng.choice((0.0, 0.0, 2.0, 10.0))
            await acquire(program, key, wait_s=wait_s, session=session)
            return
        # It has the key: told so again, or refused, as it likes.
        if_held = rng.choice(("return", "conflict"))
        program.world.count(f"asked for its own key, if_held {if_held}")
        await acquire(program, key, session=session, if_held=if_held)
    elif roll < 0.60:
        await commit(program, rng.choice(held))
    elif roll < 0.75:
        await rng.choice(held).release()
    elif roll < 0.85:
        await session.renew(by=rng.choice(held) if program.chance(0.5) else None)
    elif roll < 0.95:
        session_id = session.session_id
        await program.call(_requests.session(session_id), session_id=session_id)
    else:
        await program.sleep(session.validity.ttl_ms / 1000 * rng.uniform(0.8, 1.5))


async def close(program: Program, session: Session) -> None:
    """Stop acting under all its leases, then end it."""
    for handle in session.handles:
        handle.life.release_begun(program.now)
        handle.stop_believing("session closed")
    session_id = session.session_id
    await program.call(_requests.close_session(session_id), session_id=session_id)
