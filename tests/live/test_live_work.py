"""The work of the simulation's clients, done in a live run: it finds there what it asks for."""

import asyncio
import re
from pathlib import Path

from tenure_chaos.live.work.world import LiveWorld
from tenure_chaos.sim import workload, workloads
from tenure_chaos.sim.options import Options

SIMULATION_ONLY = {"begin_fault", "end_fault"}


def sources() -> list[Path]:
    return [Path(workload.__file__), *Path(workloads.__path__[0]).glob("*.py")]


def test_a_live_world_has_whatever_the_work_asks_of_its_world() -> None:
    """One is taken for the other by a cast, so no type checker sees what is missing."""
    asked = {name for path in sources() for name in re.findall(r"\bworld\.([a-z]\w*)\b", path.read_text())}
    assert {"count", "history", "loop", "options"} <= asked

    async def make() -> LiveWorld:
        return LiveWorld(seed=1, began_at=0.0, options=Options(), nodes={"http://h:1": "n1"})

    world = asyncio.run(make())
    assert [name for name in sorted(asked - SIMULATION_ONLY) if not hasattr(world, name)] == []
