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
    body: dict[str, Any] = {"key": key, "owner": program.client.name, **fields}
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
        return None
    if answer.sent_at > began_at and wait_s:
        program.world.count("granted after waiting")
    lease = msgspec.to_builtins(answer.value[0])
    live_by = session or program.session(ttl_ms=lease["ttl_ms"])
    handle = live_by.handle(lease, answer.sent_at)
    handle.request_id = acquisition.request_id
    return handle


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
