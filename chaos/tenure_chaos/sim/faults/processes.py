"""Processes that are killed, stopped and started, or stand still."""

import asyncio

from tenure_chaos.sim.faults.kind import Kind
from tenure_chaos.sim.loop import Process
from tenure_chaos.sim.node import SimNode


class _Kill(Kind):
    """SIGKILL: what was written to files is still there. Each victim is started again after a while."""

    def victims(self) -> list[SimNode]:
        raise NotImplementedError

    def strike(self, node: SimNode) -> None:
        node.kill()

    def begin(self) -> str | None:
        self.struck = [node for node in self.victims() if node.process.alive]
        for node in self.struck:
            self.strike(node)
        return " ".join(node.name for node in self.struck) or None

    async def last(self) -> None:
        for node in self.struck:
            await asyncio.sleep(self.rng.expovariate(1.0 / self.rng.choice((0.1, 1.0, 5.0))))
            self.world.start_node(node)

    def heal(self) -> None:
        for node in self.struck:
            self.world.start_node(node)


class _PowerLoss(_Kill):
    """The machine stops: what was not synced may be lost or torn."""

    def strike(self, node: SimNode) -> None:
        self.world.lose_power(node)


class KillOne(_Kill):
    name = "kill one"

    def victims(self) -> list[SimNode]:
        return [self.scene.any_node()]


class KillLeader(_Kill):
    name = "kill leader"

    def victims(self) -> list[SimNode]:
        return [self.scene.leader_or_any()]


class KillMajority(_Kill):
    name = "kill majority"

    def victims(self) -> list[SimNode]:
        return self.scene.majority()


class KillAll(_Kill):
    name = "kill all"

    def victims(self) -> list[SimNode]:
        return self.scene.nodes


class PowerLossOne(_PowerLoss):
    name = "power loss one"

    def victims(self) -> list[SimNode]:
        return [self.scene.any_node()]


class PowerLossLeader(_PowerLoss):
    name = "power loss leader"

    def victims(self) -> list[SimNode]:
        return [self.scene.leader_or_any()]


class PowerLossMajority(_PowerLoss):
    name = "power loss majority"

    def victims(self) -> list[SimNode]:
        return self.scene.majority()


class PowerLossAll(_PowerLoss):
    name = "power loss all"

    def victims(self) -> list[SimNode]:
        return self.scene.nodes


class RollingRestart(Kind):
    """As for an upgrade: one after the other is stopped in good order, and started when it has ended."""

    name = "rolling restart"

    def begin(self) -> str | None:
        return " ".join(self.world.nodes)

    async def last(self) -> None:
        for node in self.scene.nodes:
            await node.stop()
            await asyncio.sleep(self.rng.choice((0.05, 0.5)))
            self.world.start_node(node)
            await asyncio.sleep(self.rng.choice((0.5, 2.0)))

    def heal(self) -> None:
        """Who does not end in time is killed."""
        for node in self.scene.nodes:
            if node.stopping:
                node.kill()
            self.world.start_node(node)


class PauseNode(Kind):
    """SIGSTOP and SIGCONT, or a hypervisor that has other things to do."""

    name = "pause node"
    seconds = (0.1, 0.4, 1.5, 6.0)

    def begin(self) -> str | None:
        node = self.scene.likely_leader()
        self.process: Process = node.process
        if not self.process.alive or self.process.paused:
            return None
        self.world.loop.pause(self.process)
        return node.name

    def heal(self) -> None:
        if self.process.alive and self.process.paused:
            self.world.loop.resume(self.process)


class PauseClient(Kind):
    name = "pause client"
    seconds = (0.5, 2.0, 6.0, 15.0)

    def begin(self) -> str | None:
        client = self.rng.choice(list(self.world.clients.values()))
        self.process: Process = client.process
        if not self.process.alive or self.process.paused:
            return None
        self.world.loop.pause(self.process)
        return client.name

    def heal(self) -> None:
        if self.process.alive and self.process.paused:
            self.world.loop.resume(self.process)
