"""A whole cluster with its clients in one thread, from one seed: what there is, and what is seen of it.

Whatever a process does is seen here: what its consensus part does by raft_rules.py, what the log does by
effects.py. What happens in a run is decided elsewhere: run.py, workload.py, nemesis.py.
"""

import asyncio
import errno
import hashlib
import random
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from tenure_chaos.history import Fault, History
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.crashes import Crashed, Crashes
from tenure_chaos.sim.disk import SimDisk
from tenure_chaos.sim.effects import Effects, WatchedReplica
from tenure_chaos.sim.loop import VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_chaos.sim.node import PEER_PORT, SimNode
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.raft_rules import RaftRules
from tenure_chaos.sim.register import Register
from tenure_chaos.sim.sizes import small
from tenure_cluster import faults
from tenure_cluster.raft import Raft, RaftOptions, mitigations
from tenure_cluster.raft.journal import JournalDamaged
from tenure_cluster.raft.members_file import MembersDiffer
from tenure_cluster.raft.membership import Membership, bootstrap
from tenure_cluster.raft.snapshot_file import SnapshotDamaged
from tenure_cluster.service.asks import Ask, NoAnswer, Outcome
from tenure_cluster.service.forwarding import DoneAll
from tenure_cluster.service.lease_service import LeaseService

DAMAGES: Final = (JournalDamaged, MembersDiffer, SnapshotDamaged)
"""How a node says that its data is not what was written there."""

SUCCESSORS_MAX: Final = 6

RATE_USED: Final = 0.98
"""Clocks keep within this part of the bound that is assumed of them, which leaves room for rounding."""


class Violation(Exception):
    """Something that must never be was seen."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


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
        shortest_s, longest_s = self.options.link_delay_s
        self.network.usual_delay_s = (shortest_s, longest_s)
        self.usual_slicing = self.network.slicing
        self.counts: Counter[str] = Counter()
        self.history = History(
            clock_rate_bound=self.options.clock_rate_bound, leader_bound_s=self.options.leader_bound_s
        )
        self.violations: list[Violation] = []
        self.trace: list[str] = []
        self._trace_hash = hashlib.sha256()
        self.crashes = Crashes()
        self.rules = RaftRules(self)
        self.effects = Effects(self, self.options.digest_every)
        self.registers: dict[str, Register] = {}
        self.successors: deque[Any] = deque(maxlen=SUCCESSORS_MAX)
        """The latest explicit sessions of all clients, open or not: something may be handed over to them."""
        self.slots_known: dict[str, int] = {}
        """By pool: the number of its slots that some client was told last."""
        self.hosts: dict[str, SimNode] = {}
        """All machines, those that are no members yet or no more among them."""
        count = self.options.nodes + self.options.spares
        names = [f"n{number}" for number in range(1, count + 1)]
        ports = {name: PEER_PORT + number for number, name in enumerate(names, 1)}
        first = names[: self.options.nodes]
        for name in names:
            self.hosts[name] = SimNode(
                name=name,
                members={other: ports[other] for other in dict.fromkeys((*first, name))},
                joins=name not in first,
                on_removed=self._removed,
                loop=self.loop,
                network=self.network,
                disk=SimDisk(self.loop, self._fork()),
                clock=self._clock(),
                rng=self._fork(),
                options=RaftOptions(
                    heartbeat_ms=self.options.heartbeat_ms,
                    election_timeout_min_ms=5 * self.options.heartbeat_ms,
                    election_timeout_max_ms=10 * self.options.heartbeat_ms,
                    snapshot_entries=self.options.snapshot_entries,
                    journal_segment_bytes=self.options.segment_bytes,
                    entry_bytes_max=self.options.entry_bytes_max,
                    transfer_window_bytes=2 * self.options.entry_bytes_max,
                    frame_bytes_max=4 * self.options.entry_bytes_max + 65_536,
                ),
                on=on,
                make_replica=lambda node: WatchedReplica(self.effects, node),
                observe=self._observe,
                on_fatal=self._fatal,
            )
        self.nodes: dict[str, SimNode] = {name: self.hosts[name] for name in first}
        """The members, as of the latest entry about them that is known to be committed."""
        self.membership = self.first_members = bootstrap(first)
        self._voters_most = len(first)
        self.clients = {
            name: SimClient(
                name=name,
                loop=self.loop,
                network=self.network,
                nodes=self.hosts,
                clock=self._clock(),
                rng=self._fork(),
            )
            for name in (f"c{number}" for number in range(1, self.options.clients + 1))
        }

    def _fork(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _clock(self) -> SimClock:
        bound = self.options.clock_rate_bound
        rate = 1.0 + self.rng.uniform(-bound, bound) * RATE_USED
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

    def now(self) -> float:
        """True time in seconds."""
        return self.loop.time()

    def _observe(self, node: SimNode, raft: Raft, service: LeaseService) -> None:
        """A process of a node is about to start."""
        self.rules.attach(node, raft)
        propose, propose_all = raft.propose, raft.propose_all

        def stamped(at_ms: int, command: bytes, done: Any) -> None:
            self.effects.stamped(at_ms, command)
            propose(at_ms, command, done)

        def all_stamped(at_ms: int, together: Sequence[bytes], done: Any) -> None:
            for command in together:
                self.effects.stamped(at_ms, command)
            propose_all(at_ms, together, done)

        setattr(raft, "propose", stamped)  # noqa: B010
        setattr(raft, "propose_all", all_stamped)  # noqa: B010
        self._watch_forwarding(service)

    def _watch_forwarding(self, service: LeaseService) -> None:
        """Count what is answered by another leader than the one that was asked first."""
        forward = service.forwarding.ask
        terms: dict[Ask, int] = {}

        def ask(leader: str, asks: Sequence[Ask], done: DoneAll) -> int:
            first = terms.setdefault(asks[0], service.leadership.term)

            def answered(outcomes: list[Outcome]) -> None:
                if not isinstance(outcomes[0], NoAnswer):
                    del terms[asks[0]]
                    if service.leadership.term != first:
                        self.count("forwarded call answered after a leader change")
                done(outcomes)

            return forward(leader, asks, answered)

        setattr(service.forwarding, "ask", ask)  # noqa: B010

    def _fatal(self, node: SimNode, error: BaseException) -> None:
        """A process ends itself, or has refused to start."""
        refused = node.refused_to_start is error
        self.note(f"{node.name} {'does not start' if refused else 'stops itself'}: {_said(error)}")
        if (number := _errno(error)) and node.excuses.get(number, 0) >= node.process.incarnation:
            self.count(f"stopped itself: {errno.errorcode[number]}")
        elif refused and node.rot is not None and isinstance(error, DAMAGES):
            self.count("rot refused")
            named = getattr(error, "file", node.rot.file), getattr(error, "offset", node.rot.offset)
            if named[0] != node.rot.file or named[1] > node.rot.offset:
                self.violation("damage is named", f"{node.name} has {node.rot} and says {_said(error)}")
        else:
            self.violation("nodes don't break", f"{node.name}: {_said(error)}")
        if node.process.alive:
            node.kill()

    # -- members

    def members_committed(self, membership: Membership) -> None:
        """An entry that says who the members are is committed."""
        if membership.index <= self.membership.index:
            return
        before, self.membership = self.membership, membership
        self.note(f"members are {_told(membership)}")
        for name in membership.names:
            self.nodes.setdefault(name, self.hosts[name])
        for name in before.names:
            if name not in membership.names:
                del self.nodes[name]
                self.count("member removed")
        for name in membership.voters:
            if name not in before.voters:
                self.count("member promoted")
        if len(membership.names) > len(before.names):
            self.count("member added")
        elif membership.names == before.names and membership.voters == before.voters:
            self.count("member readdressed")
        self._look_whether_all_are_others(membership)

    def _look_whether_all_are_others(self, membership: Membership) -> None:
        """Whether the cluster has grown by two, is as large as it was at first, and has nobody of then."""
        self._voters_most = max(self._voters_most, len(membership.voters))
        first, voters = self.first_members.names, membership.voters
        others = not set(first) & set(membership.names) and len(voters) == len(first)
        if others and not membership.learners and self._voters_most >= len(first) + 2:
            large = len(first) + 2
            self.count(f"every member replaced, from {len(first)} to {large} to {len(first)}")
            self._voters_most = len(first)

    def _removed(self, node: SimNode, how: str) -> None:
        """A process has learned that its node is removed, and ends."""
        self.note(f"{node.name} is removed: {how}")
        if node.name not in self.membership.removed:
            self.violation("only the removed are told so", f"{node.name}: {how}")
        if node.knows_removal:
            return
        node.knows_removal = True
        self.count("removed node told so")
        process = node.process

        def end() -> None:
            if node.process is process and process.alive:
                node.kill()

        self.loop.call_soon(end)

    # -- life

    def start_node(self, node: SimNode) -> None:
        """Start its program. Does nothing if it runs, or has learned that it must not."""
        if not node.process.alive and not node.knows_removal:
            node.start()

    def lose_power(self, node: SimNode) -> None:
        """A machine stops."""
        if lost := node.lose_power():
            self.count("power loss that lost something")
            self.note(f"{node.name} has lost or torn writes to {lost} files")

    def leader(self) -> SimNode | None:
        for node in self.nodes.values():
            if node.up and not node.process.paused and node.raft is not None and node.raft.serving():
                return node
        return None

    def run(self, main: Any) -> None:
        """Run a coroutine of the world to its end, and close everything."""
        asyncio.set_event_loop(None)
        options = self.options
        try:
            with small(tail_entries=options.tail_entries, piece_bytes=options.piece_bytes):
                self.loop.run_until_complete(main)
        finally:
            self.history.duration_s = self.loop.time()
            faults.disarm()
            for failure in self.loop.failures:
                error = failure.get("exception")
                if error is not None and not isinstance(error, Crashed):
                    self.violation(
                        "no stray exceptions", f"{failure.get('message')}: {type(error).__name__}: {error}"
                    )
            self._look_for_failed_tasks()
            self._close()

    def _look_for_failed_tasks(self) -> None:
        """What nobody awaits may fail without a word."""
        for task in self.loop._tasks:
            if task.done() and not task.cancelled() and task._log_traceback:
                error = task.exception()
                if not isinstance(error, Crashed):
                    self.violation("no stray exceptions", f"{task.get_name()}: {_where(error)}")

    def _close(self) -> None:
        with warnings.catch_warnings():
            # What a killed process had not begun yet never is.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.loop.discard_tasks()
        self.loop.close()


def _where(error: BaseException | None) -> str:
    assert error is not None
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{_said(error)} ({last.filename.rpartition('/')[2]}:{last.lineno} in {last.name})"


def _errno(error: BaseException | None) -> int:
    """Of the system's error that is the cause; 0 if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return 0 if error is None else error.errno or 0


def _told(membership: Membership) -> str:
    return " ".join(info.id if info.voter else f"({info.id})" for info in membership.members)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
