"""Members that come and go, under whatever else there is."""

import asyncio

from tenure_chaos.sim.faults.kind import Kind
from tenure_chaos.sim.node import SimNode
from tenure_cluster.raft.changes import Changed, ChangeRefused, ChangeUnknown
from tenure_cluster.raft.membership import Add, Change, Membership, Readdress, Remove

AGAIN_S = 0.5
"""After which an order that was refused, or of which nothing was heard, is given again."""

MEMBERS_MAX = 7
VOTERS_MIN = 2


class ChangeMembers(Kind):
    """A new node joins, a member is removed, one is replaced, or one has an address said: one order after the
    other, each given again to whoever leads until it has come about or the time is over. A leader that is to
    be removed hands its office over first, as the service has it do.
    """

    name = "change members"
    seconds = (5.0, 15.0, 40.0)

    def begin(self) -> str | None:
        leader = self.world.leader()
        if leader is None:
            return None
        members = list(self.world.nodes)
        spare = [n for n in self.world.hosts.values() if n.joins and n.process.incarnation == 0]
        if spare and (len(members) < 3 or (self.rng.random() < 0.6 and len(members) < MEMBERS_MAX)):
            new = spare[0]
            self.orders: list[Change] = [Add(new.name, new.peer_address, f"http://{new.name}")]
            if self.rng.random() < 0.5:
                self.orders.append(Remove(self.rng.choice(members)))
            self.world.start_node(new)
        elif len(members) > 2 and self.rng.random() < 0.7:
            leaving = leader.name if self.rng.random() < 0.4 else self.rng.choice(members)
            self.orders = [Remove(leaving)]
        else:
            named = self.world.hosts[self.rng.choice(members)]
            self.orders = [Readdress(named.name, named.peer_address, f"http://{named.name}")]
        self.until = self.world.now() + self.rng.choice(self.seconds)
        return ", ".join(f"{type(order).__name__} {order.id}" for order in self.orders)

    async def last(self) -> None:
        for order in self.orders:
            await self._have(order)
        members = self.world.membership
        if len(self.orders) > 1 and all(_is_so(order, members) for order in self.orders):
            self.world.count("member replaced")

    async def _have(self, order: Change, *, refused: bool = False) -> None:
        """Give the order until it has come about. `refused`: what is to come about is that it never will."""
        while self.world.now() < self.until:
            leader = self.world.leader()
            if isinstance(order, Remove) and len(self.world.membership.voters) <= VOTERS_MIN:
                return  # another one was faster, and with fewer there is nothing left to strike
            if leader is not None:
                if isinstance(order, Remove) and leader.name == order.id:
                    await self._hand_over(leader)
                elif (made := await self._asked(leader, order)) is not None:
                    if made and refused:
                        self.world.violation("names are not given again", f"{leader.name} has made {order}")
                    break
            await asyncio.sleep(AGAIN_S)
        if isinstance(order, Add) and not refused:
            while self.world.now() < self.until and order.id not in self.world.membership.voters:
                await asyncio.sleep(AGAIN_S)

    async def _asked(self, leader: SimNode, order: Change) -> bool | None:
        """Whether it is as wanted; None if it may yet be."""
        raft, ended = leader.raft, self.world.loop.create_future()
        assert raft is not None

        def told(outcome: object) -> None:
            if not ended.done():
                ended.set_result(outcome)

        leader.process.at_death[ended] = lambda: told(None)
        # As the process: what it schedules from here on has to end with it.
        self.world.loop.spawn(leader.process, lambda: raft.change_members(order, told))
        outcome = await ended
        if isinstance(outcome, ChangeRefused):
            self.world.count("change of members refused")
            if outcome.code == "member_exists" and order.id in self.world.membership.removed:
                self.world.count("name of a removed member refused")
            return None if outcome.code == "change_refused" else False
        if isinstance(outcome, ChangeUnknown):
            self.world.count("change of members unknown")
        return True if isinstance(outcome, Changed) else None

    async def _hand_over(self, leader: SimNode) -> None:
        raft = leader.raft
        assert raft is not None
        self.world.loop.spawn(leader.process, lambda: raft.transfer(None, lambda outcome: None))
        await asyncio.sleep(AGAIN_S)

    def heal(self) -> None:
        """Who has become a member stays one; who was asked for and has not become one waits."""


def _is_so(order: Change, members: Membership) -> bool:
    return order.id in (members.removed if isinstance(order, Remove) else members.voters)
