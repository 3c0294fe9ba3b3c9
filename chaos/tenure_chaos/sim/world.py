"""A whole cluster with its clients in one thread, from one seed.

A run: safety phase (work and faults) -> everything is mended -> liveness phase (a leader, equal digests, a
fresh acquire, within bounds) -> checks over the history. Rules of Raft are checked whenever a node applies
an entry or takes office.
"""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure_chaos.history import Effect, Fault, History
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.disk import SimDisk
from tenure_chaos.sim.loop import VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_chaos.sim.node import PEER_PORT, SimNode
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.register import Register
from tenure_cluster.lease.commands import decode
from tenure_cluster.raft import RaftOptions, mitigations
from tenure_cluster.service.replica import Replica


class Violation(Exception):
    """Something that must never be was seen."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class WatchedReplica(Replica):
    """A replica that tells the world what it applies."""

    def __init__(self, world: "World", node: SimNode) -> None:
        super().__init__()
        self._world = world
        self._node = node
        self._events: list[Any] = []

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        machine = self._machine
        results, events, each = [], [], []
        for at_ms, data in commands:
            applied = machine.apply(at_ms, decode(data))
            results.append(applied.result)
            events += applied.events
            each.append(applied.events)
        self.applied_index = index
        self._world.applied(self._node, index, commands, results, each)
        if events and self.on_events is not None:
            self.on_events(events)
        return results

    def restore(self, chunks: Any) -> None:
        super().restore(chunks)
        self._world.count("snapshot restored")


class World:
    """See the module's docstring."""

    def __init__(
        self, seed: int, options: Options | None = None, on: frozenset[str] = mitigations.ALL
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options or Options.for_seed(seed)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, self._fork())
        self.loop.sockets = self.network
        self.counts: Counter[str] = Counter()
        self.history = History(clock_rate_bound=self.options.clock_rate_bound)
        self.violations: list[Violation] = []
        self.trace: list[str] = []
        self._trace_hash = hashlib.sha256()
        self._log: dict[int, tuple[Sequence[tuple[int, bytes]], int]] = {}
        self._log_last = 0
        self._digests: dict[int, tuple[str, str]] = {}
        self._leaders: dict[int, str] = {}
        self.registers: dict[str, Register] = {}
        self.nodes: dict[str, SimNode] = {}
        names = [f"n{number}" for number in range(1, self.options.nodes + 1)]
        members = {name: PEER_PORT + number for number, name in enumerate(names, 1)}
        for name in names:
            self.nodes[name] = SimNode(
                name=name,
                members=members,
                loop=self.loop,
                network=self.network,
                disk=SimDisk(self.loop, self._fork()),
                clock=self._clock(),
                rng=self._fork(),
                options=RaftOptions(
                    snapshot_entries=self.options.snapshot_entries,
                    journal_segment_bytes=self.options.segment_bytes,
                    entry_bytes_max=self.options.entry_bytes_max,
                    transfer_window_bytes=2 * self.options.entry_bytes_max,
                    frame_bytes_max=4 * self.options.entry_bytes_max + 65_536,
                ),
                on=on,
                make_replica=lambda node: WatchedReplica(self, node),
                on_fatal=self._fatal,
            )
        self.clients = {
            name: SimClient(
                name=name,
                loop=self.loop,
                network=self.network,
                nodes=self.nodes,
                clock=self._clock(),
                rng=self._fork(),
            )
            for name in (f"c{number}" for number in range(1, self.options.clients + 1))
        }

    def _fork(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _clock(self) -> SimClock:
        bound = self.options.clock_rate_bound
        rate = 1.0 + self.rng.uniform(-bound, bound) * 0.98
        return SimClock(self.loop, self._fork(), offset_s=self.rng.uniform(0, 1e6), rate=rate)

    # -- what is seen

    def note(self, text: str) -> None:
        """A line of the trace; its hash identifies the run."""
        line = f"{self.loop.time():12.6f} {text}"
        self._trace_hash.update(line.encode())
        self.trace.append(line)

    @property
    def trace_hash(self) -> str:
        return self._trace_hash.hexdigest()

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def violation(self, rule: str, what: str) -> None:
        self.note(f"VIOLATION {rule}: {what}")
        self.violations.append(Violation(rule, what))

    def begin_fault(self, name: str, target: str) -> Fault:
        fault = Fault(name, target, self.loop.time())
        self.history.faults.append(fault)
        self.count(f"fault {name}")
        self.note(f"fault {name} {target}")
        return fault

    def end_fault(self, fault: Fault) -> None:
        if fault.ended_at == float("inf"):
            fault.ended_at = self.loop.time()
            self.note(f"healed {fault.name} {fault.target}")

    # -- rules of Raft, at every apply and every office

    def applied(
        self,
        node: SimNode,
        index: int,
        commands: Sequence[tuple[int, bytes]],
        results: Sequence[Any],
        events: Sequence[Sequence[Any]],
    ) -> None:
        known = self._log.get(index)
        term = self._term_at(node, index)
        if known is None:
            if index < self._log_last:
                self.violation(
                    "committed entries are final", f"{node.name} applied {index}, which was not there"
                )
            self._log[index] = ([*commands], term)
            self._log_last = max(self._log_last, index)
            self._check_on_quorum(index, term)
            self._record(index, commands, results, events)
            content = hashlib.sha256(repr(commands).encode()).hexdigest()[:8]
            self.note(f"{node.name} applied {index} term {term} {content}")
        elif known[0] != [*commands] or known[1] != term:
            self.violation("committed entries are final", f"{node.name} applied another entry at {index}")
        if index % self.options.digest_every == 0:
            assert node.replica is not None
            digest = node.replica.digest()
            first = self._digests.setdefault(index, (node.name, digest))
            if first[1] != digest:
                self.violation("equal digests", f"{first[0]} and {node.name} differ at {index}")

    def _record(
        self, index: int, commands: Any, results: Sequence[Any], events: Sequence[Sequence[Any]]
    ) -> None:
        for place, ((at_ms, data), result, happened) in enumerate(
            zip(commands, results, events, strict=True)
        ):
            command = decode(data)
            self.history.effects.append(
                Effect(
                    index=index,
                    place=place,
                    first_applied_at=self.loop.time(),
                    at_ms=at_ms,
                    command=type(command).__name__,
                    fields=plain(command),
                    result=type(result).__name__,
                    result_fields=plain(result),
                    events=tuple(plain(event) for event in happened),
                )
            )
            self.count(f"result {type(command).__name__} {type(result).__name__}")
            for event in happened:
                self.count(f"event {event.kind}")

    def _term_at(self, node: SimNode, index: int) -> int:
        raft = node.raft
        assert raft is not None
        consensus = raft._consensus
        assert consensus is not None
        return consensus.replica.term_at(index) or 0

    def _check_on_quorum(self, index: int, term: int) -> None:
        """A committed entry is in the durable log of a majority, whichever of them run."""
        holders = 0
        for node in self.nodes.values():
            consensus = node.raft._consensus if node.raft is not None else None
            same = consensus is None or consensus.replica.term_at(index) in (term, None)
            if same and node.durable_index() >= index:
                holders += 1
        if holders * 2 <= len(self.nodes):
            self.violation("durable on a quorum", f"entry {index} was applied with {holders} durable copies")

    def role(self, node: SimNode, role: str, leader: str | None, term: int) -> None:
        self.note(f"{node.name} is {role} in term {term}, leader {leader}")
        if role != "leader":
            return
        self.count("leader elected")
        first = self._leaders.setdefault(term, node.name)
        if first != node.name:
            self.violation("one leader a term", f"{first} and {node.name} in term {term}")
        assert node.raft is not None
        consensus = node.raft._consensus
        assert consensus is not None
        replica = consensus.replica
        for index in range(max(replica.first_index, self._log_last - 2_000), self._log_last + 1):
            known = self._log.get(index)
            if known is not None and replica.term_at(index) != known[1]:
                self.violation(
                    "leaders are complete", f"{node.name} leads in term {term} without entry {index}"
                )
                return

    def _fatal(self, node: SimNode, error: BaseException) -> None:
        self.note(f"{node.name} stopped itself: {type(error).__name__}: {error}")
        self.count(f"stopped itself: {type(error).__name__}")
        if not isinstance(error, OSError):
            self.violation("nodes don't break", f"{node.name}: {type(error).__name__}: {error}")
        if node.process.alive:
            node.kill()

    # -- life

    def start_node(self, node: SimNode) -> None:
        node.start()
        self.loop.create_task(self._watch_role(node, node.process.incarnation))

    async def _watch_role(self, node: SimNode, incarnation: int) -> None:
        while node.process.incarnation == incarnation and node.process.alive and node.service is None:
            await asyncio.sleep(0.001)
        raft = node.raft
        if raft is None or node.process.incarnation != incarnation or raft.on_role is None:
            return
        inner = raft.on_role

        def on_role(role: Any, leader: str | None, term: int) -> None:
            self.role(node, role, leader, term)
            inner(role, leader, term)

        raft.on_role = on_role

    def leader(self) -> SimNode | None:
        for node in self.nodes.values():
            if node.up and not node.process.paused and node.raft is not None and node.raft.serving():
                return node
        return None

    def run(self, main: Any) -> None:
        """Run a coroutine of the world to its end, and close everything."""
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(main)
        finally:
            self.history.duration_s = self.loop.time()
            for failure in self.loop.failures:
                error = failure.get("exception")
                if error is not None:
                    self.violation(
                        "no stray exceptions", f"{failure.get('message')}: {type(error).__name__}: {error}"
                    )
            self._close()

    def _close(self) -> None:
        self.loop.discard_tasks()
        self.loop.close()


def plain(value: Any) -> Any:
    """A struct of the machine, and all within, as plain data: a dictionary by field."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
