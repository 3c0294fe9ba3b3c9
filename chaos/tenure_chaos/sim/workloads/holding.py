"""Leases for their own sake: tried for, waited for, kept for long, given back or left."""

import asyncio
from typing import Any

from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle

GRACE_MS = 1_500


async def hold(program: Program) -> None:
    """Acquire, and by turns think, renew and write. The thinking may last longer than the lease, and what
    comes after it is done late.
    """
    rng = program.rng
    fields: dict[str, Any] = {"grace_ms": GRACE_MS} if program.chance(0.1) else {}
    handle = await acquire(program, program.any_key(), wait_s=rng.choice((0.0, 0.0, 3.0, 20.0)), **fields)
    if handle is None:
        return
    if program.chance(0.03):
        await handle.abandon()
        return
    careless = program.chance(0.6)
    for _ in range(rng.randint(0, 4)):
        await program.sleep(rng.uniform(0.0, handle.ttl_s * rng.choice((0.3, 0.3, 0.6, 1.2))))
        roll = rng.random()
        if roll > 0.95 or program.stopping or not (handle.held() or careless):
            break
        if roll < 0.55:
            ttl_ms = program.any_ttl_ms() if program.chance(0.1) else None
            if (await handle.session.renew(ttl_ms=ttl_ms)).outcome == "refused":
                break
        else:
            await commit(program, handle)
    await handle.leave(released=0.8)


async def wait(program: Program) -> None:
    """Stand in a queue, mostly that of one key; sometimes the caller is cancelled in the middle. Who is
    granted makes room soon.
    """
    rng = program.rng
    key = program.key_now("k0") if program.chance(0.7) else program.any_key()
    acquiring = program.begin(acquire(program, key, wait_s=rng.choice((3.0, 10.0, 30.0))))
    if program.chance(0.3):
        await program.sleep(rng.choice((0.001, 0.02, 0.5, 5.0)) * rng.random())
        if acquiring.cancel():
            program.world.count("acquire's caller cancelled")
    try:
        handle: Handle | None = await acquiring
    except asyncio.CancelledError:
        return
    if handle is not None:
        await program.sleep(rng.expovariate(1.0))
        if handle.held() and program.chance(0.3):
            await commit(program, handle)
        await handle.leave(released=0.9)


async def keep(program: Program) -> None:
    """Hold for several TTLs, renewed in the background; stop when the handle says so."""
    rng = program.rng
    handle = await acquire(program, program.any_key(), wait_s=rng.choice((0.0, 10.0)))
    if handle is None:
        return
    handle.session.keep()
    until = program.now + handle.ttl_s * rng.uniform(0.5, 4.0)
    while handle.held() and program.now < until and not program.stopping:
        await program.sleep(handle.ttl_s * rng.uniform(0.05, 0.5))
        if handle.held() and program.chance(0.4):
            await commit(program, handle)
    if handle.held():
        program.world.count("held to the end of the work")
    elif program.chance(0.3):
        program.world.count("wrote without a look at the handle")
        await commit(program, handle)
    handle.session.stop_keeping()
    await handle.leave(released=0.9)
