"""One live run's parts, as faults see them, and the one way to begin and end a fault."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from tenure_chaos.history import Fault as FaultRecord
from tenure_chaos.live.cluster import LiveCluster, LiveNode
from tenure_chaos.live.collect import Observations
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.lines import Lines
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.work.processes import ClientProcess


class Bench:
    """See the module's docstring."""

    def __init__(
        self,
        options: LiveOptions,
        directory: Path,
        cluster: LiveCluster,
        network: Lines,
        clients: dict[str, ClientProcess],
        say: Callable[[str], None],
    ) -> None:
        self.options = options
        self.directory = directory
        self.cluster = cluster
        self.network = network
        self.clients = clients
        self.rng = random.Random(f"faults of {options.seed}")
        self.began_at = time.monotonic()
        self.work_began_at = 0.0
        self.faults: list[FaultRecord] = []
        self.notes: list[tuple[float, str]] = []
        self.failures: list[str] = []
        """What went wrong with the bench itself."""
        self.seen: Observations | None = None
        """What the nodes have written down, once the run is over."""
        self.unfinished: list[asyncio.Task[None]] = []
        """Changes of members that could not be brought to their end when they were healed."""
        self._say = say
        self._on: dict[Fault, FaultRecord] = {}
        self._numbers = 0

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began_at

    def note(self, text: str) -> None:
        """Write down, and say, what has happened."""
        self.notes.append((self.now(), text))
        self._say(f"{self.now():7.2f}  {text}")

    # -- faults

    async def begin(self, kind: type[Fault]) -> Fault | None:
        """Strike. None if there is nobody to be struck now."""
        self._numbers += 1
        fault = kind(self, f"f{self._numbers}")
        began_at = self.now()
        try:
            target = await fault.inject()
        except BaseException:
            await self._heal(fault)
            raise
        if target is None:
            await self._heal(fault)
            return None
        self._on[fault] = record = FaultRecord(kind.name, target, began_at)
        self.faults.append(record)
        self.note(f"fault {kind.name}: {target}")
        return fault

    async def end(self, fault: Fault) -> None:
        """Heal. Does nothing if that was done."""
        record = self._on.pop(fault, None)
        if record is None:
            return
        await self._heal(fault)
        record.ended_at = self.now()
        self.note(f"healed {record.name}: {record.target}")

    async def _heal(self, fault: Fault) -> None:
        try:
            await fault.heal()
        finally:
            for node in self.cluster.nodes.values():
                if node.reserved_by == fault.id:
                    node.reserved_by = ""
            for client in self.clients.values():
                if client.reserved_by == fault.id:
                    client.reserved_by = ""

    async def end_all(self) -> None:
        """Heal what is on, last first."""
        for fault in reversed(list(self._on)):
            await self.end(fault)

    # -- who is there

    def names_by_url(self) -> dict[str, str]:
        """Of the nodes, as they name themselves."""
        return {node.http: node.name for node in self.cluster.nodes.values()}

    def routes_of(self, client: str) -> dict[str, str]:
        """Where a client reaches each node, by the node's URL."""
        network = self.network
        return {
            node.http: f"http://{network.address(f'{client}>{node.name}')}"
            for node in self.cluster.nodes.values()
        }

    # -- whom to strike

    def free_nodes(self) -> list[LiveNode]:
        """Nodes whose processes run and that no fault has to do with."""
        self.cluster.look()
        return [
            node
            for node in self.cluster.nodes.values()
            if node.running and not node.paused and not node.reserved_by
        ]

    def unread_lines(self) -> list[str]:
        """Lines with an end that may not read what it is sent: a process that is paused, dead or struck."""
        idle = {node for node in self.cluster.nodes if node not in {free.name for free in self.free_nodes()}}
        idle |= {name for name, client in self.clients.items() if client.reserved_by}
        lines = [*self.network.client_lines(), *self.network.peer_lines()]
        return [line for line in lines if idle.intersection(line.split(">"))]

    async def leader(self) -> LiveNode | None:
        """Who leads, if it can be said now."""
        return await self.cluster.leader()
