"""Faults of a simulated world: each begins, lasts and ends by itself; all are ended by ``heal``."""

import asyncio
from collections.abc import Awaitable, Callable

from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.world import World


class Nemesis:
    """Draws faults of the options' list, one after another, sometimes overlapping."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world._fork()
        self.stopping = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        # A dictionary, for its order: that of a set of tasks is another in every process.
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill one": lambda: self._kill([self._any_node()]),
            "kill leader": lambda: self._kill([self.world.leader() or self._any_node()]),
            "kill all": lambda: self._kill(list(self.world.nodes.values())),
            "power loss one": lambda: self._kill([self._any_node()], power=True),
            "power loss all": lambda: self._kill(list(self.world.nodes.values()), power=True),
            "pause node": self._pause_node,
            "pause client": self._pause_client,
            "isolate leader": self._isolate_leader,
            "split in halves": self._split,
            "cut one way": self._cut_one_way,
            "bridge": self._bridge,
            "slow link": self._slow_link,
            "reset links": self._reset_links,
            "slow disk": self._slow_disk,
            "sync error": self._sync_error,
            "lost replies": self._lost_replies,
            "wall clock step": self._wall_step,
        }

    def _any_node(self) -> SimNode:
        return self.rng.choice(list(self.world.nodes.values()))

    async def run(self) -> None:
        options = self.world.options
        while options.faults and not self.stopping:
            await asyncio.sleep(self.rng.expovariate(1.0 / options.fault_gap_s))
            if self.stopping:
                return
            name = self.rng.choice(options.faults)
            task = self.world.loop.create_task(self._one(name))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _one(self, name: str) -> None:
        await self._faults[name]()

    async def heal(self) -> None:
        """End every fault, and bring every node up."""
        self.stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        world = self.world
        world.network.mend_all()
        for node in world.nodes.values():
            node.disk.sync_min_s, node.disk.sync_max_s = 0.0002, 0.002
            node.disk.fail_next_sync = False
            if node.process.paused:
                node.resume()
            if not node.process.alive:
                world.start_node(node)
        for client in world.clients.values():
            client.lose_reply = world.options.lose_reply
            if client.process.paused:
                world.loop.resume(client.process)
        for fault in world.history.faults:
            world.end_fault(fault)
        world.note("healed")

    # -- the faults

    async def _kill(self, victims: list[SimNode], power: bool = False) -> None:
        world = self.world
        victims = [node for node in victims if node.process.alive]
        fault = world.begin_fault("power loss" if power else "kill", " ".join(node.name for node in victims))
        for node in victims:
            if node.process.paused:
                node.resume()
            if power:
                world.count("files torn or lost", node.lose_power())
            else:
                node.kill()
        for node in victims:
            await asyncio.sleep(self.rng.expovariate(1.0 / self.rng.choice((0.1, 1.0, 5.0))))
            if not node.process.alive:
                world.start_node(node)
        world.end_fault(fault)

    async def _pause_node(self) -> None:
        world = self.world
        node = world.leader() if self.rng.random() < 0.5 else None
        node = node or self._any_node()
        if not node.process.alive or node.process.paused:
            return
        process = node.process
        fault = world.begin_fault("pause node", node.name)
        node.pause()
        try:
            await asyncio.sleep(self.rng.choice((0.1, 0.4, 1.5, 6.0)))
        finally:
            if process.paused and process.alive:
                world.loop.resume(process)
            world.end_fault(fault)

    async def _pause_client(self) -> None:
        world = self.world
        client = self.rng.choice(list(world.clients.values()))
        if client.process.paused:
            return
        fault = world.begin_fault("pause client", client.name)
        world.loop.pause(client.process)
        try:
            await asyncio.sleep(self.rng.choice((0.5, 2.0, 6.0, 15.0)))
        finally:
            world.loop.resume(client.process)
            world.end_fault(fault)

    async def _cuts(self, name: str, pairs: list[tuple[str, str]]) -> None:
        world = self.world
        fault = world.begin_fault(name, " ".join(f"{a}>{b}" for a, b in pairs))
        for source, target in pairs:
            world.network.cut(source, target)
        try:
            await asyncio.sleep(self.rng.choice((0.3, 1.5, 4.0, 10.0)))
        finally:
            for source, target in pairs:
                world.network.mend(source, target)
            world.end_fault(fault)

    def _both(self, group: list[str], others: list[str]) -> list[tuple[str, str]]:
        return [(a, b) for a in group for b in others] + [(b, a) for a in group for b in others]

    async def _isolate_leader(self) -> None:
        leader = self.world.leader() or self._any_node()
        others = [name for name in self.world.nodes if name != leader.name]
        if self.rng.random() < 0.3:
            others += list(self.world.clients)
        await self._cuts("isolate leader", self._both([leader.name], others))

    async def _split(self) -> None:
        names = list(self.world.nodes)
        self.rng.shuffle(names)
        at = self.rng.randrange(1, len(names))
        await self._cuts("split in halves", self._both(names[:at], names[at:]))

    async def _cut_one_way(self) -> None:
        source, target = self.rng.sample(list(self.world.nodes), 2)
        await self._cuts("cut one way", [(source, target)])

    async def _bridge(self) -> None:
        names = list(self.world.nodes)
        self.rng.shuffle(names)
        half = (len(names) - 1) // 2
        await self._cuts("bridge", self._both(names[:half], names[half + 1 :]))

    async def _slow_link(self) -> None:
        world = self.world
        source, target = self.rng.sample([*world.nodes, *world.clients], 2)
        fault = world.begin_fault("slow link", f"{source}>{target}")
        link = world.network.link(source, target)
        link.slow_s = self.rng.choice((0.02, 0.2, 1.0))
        try:
            await asyncio.sleep(self.rng.choice((1.0, 5.0)))
        finally:
            link.slow_s = 0.0
            world.end_fault(fault)

    async def _reset_links(self) -> None:
        one, other = self.rng.sample(list(self.world.nodes), 2)
        self.world.end_fault(self.world.begin_fault("reset links", f"{one} {other}"))
        self.world.network.reset(one, other)

    async def _slow_disk(self) -> None:
        world, node = self.world, self._any_node()
        fault = world.begin_fault("slow disk", node.name)
        node.disk.sync_min_s, node.disk.sync_max_s = 0.01, self.rng.choice((0.05, 0.3, 2.0))
        try:
            await asyncio.sleep(self.rng.choice((1.0, 5.0)))
        finally:
            node.disk.sync_min_s, node.disk.sync_max_s = 0.0002, 0.002
            world.end_fault(fault)

    async def _sync_error(self) -> None:
        world, node = self.world, self._any_node()
        fault = world.begin_fault("sync error", node.name)
        node.disk.fail_next_sync = True
        try:
            await asyncio.sleep(2.0)
        finally:
            node.disk.fail_next_sync = False
            if not node.process.alive:
                world.start_node(node)
            world.end_fault(fault)

    async def _lost_replies(self) -> None:
        world = self.world
        client = self.rng.choice(list(world.clients.values()))
        fault = world.begin_fault("lost replies", client.name)
        client.lose_reply = 0.5
        try:
            await asyncio.sleep(3.0)
        finally:
            client.lose_reply = world.options.lose_reply
            world.end_fault(fault)

    async def _wall_step(self) -> None:
        node = self._any_node()
        self.world.end_fault(self.world.begin_fault("wall clock step", node.name))
        node.clock.step_wall(self.rng.choice((-86_400_000, -5_000, 5_000, 86_400_000)))
