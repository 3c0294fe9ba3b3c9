"""Reads: linearizable ones, and stale ones of any node, which say how far it was."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tenure import _requests
from tenure._requests import Request
from tenure_chaos.sim.workloads.calls import How
from tenure_chaos.sim.workloads.crowding import CHANGING_POOL, POOL, READ_KEYS
from tenure_chaos.sim.workloads.program import Program

CROWDED = (*READ_KEYS, POOL, CHANGING_POOL)

BY_KEY: tuple[Callable[[str], Request[Any]], ...] = (
    _requests.lease,
    _requests.lease,
    _requests.record,
    _requests.queue,
)


async def look(program: Program) -> None:
    """A few reads, one after another or at once."""
    for _ in range(program.rng.randint(1, 3)):
        key = program.rng.choice(CROWDED) if program.chance(0.2) else program.any_key()
        roll = program.rng.random()
        if roll < 0.40:
            await program.call(program.rng.choice(BY_KEY)(key), key=key)
        elif roll < 0.50:
            token = program.rng.randint(1, 50)
            await program.call(_requests.validate(key=key, token=token), key=key, token=token)
        elif roll < 0.65:
            await _page(program)
        elif roll < 0.70:
            await program.call(_requests.cluster())
        else:
            await _look_anywhere(program, key)


async def _page(program: Program) -> None:
    """All leases, in pages of any size, sometimes only those of one owner."""
    rng = program.rng
    limit = rng.choice((1, 2, 100))
    owner = rng.choice((None, None, program.client.name))
    after: str | None = None
    for _ in range(program.world.options.keys + 1):
        asked = {"prefix": "k", "limit": limit, "after": after, "owner": owner}
        record, answer, _ = await program.call(
            _requests.leases(prefix="k", limit=limit, after=after, owner=owner), **asked
        )
        after = answer.get("next")
        if record.outcome != "ok" or after is None:
            return


async def _look_anywhere(program: Program, key: str) -> None:
    """A stale read. Its answer is taken as it comes: the client's types leave out the applied index."""
    request = program.rng.choice(BY_KEY)(key)
    request = replace(request, answer=dict[str, Any], query={**request.query, "consistency": "stale"})
    await program.call(request, How(anywhere=True), key=key, consistency="stale")
