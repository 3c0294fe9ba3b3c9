"""One write through the guard of a key."""

import random
from typing import Any, Final, Literal, TypeAlias

from tenure import _requests
from tenure_chaos.history import CallRecord
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle

Mode: TypeAlias = Literal["current", "once", "sequence"]

MODES: Final[tuple[Mode, ...]] = ("current", "once", "sequence")


def mode_of(program: Program, key: str) -> Mode:
    """The mode that all clients use for the key; a guard's mode is fixed by its first commit."""
    return random.Random(f"mode of {key} in {program.world.seed}").choice(MODES)


async def commit(program: Program, handle: Handle, **conditions: Any) -> CallRecord:
    """One write with a value that is written once in the run. ``conditions`` are fields of the body."""
    rng = program.rng
    mode = mode_of(program, handle.key)
    if program.chance(0.02):
        mode = rng.choice(MODES)
    body: dict[str, Any] = {
        "key": handle.key,
        "lease_id": handle.lease_id,
        "token": handle.token,
        "mode": mode,
        "value": program.new_id("/"),
        "require_live": rng.random() < 0.7,
        **conditions,
    }
    if mode == "sequence":
        # Mostly the next number; sometimes one that was used, or one further on.
        handle.seq += rng.choice((0, 1, 1, 1, 1, 3))
        body["seq"] = handle.seq
    else:
        body.pop("seq", None)
    if handle.mode == "permit":
        body["slot"] = handle.slot
    if program.chance(0.7):
        body["op_id"] = program.new_id("-op")
    began_at = program.world.loop.time()
    record, answer, _ = await program.call(_requests.commit(body), **body)
    if record.outcome == "ok":
        handle.record_revision = answer["revision"]
    if not handle.held():
        program.world.count(f"late commit {record.outcome} {record.code}".strip())
    if "op_id" in body:
        program.commits.append({"body": body, "record": record, "began_at": began_at})
    return record
