"""What a kind of fault is made of, and what it may reach."""

import asyncio
import random
from collections.abc import Sequence
from typing import ClassVar

from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.world import World


class Scene:
    """The world, and choices in it."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng

    @property
    def nodes(self) -> list[SimNode]:
        return list(self.world.nodes.values())

    def any_node(self) -> SimNode:
        return self.rng.choice(self.nodes)

    def leader_or_any(self) -> SimNode:
        return self.world.leader() or self.any_node()

    def likely_leader(self) -> SimNode:
        """The leader half of the time, so that it is not just one of many."""
        return self.leader_or_any() if self.rng.random() < 0.5 else self.any_node()

    def majority(self) -> list[SimNode]:
        return self.rng.sample(self.nodes, len(self.nodes) // 2 + 1)


class Kind:
    """One fault: it begins, lasts and is healed. Made anew for each time that it strikes.

    ``begin`` answers whom it strikes, or None if it can't strike now. ``heal`` is called once for each
    ``begin`` that did, also if the world heals everything before the fault is over; it may not wait.
    """

    name: ClassVar[str]
    seconds: ClassVar[Sequence[float]] = (0.3, 1.5, 4.0, 10.0)
    """How long it may last."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.world = scene.world
        self.rng = scene.rng

    def begin(self) -> str | None:
        raise NotImplementedError

    async def last(self) -> None:
        """Return when it is over."""
        await asyncio.sleep(self.rng.choice(self.seconds))

    def heal(self) -> None:
        raise NotImplementedError
