"""A node, most often the leader, that no other node hears and that hears none; clients reach it."""

from tenure_chaos.live.faults.cut import Cut


class IsolateLeader(Cut):
    name = "isolate leader"
    what = "the leader is cut off from all other nodes, not from the clients"

    async def inject(self) -> str | None:
        leader = await self.bench.leader()
        if leader is None:
            return None
        others = [name for name in self.bench.network.nodes if name != leader.name]
        return await self.cut(self.bench.network.between([leader.name], others), leader.name)


class IsolateNode(Cut):
    name = "isolate node"
    what = "some node is cut off from all other nodes, not from the clients"

    async def inject(self) -> str | None:
        name = self.rng.choice(self.bench.network.nodes)
        others = [other for other in self.bench.network.nodes if other != name]
        return await self.cut(self.bench.network.between([name], others), name)
