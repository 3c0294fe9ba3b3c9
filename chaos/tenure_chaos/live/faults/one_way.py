"""Lines that carry in one direction only."""

from tenure_chaos.live.faults.cut import Cut


class OneWay(Cut):
    name = "cut one way"
    what = "what one node sends reaches nobody, or nothing that is sent reaches it; the other way all is well"

    async def inject(self) -> str | None:
        leader = await self.bench.leader()
        nodes = self.bench.network.nodes
        likely = leader is not None and self.rng.random() < 0.6
        name = leader.name if leader is not None and likely else self.rng.choice(nodes)
        others = [other for other in nodes if other != name]
        if self.rng.random() < 0.5:
            return await self.cut([f"{name}>{other}" for other in others], f"{name} is not heard")
        return await self.cut([f"{other}>{name}" for other in others], f"{name} does not hear")
