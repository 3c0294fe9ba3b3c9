"""Faults laid in a node's way: it is told what happens once it comes there, and mostly ends by it."""

from abc import abstractmethod

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault


class Armed(Fault):
    """The node is this fault's until it is healed, and its process may end by itself meanwhile."""

    how_healed = "started again"
    struck: LiveNode | None = None

    async def inject(self) -> str | None:
        node = await self.likely_leader()
        if node is None:
            return None
        self.take(node)
        self.struck = node
        node.may_end = node.starts
        return f"{node.name}{await self.arm(node)}"

    @abstractmethod
    async def arm(self, node: LiveNode) -> str:
        """Give the order; returns what is told of it after the node's name. Raises NodeUnreachable."""

    async def disarm(self, node: LiveNode) -> bool:
        """Take the order back. False if that can't be done: then the process must go, or the order would
        outlive the fault."""
        return False

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is None:
            return
        if node.running and not await self.disarm(node):
            self.bench.cluster.kill(node)
        self.bench.cluster.start(node)
