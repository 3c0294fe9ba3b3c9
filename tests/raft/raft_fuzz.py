"""Random stories for hand-driven clusters: links that break and stall, crashes anywhere in a disk
operation, snapshots.

Virtual time, one seed decides everything. First faults and clients, with the oracles of the hand kit after
every event; then everything heals, and the cluster must agree, take one more command and have lost nothing.
"""

import heapq
import random
from collections.abc import Callable

import msgspec
from disk_model import PowerLost
from raft_handkit import OPTIONS, HandNet, HandNode, Violation

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations


class FuzzNet(HandNet):
    """Messages arrive by themselves after a while; in order on one connection unless `disorder`."""

    def __init__(
        self, seed: int, *, disorder: bool, power: bool, on: frozenset[str], duration_s: float
    ) -> None:
        self.chance = random.Random(seed)
        self.disorder = disorder
        self.power = power
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.delay_s = self.chance.choice((0.0005, 0.002, 0.01, 0.05))
        self.sync_s = self.chance.choice((0.0005, 0.003, 0.02))
        self.tails: dict[tuple[str, str], float] = {}
        self.healing = False
        self.crashes = 0
        self.commands = 0
        options = msgspec.structs.replace(
            OPTIONS,
            snapshot_entries=self.chance.choice((5, 20, 1 << 30)),
            transfer_window_bytes=self.chance.choice((100, 1000, 1 << 20)),
        )
        super().__init__(self.chance.choice((3, 3, 3, 5)), options=options, on=on, seed=seed)
        self.end_s = self.clock.now_s + duration_s
        for node in self.nodes.values():
            node.core.replica.campaign_at(self.clock.now_s + self.chance.random())
            self.every_tick(node, node.life)
        self.after(0.5, self.propose)
        self.after(1.0, self.fault)

    # -- events

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (self.clock.now_s + delay_s, self.sequence, event))

    def run_until(self, end_s: float, done: Callable[[], bool] = lambda: False) -> bool:
        while self.events and self.events[0][0] <= end_s:
            time_s, _, event = heapq.heappop(self.events)
            self.clock.now_s = max(self.clock.now_s, time_s)
            event()
            if done():
                return True
        return done()

    def guarded(self, node: HandNode, work: Callable[[], None]) -> None:
        """The power may fail in the midst of it."""
        try:
            work()
        except PowerLost:
            self.kill(node, power=True)

    # -- nodes

    def every_tick(self, node: HandNode, life: int) -> None:
        if node.up and node.life == life:
            self.run_round(node, tick=True)
            self.guarded(node, lambda: node.disk.work(self.chance.randrange(4)))
            self.after(self.chance.uniform(0.01, 0.03), lambda: self.every_tick(node, life))

    def run_round(self, node: HandNode, *, tick: bool) -> None:
        if not node.up or node.ticket is not None:
            return
        self.guarded(node, lambda: node.round(tick=tick, sync=False))
        ticket, life = node.ticket, node.life
        if ticket is not None:
            slow = self.chance.random() < 0.01
            delay_s = self.chance.uniform(0.05, 1.5) if slow else self.chance.expovariate(1 / self.sync_s)
            self.after(delay_s, lambda: self.end_sync(node, life))

    def end_sync(self, node: HandNode, life: int) -> None:
        if node.up and node.life == life and node.ticket is not None:
            self.guarded(node, node.sync)
            self.run_round(node, tick=True)

    def kill(self, node: HandNode, *, power: bool) -> None:
        if node.up:
            self.crashes += 1
            self.crash(node.node_id, power=power)
            self.after(self.chance.uniform(0.05, 3.0), lambda: self.revive(node))

    def revive(self, node: HandNode) -> None:
        if node.up:
            return
        node.start()
        self.every_tick(node, node.life)
        for other in self.nodes:
            if other != node.node_id:
                self.after(self.chance.uniform(0, 0.3), lambda other=other: self.link(node.node_id, other))
                self.after(self.chance.uniform(0, 0.3), lambda other=other: self.link(other, node.node_id))

    def link(self, source: str, target: str) -> None:
        if (source, target) not in self.connections:
            self.connect(source, target)

    # -- messages

    def send(self, source: str, outbox: list[tuple[str, wire.Consensus]]) -> None:
        for target, message in outbox:
            connection = self.connections.get((source, target))
            if connection is None:
                continue
            data = wire.encode(message)
            times = 1
            at_s = self.clock.now_s + self.chance.uniform(0.3, 2.0) * self.delay_s
            if self.disorder and not self.healing:
                times = self.chance.choices((0, 1, 2), (5, 90, 5))[0]
                at_s += self.delay_s * self.chance.choice((0, 0, 1, 10, 60))
            else:
                at_s = self.tails[source, target] = max(at_s, self.tails.get((source, target), 0.0))
            for _ in range(times):
                self.after(
                    at_s - self.clock.now_s,
                    lambda t=target, d=data, c=connection: self.arrive(source, t, d, c),
                )

    def arrive(self, source: str, target: str, data: bytes, connection: int) -> None:
        node = self.nodes[target]
        current = self.connections.get((source, target)) == connection
        if node.up and (current or (self.disorder and not self.healing)):
            node.inbox.append((source, data))
            self.run_round(node, tick=True)

    # -- clients and faults

    def propose(self) -> None:
        if self.healing:
            return
        for node in self.nodes.values():
            if node.leads:
                count = self.chance.choice((1, 1, 1, 3, 10))
                commands = [
                    b"%d" % (self.commands + n) + bytes(self.chance.choice((0, 50))) for n in range(count)
                ]
                self.commands += count
                if node.propose(*commands):
                    self.run_round(node, tick=False)
        self.after(self.chance.expovariate(15.0), self.propose)

    def fault(self) -> None:
        if self.healing:
            return
        kind = self.chance.random()
        names = list(self.nodes)
        node = self.nodes[self.chance.choice(names)]
        leaders = [other for other in self.nodes.values() if other.leads]
        if leaders and self.chance.random() < 0.5:
            node = self.chance.choice(leaders)
        if kind < 0.35:
            source, target = self.chance.sample(names, 2)
            self.disconnect(source, target)
            self.after(
                self.chance.choice((0.0, 0.05, 2.0)) * self.chance.random(), lambda: self.link(source, target)
            )
        elif kind < 0.5:
            source, target = self.chance.sample(names, 2)
            self.tails[source, target] = self.clock.now_s + self.chance.uniform(0.1, 2.0)
        elif kind < 0.7:
            self.isolate(node.node_id)
            for other in names:
                if other != node.node_id:
                    for pair in ((node.node_id, other), (other, node.node_id)):
                        self.after(self.chance.uniform(0.2, 3.0), lambda pair=pair: self.link(*pair))
        elif kind < 0.8 and self.power and node.up:
            node.disk.fail_after(self.chance.randrange(12))
        elif kind < 0.83:
            for other in self.nodes.values():
                self.kill(other, power=self.power)
        elif kind < 0.95:
            self.kill(node, power=self.power and self.chance.random() < 0.5)
        elif node.up and node.core.replica.leader_id is not None:
            node.inbox.clear()
            node.core.leader_gone(node.core.replica.leader_id)
        self.after(self.chance.expovariate(2.5), self.fault)

    # -- the end

    def heal_and_check(self) -> None:
        self.healing = True
        self.delay_s, self.sync_s = 0.001, 0.001
        self.tails.clear()
        for node in self.nodes.values():
            node.disk._fail_at = None
            self.revive(node)
        self.run_until(self.clock.now_s + 1.0)
        for source in self.nodes:
            for target in self.nodes:
                if source != target:
                    self.link(source, target)

        def one_leader() -> bool:
            leaders = [node for node in self.nodes.values() if node.leads]
            return len(leaders) == 1 and leaders[0].core.serving and leaders[0].ticket is None

        if not self.run_until(self.clock.now_s + 15.0, one_leader):
            raise Violation("no leader after everything healed")
        leader = next(node for node in self.nodes.values() if node.leads)
        leader.propose(b"probe")
        self.run_round(leader, tick=True)

        def agreed() -> bool:
            return all(node.up and node.machine.values()[-1:] == [b"probe"] for node in self.nodes.values())

        if not self.run_until(self.clock.now_s + 15.0, agreed):
            raise Violation("the nodes do not come to agree after everything healed")
        if len({tuple(node.machine.applied) for node in self.nodes.values()}) != 1:
            raise Violation("the nodes agree on different states")
        self.check_acknowledged()


def run_story(
    seed: int,
    *,
    disorder: bool = False,
    power: bool = False,
    on: frozenset[str] = mitigations.ALL,
    duration_s: float = 12.0,
) -> FuzzNet:
    """One whole story. Raises Violation or whatever the product raises."""
    net = FuzzNet(seed, disorder=disorder, power=power, on=on, duration_s=duration_s)
    net.run_until(net.end_s)
    net.heal_and_check()
    return net
