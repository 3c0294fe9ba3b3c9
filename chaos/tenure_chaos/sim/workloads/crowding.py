"""Keys that several hold at a time: readers who come without pause, writers among them, and pools."""

import random

from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle

READ_KEYS = ("s0", "s1")
POOL = "p0"
"""All its clients name one number of slots."""
CHANGING_POOL = "p1"
"""They don't, so it is refused, or changes when nobody has a slot."""


def slots_of(program: Program, key: str) -> int:
    """How many slots a client says that the pool has."""
    if key == POOL:
        return random.Random(f"slots in {program.world.seed}").choice((2, 3))
    return program.rng.randint(1, 3)


async def share(program: Program) -> None:
    """Read again and again without a pause, beside other readers; or write, which all readers must let
    happen. Readers have names of their own, as agents would.
    """
    rng = program.rng
    key = "s0" if program.chance(0.8) else rng.choice(READ_KEYS)
    if program.chance(0.3):
        handle = await acquire(program, key, wait_s=rng.choice((0.0, 5.0, 20.0, 30.0)), owner=_name(program))
        if handle is not None:
            program.world.count("writer among readers granted")
            await _use(program, handle)
        return
    for _ in range(rng.randint(1, 8)):
        if program.stopping:
            return
        wait_s = rng.choice((0.0, 5.0, 20.0))
        handle = await acquire(program, key, wait_s=wait_s, mode="shared", owner=_name(program))
        if handle is not None:
            await _use(program, handle)


async def pool(program: Program) -> None:
    """Have a slot of a pool for a while."""
    rng = program.rng
    key = POOL if program.chance(0.8) else CHANGING_POOL
    wait_s = rng.choice((0.0, 3.0, 15.0))
    slots = slots_of(program, key)
    handle = await acquire(program, key, wait_s=wait_s, mode="permit", slots=slots, owner=_name(program))
    if handle is not None:
        await _use(program, handle)


def _name(program: Program) -> str:
    return program.new_id("-as")


async def _use(program: Program, handle: Handle) -> None:
    rng = program.rng
    kept = program.chance(0.2)
    if kept:
        handle.session.keep()
    for _ in range(rng.randint(0, 3)):
        await program.sleep(rng.choice((0.05, 0.3, handle.ttl_s * 0.4)) * rng.random())
        if program.stopping or not handle.held():
            break
        roll = rng.random()
        if roll < 0.4 and handle.key != CHANGING_POOL:
            await commit(program, handle)
        elif roll < 0.7:
            await handle.session.renew()
    if kept:
        handle.session.stop_keeping()
    await handle.leave(released=0.9)
