"""One acquire, from asking to a handle or to nothing left behind: by tenure._acquisition."""

import asyncio
from typing import Any

import msgspec

from tenure._requests import Request
from tenure.errors import LeaseLost, TenureError
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.real_client import SimAcquisition
from tenure_chaos.sim.workloads.sessions import Handle, Session

UNDO_AGAIN_S = 1.0


async def acquire(
    program: Program, key: str, *, wait_s: float = 0.0, session: Session | None = None, **fields: Any
) -> Handle | None:
    """A handle, or None; then nothing is left, as far as the client can know. ``fields`` are of the body.
    Cancelling gives up, in a task of its own if need be.
    """
    handles = await _acquire(program, {"key": key}, wait_s, session, fields)
    return handles[0] if handles else None


async def acquire_set(
    program: Program, keys: list[str], *, wait_s: float = 0.0, session: Session | None = None, **fields: Any
) -> list[Handle]:
    """The same for several keys: a handle for each, or none."""
    return await _acquire(program, {"keys": keys}, wait_s, session, fields)


async def _acquire(
    program: Program, what: dict[str, Any], wait_s: float, session: Session | None, fields: dict[str, Any]
) -> list[Handle]:
    body: dict[str, Any] = {**what, "owner": program.client.name, **fields}
    if session is not None:
        body["session_id"] = session.session_id
    else:
        body.setdefault("ttl_ms", program.any_ttl_ms())

    def undo(request: Request[Any]) -> None:
        if session is not None:
            program.begin(_undo(program, session, request))

    acquisition = SimAcquisition(program, body, wait_s=wait_s, undo=undo)
    began_at = program.now
    try:
        answer = await acquisition.run()
    except asyncio.CancelledError:
        program.world.count("cancelled acquire")
        raise
    except TenureError:
        return []
    if answer.sent_at > began_at and wait_s:
        program.world.count("granted after waiting")
    leases = [msgspec.to_builtins(grant) for grant in answer.value]
    live_by = session or program.session(ttl_ms=leases[0]["ttl_ms"])
    handles = [live_by.handle(lease, answer.sent_at) for lease in leases]
    for handle in handles:
        handle.request_id = acquisition.request_id
    return handles


async def _undo(program: Program, session: Session, request: Request[Any]) -> None:
    """Repeat an abandon until it is answered, as the client's renewer does. Else the session would keep what
    was to be given up.
    """
    program.world.count("abandon repeated")
    while not session.over() and not program.stopping:
        try:
            await program.calls.ask(request)
        except LeaseLost:
            return
        except TenureError:
            await program.sleep(UNDO_AGAIN_S)
        else:
            return
