"""Requests that arrive and have their effect, and whose answers are lost."""

from tenure_chaos.live.faults.kind import Fault


class LostReplies(Fault):
    name = "lost replies"
    what = "what clients ask of a node, or of all, arrives and has its effect; the answers are lost"
    how_healed = "answers arrive again; connections whose answers were lost are closed"
    lasts_s = (0.5, 5.0)

    async def inject(self) -> str | None:
        network = self.bench.network
        leader = await self.bench.leader()
        client = self.rng.choice(("", *network.clients))
        node = leader.name if leader is not None and self.rng.random() < 0.7 else ""
        lines = network.client_lines(client, node)
        await network.silence(self.id, lines, ["downstream"])
        return f"{node or 'all nodes'} to {client or 'all clients'}"

    async def heal(self) -> None:
        await self.bench.network.heal(self.id)
