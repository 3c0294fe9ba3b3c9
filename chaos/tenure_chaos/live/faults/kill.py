"""SIGKILL: of one node, of the leader, of a majority, of all at once."""

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault


class Kill(Fault):
    """Common to all."""

    how_healed = "started again"
    struck: list[LiveNode]

    async def whom(self) -> list[LiveNode]:
        raise NotImplementedError

    async def inject(self) -> str | None:
        self.struck = []
        struck = await self.whom()
        if not struck:
            return None
        self.take(*struck)
        self.struck = struck
        self.bench.cluster.kill(*struck)
        return " ".join(node.name for node in struck)

    async def heal(self) -> None:
        # Not in step with each other: each comes when it comes.
        for node in self.rng.sample(self.struck, len(self.struck)):
            self.bench.cluster.start(node)


class KillOne(Kill):
    name = "kill one"
    what = "SIGKILL of a node; what was written to files stays"

    async def whom(self) -> list[LiveNode]:
        node = self.any_node()
        return [node] if node is not None else []


class KillLeader(Kill):
    name = "kill leader"
    what = "SIGKILL of the node that leads"

    async def whom(self) -> list[LiveNode]:
        leader = await self.bench.leader()
        return [leader] if leader is not None and not leader.reserved_by else []


class KillMajority(Kill):
    name = "kill majority"
    what = "SIGKILL of just so many nodes that the rest is no quorum"

    async def whom(self) -> list[LiveNode]:
        free = self.bench.free_nodes()
        count = len(self.bench.cluster.nodes) - self.bench.cluster.majority + 1
        return self.rng.sample(free, count) if len(free) >= count else []


class KillAll(Kill):
    name = "kill all"
    what = "SIGKILL of every node at once"
    lasts_s = (0.5, 3.0)

    async def whom(self) -> list[LiveNode]:
        free = self.bench.free_nodes()
        return free if len(free) == len(self.bench.cluster.nodes) else []
