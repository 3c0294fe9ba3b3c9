"""The cluster gets other members, while all else goes on."""

import asyncio

from tenure_chaos.live.cluster import LiveNode
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.members import add, newcomer, remove

HEAL_S = 30.0
"""How long healing waits for the end of a change; other faults may be in its way."""

LEADER_PART = 0.4
GROW_PART = 0.4
DEAD_PART = 0.3


class ChangeMembers(Fault):
    name = "change members"
    what = (
        "new nodes join, and as many of before are removed, perhaps the leader, perhaps a dead one: one is "
        "replaced, or three become five and three again"
    )
    how_healed = "what was begun is brought to its end; who is a member stays one"
    lasts_s = (3.0, 8.0)
    going: asyncio.Task[None] | None = None

    async def inject(self) -> str | None:
        bench = self.bench
        leader = await bench.leader()
        free = bench.free_nodes()
        if leader is None or leader not in free or any(not task.done() for task in bench.unfinished):
            return None
        old = self.rng.sample(free, len(free))
        if self.rng.random() < LEADER_PART:
            old.sort(key=lambda node: node is not leader)
        grows = len(old) > 1 and self.rng.random() < GROW_PART
        leaving = old[: 2 if grows else 1]
        if len(free) == len(bench.cluster.nodes) and self.rng.random() < DEAD_PART:
            bench.cluster.kill(leaving[-1])
        for node in leaving:
            node.reserved_by = self._mark
        self.going = asyncio.ensure_future(self._change(leaving))
        bench.unfinished.append(self.going)
        count = len(bench.cluster.nodes)
        names = " ".join(node.name for node in leaving)
        return f"{count} become {count + 2} and {count}, without {names}" if grows else f"{names} is replaced"

    @property
    def _mark(self) -> str:
        """These nodes are left alone until the change has come to its end, healed or not."""
        return f"{self.id} change"

    async def _change(self, leaving: list[LiveNode]) -> None:
        bench, came = self.bench, list[LiveNode]()
        try:
            for _ in leaving:
                came.append(await newcomer(bench, self._mark))
                await add(bench, came[-1])
            for node in leaving:
                await remove(bench, node)
        except Exception as error:  # whatever it was, the run says so
            bench.failures.append(f"a change of members: {type(error).__name__}: {error}")
        finally:
            for node in (*leaving, *came):
                if node.reserved_by == self._mark:
                    node.reserved_by = ""

    async def heal(self) -> None:
        if self.going is not None:
            await asyncio.wait((self.going,), timeout=HEAL_S)
