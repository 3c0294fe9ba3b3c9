"""Every member replaced, under whatever else there is: two more at first, as many as before at the end."""

from tenure_chaos.sim.faults.membership import ChangeMembers
from tenure_chaos.sim.node import SimNode
from tenure_cluster.raft.membership import Add, Remove


class ReplaceAllMembers(ChangeMembers):
    """A cluster of three becomes one of five, loses one member of before after the other, each for a new one,
    and is one of three again, with nobody of before. Each name that has gone is asked for once more, and has
    to be refused. It strikes as long as there are enough nodes that may join.
    """

    name = "replace all members"

    def begin(self) -> str | None:
        leaving = list(self.world.nodes)
        if self.world.leader() is None or len(self._spares()) < len(leaving):
            return None
        self.rng.shuffle(leaving)
        self.leaving = leaving
        self.until = self.world.now() + self.world.options.safety_s
        return ", ".join(leaving)

    async def last(self) -> None:
        first, *others, final = self.leaving
        await self._join()
        await self._join()
        await self._leave(first)
        for name in others:
            if not await self._join():
                return
            await self._leave(name)
            self.world.count("member replaced")
        await self._leave(final)

    def _spares(self) -> list[SimNode]:
        return [node for node in self.world.hosts.values() if node.joins and node.process.incarnation == 0]

    async def _join(self) -> bool:
        """One more becomes a voter. False if there is nobody left, or it takes longer than the run."""
        spares = self._spares()
        if not spares:
            return False
        self.world.start_node(spares[0])
        new = spares[0]
        await self._have(Add(new.name, new.peer_address, f"http://{new.name}"))
        return new.name in self.world.membership.voters

    async def _leave(self, name: str) -> None:
        """One is removed, and is not taken back."""
        await self._have(Remove(name))
        if name in self.world.membership.removed:
            node = self.world.hosts[name]
            await self._have(Add(name, node.peer_address, f"http://{name}"), refused=True)
