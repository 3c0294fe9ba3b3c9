"""Writes through the guards of keys: every mode, in and out of order, again and late, and the records."""

from tenure import _requests
from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle


async def guard(program: Program) -> None:
    """Hold a key and write its record again and again, under conditions that hold or don't."""
    rng = program.rng
    handle = await acquire(program, program.any_key(), wait_s=rng.choice((0.0, 3.0)))
    if handle is None:
        return
    kept = program.chance(0.5)
    if kept:
        handle.session.keep()
    for _ in range(rng.randint(1, 6)):
        if program.stopping:
            break
        await _write(program, handle)
        pause_s = (
            rng.choice((0.0, 0.05, 0.5)) if program.chance(0.9) else handle.ttl_s * rng.uniform(0.8, 1.5)
        )
        await program.sleep(pause_s * rng.random())
    if kept:
        handle.session.stop_keeping()
    await handle.leave(released=0.8)
    if program.chance(0.2):
        # After the end of the lease, by somebody who has not heard of it.
        await program.sleep(rng.expovariate(1.0))
        await commit(program, handle, require_live=program.chance(0.5))


async def _write(program: Program, handle: Handle) -> None:
    roll = program.rng.random()
    if roll < 0.45:
        await commit(program, handle)
    elif roll < 0.65:
        await commit(program, handle, if_revision=await _expected_revision(program, handle))
    elif roll < 0.80:
        await program.call(
            _requests.validate(key=handle.key, token=handle.token), key=handle.key, token=handle.token
        )
    elif roll < 0.90:
        await program.call(_requests.record(handle.key), key=handle.key)
    else:
        await delete_record(program, handle)


async def _expected_revision(program: Program, handle: Handle) -> int:
    """The record's revision as the client knows it, by its own last write or by a look; or a wrong one."""
    if program.chance(0.2):
        return program.rng.choice((0, 1, 1_000_000))
    if handle.record_revision is not None and program.chance(0.7):
        return handle.record_revision
    record, answer, _ = await program.call(_requests.record(handle.key), key=handle.key)
    return int(answer["revision"]) if record.outcome == "ok" else 0


async def delete_record(program: Program, handle: Handle) -> None:
    """Remove the record, mostly only if it is the one that is known."""
    if_revision = await _expected_revision(program, handle) if program.chance(0.7) else None
    asked = {"key": handle.key} if if_revision is None else {"key": handle.key, "if_revision": if_revision}
    await program.call(_requests.delete_record(handle.key, if_revision=if_revision), **asked)
    handle.record_revision = None
