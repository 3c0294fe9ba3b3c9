"""Pools whose number of slots an administrator changes while they are held and waited for.

Who asks for a slot names the number that it was told last, and hears of the new one when it is refused.
"""

from tenure import _requests
from tenure_chaos.sim.workloads.acquiring import acquire, acquire_set
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.crowding import CHANGING_POOL
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle

RESIZED_POOLS = ("p2", "p3")

SLOTS_AT_FIRST = 2
SLOTS_MAX = 4


async def resize(program: Program) -> None:
    """Some want slots of a pool, one perhaps of two pools together; meanwhile the administrator gives it
    another number of slots again and again.
    """
    rng = program.rng
    key = "p2" if program.chance(0.8) else "p3"
    crew = [program.begin(_slots_in_turn(program, key)) for _ in range(rng.randint(2, 4))]
    if program.chance(0.3):
        crew.append(program.begin(_both(program)))
    for _ in range(rng.randint(1, 4)):
        await program.sleep(rng.choice((0.02, 0.5, 3.0)) * rng.random())
        if program.stopping:
            break
        await _resize(program, CHANGING_POOL if program.chance(0.05) else key, rng.randint(1, SLOTS_MAX))
    for one in crew:
        await one


async def _slots_in_turn(program: Program, key: str) -> None:
    for _ in range(program.rng.randint(1, 3)):
        if program.stopping:
            return
        await _slot(program, key)


async def _resize(program: Program, key: str, slots: int) -> None:
    record, answer, _ = await program.call(_requests.resize(key=key, slots=slots), key=key, slots=slots)
    if record.outcome == "ok":
        program.world.slots_known[key] = answer["slots"]
    if program.chance(0.3):
        await program.call(_requests.queue(key), key=key)


async def _slot(program: Program, key: str) -> None:
    """Under a name of its own: several of one client may wait for one pool."""
    rng = program.rng
    wait_s = rng.choice((0.0, 3.0, 15.0))
    handle = await acquire(
        program, key, wait_s=wait_s, mode="permit", slots=_slots(program, key), owner=program.new_id("-as")
    )
    if handle is not None:
        await _use(program, handle)


async def _both(program: Program) -> None:
    """A slot of each pool, which goes only while both have one number; who waits for both leaves when one of
    them is resized.
    """
    slots = _slots(program, program.rng.choice(RESIZED_POOLS))
    handles = await acquire_set(
        program,
        list(RESIZED_POOLS),
        wait_s=program.rng.choice((0.0, 10.0, 30.0)),
        mode="permit",
        slots=slots,
        owner=program.new_id("-as"),
    )
    for handle in handles:
        await _use(program, handle)


def _slots(program: Program, key: str) -> int:
    if program.chance(0.1):
        return program.rng.randint(1, SLOTS_MAX)
    return program.world.slots_known.get(key, SLOTS_AT_FIRST)


async def _use(program: Program, handle: Handle) -> None:
    rng = program.rng
    for _ in range(rng.randint(0, 3)):
        await program.sleep(rng.choice((0.05, 0.3, handle.ttl_s * 0.4)) * rng.random())
        if program.stopping or not handle.held():
            break
        roll = rng.random()
        if roll < 0.3:
            await commit(program, handle, require_live=True)
        elif roll < 0.8:
            await handle.session.renew(by=handle)
    await handle.leave(released=0.9)
