"""The nodes in two groups that don't reach each other, clients among them or not."""

from tenure_chaos.live.faults.cut import Cut


class Halves(Cut):
    name = "split in halves"
    what = "two groups of nodes that don't reach each other; half of the time each client is in one of them"

    async def inject(self) -> str | None:
        network = self.bench.network
        nodes = self.rng.sample(network.nodes, len(network.nodes))
        some, others = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
        lines = network.between(some, others)
        sides = ""
        if self.rng.random() < 0.5:
            for client in network.clients:
                side = self.rng.choice((some, others))
                lines += [f"{client}>{node}" for node in nodes if node not in side]
                sides += f", {client} with {' '.join(side)}"
        return await self.cut(lines, f"{' '.join(some)} | {' '.join(others)}{sides}")
