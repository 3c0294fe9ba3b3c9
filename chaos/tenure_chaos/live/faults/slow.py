"""What slow lines have in common: toxics on the lines of one node, or on all lines."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure_chaos.live.faults.kind import HERE, Available, Fault
from tenure_chaos.live.lines import BOTH

if TYPE_CHECKING:
    from tenure_chaos.live.bench import Bench


class Slow(Fault):
    how_healed = "the toxics are removed; what was held back arrives"
    lasts_s = (2.0, 9.0)

    @classmethod
    def available(cls, bench: "Bench") -> Available:
        return HERE if bench.network.can_slow else Available(False, "that takes proxies")

    def some_lines(self) -> tuple[list[str], str]:
        """All lines of the cluster, those of one node, or those of one client; and what to call them."""
        network, roll = self.bench.network, self.rng.random()
        if roll < 0.3:
            return list(network.peer_lines()), "all nodes"
        if roll < 0.75:
            node = self.rng.choice(network.nodes)
            others = [other for other in network.nodes if other != node]
            return [*network.between([node], others), *network.client_lines(node=node)], node
        client = self.rng.choice(network.clients)
        return network.client_lines(client), client

    async def slow(self, lines: Iterable[str], type_: str, **attributes: int) -> bool:
        """False if another fault slows some of them."""
        lines = list(lines)
        if not self.bench.network.are_free(lines):
            return False
        await self.bench.network.toxic(self.id, lines, type_, BOTH, **attributes)
        return True

    async def heal(self) -> None:
        await self.bench.network.heal(self.id, self.bench.unread_lines())
