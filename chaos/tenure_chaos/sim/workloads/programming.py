"""Programs as their authors write them, with the whole client: leases as context managers and as handles."""

import asyncio

from tenure import aio
from tenure.errors import TenureError
from tenure_chaos.sim.workloads.committing import mode_of
from tenure_chaos.sim.workloads.front import Front, Watched
from tenure_chaos.sim.workloads.program import Program


async def use_client(program: Program) -> None:
    """One or two tasks of a program, each with leases; they share sessions where the client lets them. Some
    are cancelled by whoever started them.
    """
    tasks = [program.begin(_task(program)) for _ in range(program.rng.choice((1, 1, 2)))]
    if program.chance(0.2):
        await program.sleep(program.rng.choice((0.01, 0.5, 5.0)) * program.rng.random())
        if tasks[0].cancel():
            program.world.count("cancelled task of a program")
    await asyncio.wait(tasks)


async def _task(program: Program) -> None:
    rng, front = program.rng, program.front
    lease = front.lease(
        program.any_key(),
        ttl=program.any_ttl_ms() / 1000,
        owner=program.client.name,
        wait=rng.choice((0.0, 0.0, 5.0, 20.0)),
        own_session=program.chance(0.2),
    )
    try:
        if program.chance(0.5):
            async with lease as held:
                watched = front.observe(held)
                try:
                    await _body(program, watched)
                finally:
                    # The block is left: from here on it does not act, and is released.
                    watched.stop("released")
            program.world.count("block of a lease left")
        else:
            await _by_hand(program, front, lease)
    except TenureError as error:
        program.world.count(f"program met {type(error).__name__}")


async def _by_hand(program: Program, front: Front, lease: aio.Lease) -> None:
    """Acquired and released; or forgotten, also by an error on the way, which the client notices."""
    held = await lease.acquire()
    watched = front.observe(held)
    try:
        await _body(program, watched)
    except BaseException:
        front.drop(watched)
        raise
    if program.chance(0.9):
        watched.stop("released")
        await held.release()
        program.world.count("handle released")
    else:
        front.drop(watched)


async def _body(program: Program, watched: Watched) -> None:
    """Work under the lease: renewals happen by themselves."""
    rng, held = program.rng, watched.held
    register = program.register(held.key)
    if not await register.arm(held.token):
        return
    for _ in range(rng.randint(1, 5)):
        if program.stopping or not held.is_held:
            return
        await program.sleep(held.expires_in * rng.choice((0.05, 0.3, 1.0)) * rng.random())
        roll = rng.random()
        if roll < 0.35:
            mode = mode_of(program, held.key)
            seq = rng.randrange(1_000_000) if mode == "sequence" else None
            value = program.new_id("/")
            await held.commit(value, mode=mode, seq=seq, op_id=program.new_id("-op"))
        elif roll < 0.50:
            await held.renew()
        elif roll < 0.85:
            seen = await register.read()
            await program.sleep(rng.choice((0.01, 0.5, 3.0)) * rng.random())
            held.check()
            if not (await register.write(program.client.name, held.token, seen)).accepted:
                program.world.count("register write of a program refused")
                return
