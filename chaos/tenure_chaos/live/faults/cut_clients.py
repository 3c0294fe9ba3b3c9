"""A client, or all, that reach no node, or not the leader."""

from tenure_chaos.live.faults.cut import Cut


class CutClients(Cut):
    name = "cut clients off"
    what = "a client reaches no node, or nobody reaches the leader, while the nodes reach each other"

    async def inject(self) -> str | None:
        network, roll = self.bench.network, self.rng.random()
        leader = await self.bench.leader()
        if roll < 0.5 or leader is None:
            client = self.rng.choice(network.clients)
            return await self.cut(network.client_lines(client), f"{client} from all nodes")
        return await self.cut(network.client_lines(node=leader.name), f"all clients from {leader.name}")
