"""A simulated cluster that does what a test tells it, step by step, and nothing by chance.

A story is a coroutine over a Stage: it starts the nodes, lets programs acquire and renew, cuts links, kills
whom it wants, and asserts what must then be. ``play`` runs it in a world without a nemesis, and afterwards
holds the whole run to the rules that every simulated run is held to.

    async def story(stage: Stage) -> None:
        await stage.start()
        held = await stage.actor("A").acquire("job", ttl_ms=5_000)
        await stage.kill(await stage.leader())
        ...

    play(story)
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from tenure_chaos.checkers import rules
from tenure_chaos.history import Effect
from tenure_chaos.sim.actor import Actor
from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.world import World

T = TypeVar("T")

QUIET = Options(nodes=3, clients=4, faults=(), snapshot_entries=100_000, breaks=False)
"""No fault but those of the story, and no snapshot either unless it asks for one."""

EVERY_S = 0.005
"""How often a condition is looked at."""

FINDINGS_MAX = 5
"""Most broken rules that an error names."""


class Missed(AssertionError):
    """What a story waited for did not come about."""


class Stage:
    """See the module's docstring. ``world`` is there for whatever has no method here."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._actors: dict[str, Actor] = {}

    @property
    def now(self) -> float:
        """True time in seconds."""
        return self.world.loop.time()

    # -- the company

    def actor(self, name: str) -> Actor:
        """The program of that name; the same one at every call."""
        if name not in self._actors:
            unused = list(self.world.clients.values())[len(self._actors)]
            self._actors[name] = Actor(self.world, unused, name)
        return self._actors[name]

    async def start(self) -> SimNode:
        """Start every node; the first leader."""
        for node in self.world.nodes.values():
            self.world.start_node(node)
        leader = await self.leader()
        await self.until(lambda: all(node.up for node in self.world.nodes.values()), "every node is up")
        return leader

    async def leader(self, *, not_in: tuple[SimNode, ...] = (), within_s: float = 15.0) -> SimNode:
        """Whoever serves as leader, as soon as somebody does who is not among those."""

        def found() -> SimNode | None:
            for node in self.world.nodes.values():
                running = node.up and not node.process.paused and node.raft is not None
                if node not in not_in and running and node.raft is not None and node.raft.serving():
                    return node
            return None

        return await self.until(found, "a leader", within_s=within_s)

    def others(self, node: SimNode) -> list[SimNode]:
        """The nodes without that one."""
        return [other for other in self.world.nodes.values() if other is not node]

    # -- time

    async def until(self, condition: Callable[[], T | None], what: str, *, within_s: float = 30.0) -> T:
        """Let time pass until the condition gives something true; that. Raises Missed, also if a rule is
        broken meanwhile."""
        ends = self.now + within_s
        while not (value := condition()):
            if self.world.violations:
                raise Missed(f"{self.world.violations[0]}, while waiting for: {what}")
            if self.now >= ends:
                raise Missed(f"not within {within_s} s: {what}")
            await asyncio.sleep(EVERY_S)
        return value

    async def within(self, seconds: float, awaited: Awaitable[T], what: str) -> T:
        """Await it. Raises Missed if it takes longer than that."""
        try:
            async with asyncio.timeout(seconds):
                return await awaited
        except TimeoutError:
            raise Missed(f"not within {seconds} s: {what}") from None

    # -- what befalls them

    def kill(self, *nodes: SimNode) -> None:
        """SIGKILL. What the node had written to its files stays."""
        for node in nodes:
            self.world.note(f"{node.name} is killed")
            node.kill()

    def restart(self, *nodes: SimNode) -> None:
        """Start killed nodes again."""
        for node in nodes:
            self.world.start_node(node)

    def cut(self, sources: Iterator[str] | list[str], targets: Iterator[str] | list[str]) -> None:
        """Nothing comes through from any of those to any of these."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                if source != target:
                    self.world.note(f"cut {source} > {target}")
                    self.world.network.cut(source, target)

    def cut_off(self, node: SimNode, *, also: list[Actor] | None = None) -> None:
        """Separate a node from its peers, and from those programs."""
        rest = [other.name for other in self.others(node)] + [actor.host for actor in also or []]
        self.cut([node.name], rest)
        self.cut(rest, [node.name])

    def mend(self) -> None:
        """Every link works again."""
        self.world.note("every link is mended")
        self.world.network.mend_all()

    # -- what is seen

    def effects(self, command: str = "", since: int = 0) -> list[Effect]:
        """What commands of that name came to, in the order of the log, from a place in that list on."""
        effects = self.world.history.effects[since:]
        return [effect for effect in effects if command in ("", effect.command)]

    def events(self, kind: str, key: str) -> list[tuple[Effect, dict[str, Any]]]:
        """What happened to a key, in the order of the log."""
        return [
            (effect, event)
            for effect in self.world.history.effects
            for event in effect.events
            if event["kind"] == kind and event["key"] == key
        ]

    def granted_at(self, key: str, token: int) -> float:
        """The true time at which the first node applied that grant."""
        for effect, event in self.events("granted", key):
            if event["token"] == token:
                return effect.first_applied_at
        raise Missed(f"token {token} of {key} was never granted")

    async def alike(self) -> None:
        """Wait until all nodes are up and have applied the same entries, and compare their states."""
        nodes = list(self.world.nodes.values())

        def level() -> bool:
            replicas = [node.replica for node in nodes if node.up and node.replica is not None]
            return len(replicas) == len(nodes) and len({replica.applied_index for replica in replicas}) == 1

        await self.until(level, "every node has applied the same entries")
        digests = {node.replica.digest() for node in nodes if node.replica is not None}
        if len(digests) != 1:
            raise Missed("the nodes have applied the same entries and differ")


Story = Callable[[Stage], Awaitable[None]]


def play(story: Story, seed: int = 1, *, allowing: str = "", **options: Any) -> World:
    """Run a story; the world as it is after its end. Raises what the story raises, and Missed if any rule was
    broken on the way, save for findings with the words ``allowing``. ``options`` are fields of Options."""
    world = perform(story, seed, **options)
    findings = [f"{rule}: {what}" for rule, what in rules.check(world.history)]
    if wrong := [finding for finding in findings if not allowing or allowing not in finding]:
        raise Missed("; ".join(wrong[:FINDINGS_MAX]))
    return world


def perform(story: Story, seed: int = 1, **options: Any) -> World:
    """The same without the checks of the history, which take long if it is long: Raft's own rules, and that
    nothing breaks, are checked as it runs."""
    world = World(seed, replace(QUIET, **options))
    world.run(story(Stage(world)))
    if world.violations:
        raise Missed("; ".join(str(violation) for violation in world.violations[:FINDINGS_MAX]))
    return world
