"""One node after the other is stopped as an operator would, and started again."""

import asyncio

from tenure_chaos.live.faults.kind import Fault


class RollingRestart(Fault):
    name = "rolling restart"
    what = "one node after the other is stopped by SIGTERM and started, each once the one before serves"
    how_healed = "all run"
    lasts_s = (6.0, 12.0)
    going: asyncio.Task[None] | None = None
    enough = False

    async def inject(self) -> str | None:
        nodes = self.bench.free_nodes()
        if len(nodes) < len(self.bench.cluster.nodes):
            return None
        self.take(*nodes)
        self.going = asyncio.ensure_future(self._restart_all())
        return " ".join(node.name for node in nodes)

    async def _restart_all(self) -> None:
        cluster = self.bench.cluster
        for node in list(cluster.nodes.values()):
            if self.enough:
                return
            if not await cluster.stop(node):
                self.bench.failures.append(f"{node.name} did not stop on SIGTERM")
            cluster.start(node)
            while await cluster.state(node) is None and node.running:
                await asyncio.sleep(0.1)

    async def heal(self) -> None:
        if self.going is None:
            return
        going, self.going, self.enough = self.going, None, True
        await going
