"""Sets of keys: taken together or not at all, and given back together or one by one."""

from tenure import _requests
from tenure_chaos.sim.workloads.acquiring import acquire_set
from tenure_chaos.sim.workloads.committing import commit
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle
from tenure_chaos.sim.workloads.shared import close, open_session


async def gather(program: Program) -> None:
    """Take two or three of the keys that all others want too."""
    rng = program.rng
    keys = [program.key_now(f"k{number}") for number in range(max(3, program.world.options.keys))]
    chosen = rng.sample(keys, rng.randint(2, 3))
    session = await open_session(program) if program.chance(0.3) else None
    wait_s = rng.choice((0.0, 5.0, 15.0, 40.0))
    if session is not None:
        session.keep()
    handles = await acquire_set(program, chosen, wait_s=wait_s, session=session, owner=program.new_id("-as"))
    if handles and session is not None and program.chance(0.5):
        # A second one beside the first: others may do the same the other way round.
        handles += await acquire_set(
            program, rng.sample(keys, 2), wait_s=10.0, session=session, owner=program.new_id("-as")
        )
    if handles:
        program.world.count("set of keys had")
        await _use(program, handles)
    if session is not None:
        session.stop_keeping()
        await close(program, session)


async def _use(program: Program, handles: list[Handle]) -> None:
    rng, session = program.rng, handles[0].session
    for _ in range(rng.randint(0, 4)):
        await program.sleep(rng.uniform(0.0, handles[0].ttl_s * rng.choice((0.1, 0.3, 0.9))))
        held = [handle for handle in handles if handle.held()]
        if not held or program.stopping:
            break
        roll = rng.random()
        if roll < 0.5:
            await commit(program, rng.choice(held))
        elif roll < 0.8:
            await session.renew(by=rng.choice(held))
        elif roll < 0.9:
            await rng.choice(held).release()
    roll = rng.random()
    if roll < 0.5:
        await _release_all(program, handles)
    elif roll < 0.9:
        for handle in handles:
            await handle.release()
    program.ended.extend(handles)


async def _release_all(program: Program, handles: list[Handle]) -> None:
    """All that is left of the set, by the id of any of its leases."""
    for handle in handles:
        handle.give_away("released")
    by = program.rng.choice(handles)
    await program.call(_requests.release(lease_id=by.lease_id, whole_set=True), **by.named, whole_set=True)
