"""Clocks, calls, and snapshots at awkward times."""

from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.faults.kind import Kind
from tenure_chaos.sim.world import RATE_USED


class WallStep(Kind):
    """A wall clock is set, forwards or backwards."""

    name = "wall clock step"
    seconds = (1.0, 10.0)

    def begin(self) -> str | None:
        self.node = self.scene.any_node()
        self.by_ms = self.rng.choice((-86_400_000, -5_000, 5_000, 86_400_000))
        self.node.clock.step_wall(self.by_ms)
        return f"{self.node.name} by {self.by_ms} ms"

    def heal(self) -> None:
        self.node.clock.step_wall(-self.by_ms)


class RateChange(Kind):
    """The clock of a node goes at another rate, within what is assumed of all clocks."""

    name = "clock rate"
    seconds = (2.0, 10.0)

    def begin(self) -> str | None:
        bound = self.world.options.clock_rate_bound
        if not bound:
            return None
        node = self.scene.any_node()
        self.clock: SimClock = node.clock
        self.before = self.clock.rate
        self.clock.set_rate(1.0 + self.rng.choice((-1, 1)) * bound * RATE_USED)
        return f"{node.name} {self.clock.rate:.5f}"

    def heal(self) -> None:
        self.clock.set_rate(self.before)


class LostReplies(Kind):
    """Half of the answers to a client are lost, each with its connection, after the effect."""

    name = "lost replies"
    seconds = (3.0,)

    def begin(self) -> str | None:
        self.client = self.rng.choice(list(self.world.clients.values()))
        self.client.lose_reply = 0.5
        return self.client.name

    def heal(self) -> None:
        self.client.lose_reply = self.world.options.lose_reply


class DuplicateRequests(Kind):
    """Half of the requests of a client that may be repeated arrive twice, the second time late."""

    name = "duplicate requests"
    seconds = (3.0,)

    def begin(self) -> str | None:
        self.client = self.rng.choice(list(self.world.clients.values()))
        self.client.duplicate_request = 0.5
        return self.client.name

    def heal(self) -> None:
        self.client.duplicate_request = self.world.options.duplicate_request


class LeaderTransfer(Kind):
    """The leader is asked to hand its office over: to a member that was named, whether it can take it or not,
    or to one that is up to date."""

    name = "leader transfer"
    seconds = (0.0,)

    def begin(self) -> str | None:
        leader = self.world.leader()
        if leader is None or leader.raft is None:
            return None
        others = [node.name for node in self.scene.nodes if node is not leader]
        raft, to = leader.raft, self.rng.choice(others) if self.rng.random() < 0.6 else None

        def done(outcome: object) -> None:
            self.world.count(f"leader transfer ended: {type(outcome).__name__}")

        # As the process: what it schedules from here on has to end with it.
        self.world.loop.spawn(leader.process, lambda: raft.transfer(to, done))
        return f"{leader.name} to {to or 'whom it likes'}"

    def heal(self) -> None:
        """An office that was handed over stays so."""


class ForcedCompaction(Kind):
    """One node, or every node, makes a snapshot now and drops what it covers."""

    name = "forced compaction"
    seconds = (0.0,)

    def begin(self) -> str | None:
        nodes = self.scene.nodes if self.rng.random() < 0.3 else [self.scene.any_node()]
        for node in nodes:
            node.snapshot_soon()
        return " ".join(node.name for node in nodes)

    def heal(self) -> None:
        """A snapshot does not end."""
