"""Read, think, write: what a lease is for. The register is outside the service (sim/register.py).

A new holder arms the register before anything else, and reads only then. A careful writer looks at its
handle before it writes and may still come late: it can be paused after the look, and the write takes its
time. A careless one does not look. Both must find the guard between them and what they would destroy.
"""

from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle


async def use_register(program: Program) -> None:
    rng = program.rng
    key = program.key_now("k0") if program.chance(0.7) else program.any_key()
    handle = await acquire(program, key, wait_s=rng.choice((0.0, 3.0, 20.0)))
    if handle is None:
        return
    kept = program.chance(0.5)
    if kept:
        handle.session.keep()
    handle.armed = await program.register(key).arm(handle.token)
    if handle.armed:
        careful = program.chance(0.6)
        for _ in range(rng.randint(1, 5)):
            if program.stopping or not await _update(program, handle, careful=careful):
                break
    else:
        program.world.count("register was armed by a later holder")
    if kept:
        handle.session.stop_keeping()
    await handle.leave(released=0.85)


async def _update(program: Program, handle: Handle, *, careful: bool) -> bool:
    """Read, think for a while that may last longer than the lease, and write. False if that is to be all."""
    world, register = program.world, program.register(handle.key)
    seen = await register.read()
    await program.sleep(handle.ttl_s * program.rng.choice((0.02, 0.3, 1.0, 2.5)) * program.rng.random())
    if careful and not handle.held():
        world.count("careful writer stopped")
        return False
    late = not handle.held()
    put = await register.write(program.client.name, handle.token, seen)
    if put.accepted:
        world.count("late register write accepted" if late else "register write accepted")
    else:
        world.count("late register write refused" if late else "register write refused")
        handle.lost("the register knows a later holder")
    return put.accepted
