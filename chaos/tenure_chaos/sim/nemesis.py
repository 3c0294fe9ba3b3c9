"""Who strikes the cluster: draws faults, has each begin, last and end, and heals them all at the end."""

import asyncio

from tenure_chaos.sim.faults import KINDS, Scene
from tenure_chaos.sim.world import World


class Nemesis:
    """Draws of the options' kinds of faults, one after another, sometimes overlapping."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world._fork()
        self.stopping = False
        self._scene = Scene(world, self.rng)
        self._tasks: dict[asyncio.Task[None], None] = {}
        # A dictionary, for its order: that of a set of tasks is another in every process.

    async def run(self) -> None:
        options = self.world.options
        while options.faults and not self.stopping:
            await asyncio.sleep(self.rng.expovariate(1.0 / options.fault_gap_s))
            if self.stopping:
                return
            self.begin(self.rng.choice(options.faults))

    def begin(self, name: str) -> None:
        """Have a fault strike beside whatever else there is."""
        task = self.world.loop.create_task(self.strike(name))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def strike(self, name: str) -> None:
        """One fault from its beginning to its end, if it can strike now."""
        kind = KINDS[name](self._scene)
        target = kind.begin()
        if target is None:
            return
        fault = self.world.begin_fault(name, target)
        try:
            await kind.last()
        finally:
            kind.heal()
            self.world.end_fault(fault)

    async def heal(self) -> None:
        """End every fault, and bring everything up."""
        self.stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        world = self.world
        world.network.mend_all()
        for node in world.nodes.values():
            world.start_node(node)
        world.note("healed")
