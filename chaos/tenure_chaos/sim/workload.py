"""What clients do in the field: hold, renew, write, pause, lose answers, give up, die, and come late."""

import contextvars
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tenure_chaos.sim.loop import Process
from tenure_chaos.sim.workloads.batching import batch
from tenure_chaos.sim.workloads.crowding import pool, share
from tenure_chaos.sim.workloads.gathering import gather
from tenure_chaos.sim.workloads.guarding import guard
from tenure_chaos.sim.workloads.holding import hold, keep, wait
from tenure_chaos.sim.workloads.looking import look
from tenure_chaos.sim.workloads.mishaps import mishap
from tenure_chaos.sim.workloads.passing import pass_on, progress, rest
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.programming import use_client
from tenure_chaos.sim.workloads.registers import use_register
from tenure_chaos.sim.workloads.resizing import resize
from tenure_chaos.sim.workloads.shared import use_session

KINDS: Final[Mapping[str, Callable[[Program], Awaitable[None]]]] = {
    "hold": hold,
    "wait": wait,
    "keep": keep,
    "guard": guard,
    "register": use_register,
    "session": use_session,
    "batch": batch,
    "share": share,
    "pool": pool,
    "set": gather,
    "pass": pass_on,
    "rest": rest,
    "progress": progress,
    "program": use_client,
    "look": look,
    "mishap": mishap,
    "resize": resize,
}


DOWN_S: Final = (0.05, 1.0, 12.0)
"""How long a client that has died stays away, on average: one of these."""


class Worker(Program):
    """One client's endless work, from its first process to its last."""

    async def run(self) -> None:
        """The work of one process. A fault of it is a fault of the harness."""
        await self._guarded(self._run())

    async def _run(self) -> None:
        world, client, options = self.world, self.client, self.world.options
        client.on_death = self.forget_everything
        client.lose_reply, client.duplicate_request = options.lose_reply, options.duplicate_request
        if options.crash_client_s:
            after_s = self.rng.expovariate(1.0 / options.crash_client_s)
            contextvars.Context().run(world.loop.call_later, after_s, self._crash, client.process)
        while not self.stopping:
            await self.sleep(self.rng.expovariate(1.0 / options.think_s))
            kind = self.rng.choice(options.work)
            world.count(f"work {kind}")
            await KINDS[kind](self)

    def _crash(self, process: Process) -> None:
        """The process dies, or the machine under it does. Another begins a while later, knowing nothing."""
        world, client = self.world, self.client
        if process is not client.process or self.stopping:
            return
        fault = world.begin_fault("crash client", client.name)
        client.die(silent=self.chance(0.3))

        def begin_again() -> None:
            world.end_fault(fault)
            world.loop.spawn(client.process, lambda: world.loop.create_task(self.run()))

        world.loop.call_later(self.rng.expovariate(1.0 / self.rng.choice(DOWN_S)), begin_again)
