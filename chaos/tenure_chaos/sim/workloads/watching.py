"""Watchers: each follows what happens, on one node after another, and writes down what it is told.

A watcher is a client with a perfect line: what a node writes to it is there at once. What it is told is then
the work of the node alone. It takes no more for a while now and then, and its connection ends when the node
dies, when the node says so, and for no reason at all; it goes on after the revision that it knows, on any
node. Where a node does not remember that far, it asks the others; if none does, it has missed something, and
goes on from the revision that it is sent to.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tenure_chaos.checkers.reading import place_of
from tenure_chaos.checkers.watch import said_of
from tenure_chaos.history import DEFAULT_TENANT, Watch, Watched
from tenure_chaos.sim.effects import plain
from tenure_chaos.sim.loop import CURRENT, Process
from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.world import World
from tenure_cluster.lease.events import Event
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import EventsRequest
from tenure_cluster.service.watch import Subscription
from tenure_cluster.service.watch_messages import Notice

STAY_S: Final = 15.0
"""How long a watcher stays with a node, on average."""

BLOCKED: Final = 0.05
"""Chance that a watcher takes no more for a while after what it was told."""

AGAIN_S: Final = (0.001, 0.5)
"""How soon it connects again."""


class _Plain:
    """Tells things as they are."""

    def events(self, events: Sequence[Event]) -> Sequence[Event]:
        return events

    def notice(self, notice: Notice) -> Notice:
        return notice


_PLAIN: Final = _Plain()


class Watcher:
    """One of them, for the whole run."""

    def __init__(self, world: World, name: str, prefix: str, after: int | None) -> None:
        self.world = world
        self.name = name
        self.prefix = prefix
        self._place = after
        """What it goes on after; None before it knows any revision."""
        self._rng = random.Random(f"{name} in {world.seed}")
        self._subscription: Subscription | None = None
        self._process: Process | None = None
        """The node's, to which it is connected or is connecting."""
        self._watch = -1
        """Place of what it watches now in the history."""
        self._refused: dict[str, int] = {}
        """By node: the revision that it was sent to instead of its own."""

    def begin(self) -> None:
        """Connect to some node, now or when one is up."""
        up = [node for node in self.world.nodes.values() if node.up and not node.stopping]
        untried = [node for node in up if node.name not in self._refused] or up
        if not untried:
            self._soon()
            return
        node = self._rng.choice(untried)
        self._process = node.process
        node.process.at_death[self] = self._lost
        self.world.loop.spawn(node.process, self._connect, node)

    def _soon(self) -> None:
        self.world.loop.call_later(self._rng.uniform(*AGAIN_S), self.begin)

    def _connect(self, node: SimNode) -> None:
        """In the node's process, as all that the node calls."""
        service = node.service
        if service is None:
            self._lost()
            return
        request = EventsRequest(prefix=self.prefix, after=self._place)
        found = service.watch(DEFAULT_TENANT, request, _PLAIN, self._told, self._lost)
        if isinstance(found, Problem):
            self._was_refused(node, found)
            return
        self._refused.clear()
        self._subscription = found
        self._watch = len(self.world.history.watches)
        self.world.history.watches.append(
            Watch(self.name, self.world.now(), self.prefix, 0 if self._place is None else self._place + 1)
        )
        self.world.count("watch begun" if self._place is None else "watch resumed")
        self.world.loop.call_later(self._rng.expovariate(1.0 / STAY_S), self._leave, found)

    def _was_refused(self, node: SimNode, problem: Problem) -> None:
        self.world.count(f"watch refused {problem.code}")
        if problem.code == "compacted":
            self._refused[node.name] = int(problem.extra["revision"])
            if all(name in self._refused for name in self.world.nodes):
                self._missed(min(self._refused.values()))
                self._refused.clear()
        self._lost()

    def _missed(self, revision: int) -> None:
        """Whatever happened up to there it will not be told."""
        self._write(Watched(self.name, self.world.now(), revision, "gap"))
        self._place = max(self._place or 0, revision)

    def _told(self, told: Sequence[Event] | Notice) -> bool:
        world = self.world
        if isinstance(told, Notice):
            world.count(f"watch told {told.kind}")
            if told.kind == "bookmark":
                assert told.revision is not None
                self._place = told.revision
        else:
            for event in told:
                world.count(f"event {event.kind} told")
                said = plain(event)
                place, about = place_of(said)[1], said_of(said)
                self._write(
                    Watched(
                        self.name,
                        world.now(),
                        event.revision,
                        event.kind,
                        event.key,
                        event.token,
                        place,
                        about,
                    )
                )
                self._place = event.revision
        if self._rng.random() >= BLOCKED or self._subscription is None:
            return True
        world.count("watcher took no more for a while")
        world.loop.call_later(self._rng.expovariate(1.0), self._subscription.resume)
        return False

    def _write(self, item: Watched) -> None:
        self.world.history.watched.append(item)

    def _leave(self, subscription: Subscription) -> None:
        """Its connection breaks."""
        if self._subscription is subscription:
            subscription.close()
            self._lost()

    def _lost(self) -> None:
        """It is connected to no node any more, and connects again."""
        if self._process is None:
            return
        self._process.at_death.pop(self, None)
        self._process = None
        if self._subscription is not None:
            watches = self.world.history.watches
            watches[self._watch] = replace(watches[self._watch], ended_at=self.world.now())
            self._subscription = None
        # As nobody's process: the node's may be dying.
        token = CURRENT.set(None)
        try:
            self._soon()
        finally:
            CURRENT.reset(token)


def begin_watchers(world: World) -> None:
    """One follows everything from the beginning, one a single key from now on."""
    for name, prefix, after in (("w1", "", 0), ("w2", "k0", None)):
        Watcher(world, name, prefix, after).begin()
