"""Clusters without sockets, threads or time: every message, tick, sync and crash happens when the test says
so.

The consensus, the journal, the snapshots and the election rules are the real ones, on disks in memory that
know what is durable. A node obeys the barrier of the pump: nothing is delivered and nothing ticks while its
sync is under way. Oracles look at every entry that is applied, every office that is taken and every answer
that is given.
"""

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from disk_model import ModelDisk

from tenure_cluster.raft import RaftOptions, mitigations
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.journal import Journal, SyncTicket
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.raft.snapshots import Snapshots

OPTIONS = RaftOptions(
    election_timeout_min_ms=400,
    election_timeout_max_ms=1400,
    heartbeat_ms=100,
    snapshot_entries=1 << 30,
    entry_bytes_max=1 << 16,
    journal_segment_bytes=64 << 10,
)


class Violation(AssertionError):
    """Raft or a promise to a client is broken."""


class HandClock:
    def __init__(self, seed: int = 0) -> None:
        self.now_s = 1000.0
        self.chance = random.Random(seed)

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0

    def random(self) -> float:
        return self.chance.random()


class HandMachine:
    """Applied (index, command) pairs, in order."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []
        self.time_ms = 0

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        self.applied.extend((index, command) for _, command in commands)
        return [None] * len(commands)

    def snapshot(self) -> Iterator[bytes]:
        packed = msgspec.msgpack.encode(self.applied)
        return iter([packed[at : at + 500] for at in range(0, len(packed), 500)])

    def restore(self, chunks: Iterable[bytes], index: int) -> None:
        self.applied = msgspec.msgpack.decode(b"".join(chunks), type=list[tuple[int, bytes]])

    def values(self) -> list[bytes]:
        return [command for _, command in self.applied]


class InFlight(NamedTuple):
    connection: int
    data: bytes


class HandNode:
    """One member. `consensus` is None while it is down; its disk stays."""

    def __init__(self, net: "HandNet", node_id: str) -> None:
        self.net = net
        self.node_id = node_id
        self.disk = ModelDisk()
        self.consensus: Consensus | None = None
        self.ticket: SyncTicket | None = None
        self.commit_index = 0
        self.life = 0

    @property
    def up(self) -> bool:
        return self.consensus is not None

    @property
    def core(self) -> Consensus:
        assert self.consensus is not None, f"{self.node_id} is down"
        return self.consensus

    def start(self) -> None:
        net = self.net
        self.life += 1
        self.machine = HandMachine()
        self.inbox: deque[tuple[str, bytes]] = deque()
        self.deferred: list[object] = []
        self.pending: dict[int, tuple[int, list[bytes]]] = {}
        self.offices = 0
        self.commit_index = 0
        store = SnapshotStore(self.disk, "hand")
        info = store.latest()
        self.journal = Journal.open(
            self.disk,
            net.clock,
            cluster_id="hand",
            node_id=self.node_id,
            segment_bytes=net.options.journal_segment_bytes,
            snapshot=None if info is None else info.boundary,
        )
        if info is not None:
            self.machine.restore(store.chunks(info), info.index)
        self.snapshots = Snapshots(
            store=store,
            disk=self.disk,
            machine=self.machine,
            options=net.options,
            between_rounds=self.deferred.append,
            fail=self._fail,
        )
        self.consensus = Consensus(
            node_id=self.node_id,
            peers=[other for other in net.nodes if other != self.node_id],
            journal=self.journal,
            clock=net.clock,
            options=net.options,
            user=self,
            boundary=None if info is None else info.boundary,
            on=net.on,
        )
        self.journal.sync_now()
        self.consensus.synced()
        self.snapshots.consensus = self.consensus

    def _fail(self, error: BaseException) -> None:
        raise error

    def crash(self, *, power: bool = False) -> None:
        self.consensus = self.ticket = None
        if power:
            self.disk.lose_power(self.net.clock.chance)
        else:
            self.disk.kill()

    # -- rounds

    def round(self, *, tick: bool = False, sync: bool = True) -> None:
        """Deliver what has come, maybe tick, write; with `sync` the sync ends at once."""
        if self.consensus is None or self.ticket is not None:
            return
        deferred, self.deferred[:] = list(self.deferred), []
        for work in deferred:
            work()  # type: ignore[operator]
        while self.inbox:
            peer, data = self.inbox.popleft()
            self.core.deliver(peer, wire.decode_inbound(data))  # type: ignore[arg-type]
        self._note_office()
        if tick:
            self.core.tick()
            self._note_office()
            self.snapshots.make_if_due()
        self._write()
        if sync:
            self.sync()

    def _write(self) -> None:
        self.ticket = self.journal.flush_batch()
        if self.ticket is None:
            self.core.synced()
        self.net.send(self.node_id, self.core.take_early())
        if self.ticket is None or mitigations.SYNC not in self.net.on:
            self.net.send(self.node_id, self.core.take_held())
        self.net.check(self)

    def sync(self) -> None:
        """The sync that is under way ends."""
        if self.ticket is None or self.consensus is None:
            return
        self.ticket.sync()
        self.ticket = None
        self.journal.mark_durable()
        self.core.synced()
        self.net.send(self.node_id, self.core.take_held())
        self.net.send(self.node_id, self.core.take_early())

    def propose(self, *commands: bytes) -> bool:
        """Each command becomes an entry of its own, if this node leads."""
        if self.consensus is None or self.ticket is not None or self.core.office is None:
            return False
        for command in commands:
            index = self.core.append(wire.encode_entry([(0, command)]))
            self.pending[index] = (self.core.replica.term, [command])
        return True

    def campaign(self) -> None:
        """The election timer runs out, and the others are not asked first."""
        on = self.core._election
        before, on._pre_vote = on._pre_vote, False
        self.core.replica.campaign_at(0.0)
        self.round(tick=True)
        on._pre_vote = before

    def hold_elections(self) -> None:
        """The election timer does not run out by itself for a long time."""
        self.core.replica.campaign_at(self.net.clock.now_s + 1e6)

    def _note_office(self) -> None:
        offices = self.core.offices if self.core.office is not None else 0
        if offices != self.offices:
            self.pending.clear()
            self.offices = offices
            if offices:
                self.net.on_office(self)
            else:
                self.snapshots.end_office()

    # -- views

    @property
    def leads(self) -> bool:
        return self.consensus is not None and self.core.office is not None

    @property
    def last(self) -> int:
        return self.core.replica.last_index

    @property
    def commit(self) -> int:
        return self.core.replica.commit_index

    @property
    def term(self) -> int:
        return self.core.replica.term

    # -- what the consensus tells

    def on_apply(self, index: int, term: int, command: bytes) -> None:
        pairs = wire.decode_entry(command)
        self.machine.apply(index, pairs)
        self.snapshots.entry_applied(len(command))
        self.net.on_apply(self, index, term, command)
        known = self.pending.pop(index, None)
        if known is not None and known[0] == term:
            self.net.acknowledged.update(known[1])

    def on_snapshot_needed(self, peer: str) -> int:
        return self.snapshots.start_sending(peer)

    def on_snapshot_heartbeat(self, peer: str) -> None:
        self.snapshots.ask(peer)

    def on_snapshot(self, peer: str, message: wire.Snapshot) -> None:
        self.snapshots.received(peer, message)

    def on_snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        self.snapshots.answered(peer, message)


class HandNet:
    def __init__(
        self,
        size: int,
        *,
        options: RaftOptions = OPTIONS,
        on: frozenset[str] = mitigations.ALL,
        seed: int = 0,
    ) -> None:
        self.options = options
        self.on = on
        self.clock = HandClock(seed)
        self.acknowledged: set[bytes] = set()
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.queues: dict[tuple[str, str], deque[InFlight]] = defaultdict(deque)
        self.connections: dict[tuple[str, str], int] = {}
        self._connection = 0
        names = [f"n{n}" for n in range(1, size + 1)]
        self.nodes: dict[str, HandNode] = {}
        for name in names:
            self.nodes[name] = HandNode(self, name)
        for node in self.nodes.values():
            node.start()
        # The silence after a start is over.
        self.clock.now_s += 10.0
        for node in self.nodes.values():
            node.hold_elections()
        self.connect_all()

    def __getitem__(self, name: str) -> HandNode:
        return self.nodes[name]

    # -- links

    def connect(self, source: str, target: str) -> None:
        """A new connection on which `source` sends."""
        if not self.nodes[source].up or not self.nodes[target].up:
            return
        self._connection += 1
        self.connections[source, target] = self._connection
        self.nodes[source].core.link_up(target)
        self.send(source, self.nodes[source].core.take_early())

    def disconnect(self, source: str, target: str, *, drop: bool = True) -> None:
        if self.connections.pop((source, target), None) is None:
            return
        if self.nodes[source].up:
            self.nodes[source].core.link_down(target)
        if drop:
            self.queues[source, target].clear()

    def connect_all(self) -> None:
        for source in self.nodes:
            for target in self.nodes:
                if source != target and (source, target) not in self.connections:
                    self.connect(source, target)

    def isolate(self, name: str) -> None:
        for pair in list(self.connections):
            if name in pair:
                self.disconnect(*pair)

    def send(self, source: str, outbox: list[tuple[str, wire.Consensus]]) -> None:
        for target, message in outbox:
            connection = self.connections.get((source, target))
            if connection is not None:
                self.queues[source, target].append(InFlight(connection, wire.encode(message)))

    def deliver(self, source: str, target: str, count: int | None = None) -> None:
        """The next messages of this direction arrive and are worked off."""
        queue = self.queues[source, target]
        for _ in range(len(queue) if count is None else count):
            if queue:
                node = self.nodes[target]
                if node.up:
                    node.inbox.append((source, queue.popleft().data))
                    node.round()
                else:
                    queue.popleft()

    def inject(self, source: str, target: str, message: wire.Consensus) -> None:
        """A message of `source` that it did not really send arrives."""
        node = self.nodes[target]
        node.inbox.append((source, wire.encode(message)))
        node.round()

    def sent(self, source: str, target: str) -> list[wire.Inbound]:
        """What is under way; stays there."""
        return [wire.decode_inbound(message.data) for message in self.queues[source, target]]

    def crash(self, name: str, *, power: bool = False) -> None:
        self.nodes[name].crash(power=power)
        self.isolate(name)

    def restart(self, name: str) -> None:
        self.nodes[name].start()
        self.connect_all()

    # -- stories

    def elect(self, name: str, *voters: str) -> None:
        """`name` becomes leader by the votes of `voters`, in spite of whom they follow."""
        self.clock.now_s += self.options.election_timeout_min_ms / 1000 + 0.001
        for node in self.nodes.values():
            if node.up:
                node.hold_elections()
        self.nodes[name].campaign()
        for voter in voters:
            self.deliver(name, voter)
            self.deliver(voter, name)
        assert self.nodes[name].leads, f"{name} was not elected"

    def pump(self, *names: str, rounds: int = 6, step_s: float = 0.11) -> None:
        """Ticks and deliveries among these nodes until all is quiet; no elections."""
        among = [self.nodes[name] for name in names or self.nodes]
        for _ in range(rounds):
            self.clock.now_s += step_s
            for node in among:
                if node.up:
                    node.hold_elections()
                    node.round(tick=True)
                    node.disk.work()
            for _ in range(4):
                for source in among:
                    for target in among:
                        if source is not target:
                            self.deliver(source.node_id, target.node_id)
            for node in among:
                node.round(tick=True)

    # -- oracles

    def check(self, node: HandNode) -> None:
        if node.commit < node.commit_index:
            raise Violation(
                f"the commit index of {node.node_id} fell from {node.commit_index} to {node.commit}"
            )
        node.commit_index = node.commit

    def on_office(self, node: HandNode) -> None:
        other = self.leaders.setdefault(node.term, node.node_id)
        if other != node.node_id:
            raise Violation(f"{other} and {node.node_id} lead in term {node.term}")
        replica = node.core.replica
        for index, (term, _) in self.committed.items():
            if index >= replica.first_index and replica.term_at(index) != term:
                raise Violation(f"{node.node_id} leads in term {node.term} without committed entry {index}")

    def on_apply(self, node: HandNode, index: int, term: int, command: bytes) -> None:
        known = self.committed.setdefault(index, (term, command))
        if known != (term, command):
            raise Violation(f"{node.node_id} applies another entry at {index}")

    def check_acknowledged(self) -> None:
        """Call when all nodes agree."""
        for node in self.nodes.values():
            values = node.machine.values()
            lost = self.acknowledged - set(values)
            if lost:
                raise Violation(f"{node.node_id} has lost {sorted(lost)[:3]}, which were acknowledged")
            if len(set(values)) != len(values):
                raise Violation(f"{node.node_id} has applied something twice")
