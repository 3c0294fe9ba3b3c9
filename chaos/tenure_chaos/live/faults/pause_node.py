"""SIGSTOP and SIGCONT: a node that does nothing for a while and does not know it."""

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault


class PauseNode(Fault):
    name = "pause node"
    what = "SIGSTOP of a node: its connections stay, nothing happens on them"
    how_healed = "SIGCONT: it goes on, with all that piled up"
    lasts_s = (0.3, 10.0)
    struck: LiveNode | None = None

    async def whom(self) -> LiveNode | None:
        return self.any_node()

    async def inject(self) -> str | None:
        self.struck = await self.whom()
        if self.struck is None:
            return None
        self.take(self.struck)
        self.bench.cluster.pause(self.struck)
        return self.struck.name

    async def heal(self) -> None:
        if self.struck is not None:
            self.bench.cluster.resume(self.struck)


class PauseLeader(PauseNode):
    name = "pause leader"
    what = "SIGSTOP of the leader, which then still thinks that it leads"

    async def whom(self) -> LiveNode | None:
        leader = await self.bench.leader()
        return leader if leader is not None and not leader.reserved_by else None
