"""Follows the events of the cluster with the client's own watch, and writes down what it was told."""

import asyncio
import contextlib

import tenure
from tenure.errors import TenureError
from tenure_chaos.checkers.reading import place_of
from tenure_chaos.history import DEFAULT_TENANT, Watch, Watched
from tenure_chaos.live.work.routes import Routes
from tenure_chaos.live.work.world import LiveWorld

AGAIN_S = 0.2


def _written(watcher: str, at: float, event: tenure.Event) -> Watched:
    said = {"key": event.key, "owner": event.owner, "mode": event.mode, "slot": event.slot}
    place = place_of(said, DEFAULT_TENANT)[1] if event.key else ""
    return Watched(watcher, at, event.revision, event.kind, event.key, event.token, place)


async def watch(world: LiveWorld, name: str, routes: Routes, prefix: str) -> None:
    """Until it is cancelled. Once there are other nodes, these are asked from the next event on."""
    began = Watch(name, world.now(), prefix, 1 if not prefix else 0)
    world.history.watches.append(began)
    place: int | None = None if prefix else 0
    while True:
        version = routes.version
        async with tenure.connect(routes.addresses()) as client:
            while routes.version == version:
                try:
                    async with contextlib.aclosing(client.watch(prefix, after=place)) as events:
                        async for event in events:
                            world.history.watched.append(_written(name, world.now(), event))
                            place = event.revision
                            world.count(f"event {event.kind} told")
                            if routes.version != version:
                                break
                except TenureError as error:
                    world.count(f"watch met {type(error).__name__}")
                await asyncio.sleep(AGAIN_S)
