"""Follows the events of the cluster with the client's own watch, and writes down what it was told."""

import asyncio
from collections.abc import Sequence

import tenure
from tenure.errors import TenureError
from tenure_chaos.checkers.reading import place_of
from tenure_chaos.history import DEFAULT_TENANT, Watch, Watched
from tenure_chaos.live.work.world import LiveWorld

AGAIN_S = 0.2


def _written(watcher: str, at: float, event: tenure.Event) -> Watched:
    said = {"key": event.key, "owner": event.owner, "mode": event.mode, "slot": event.slot}
    place = place_of(said, DEFAULT_TENANT)[1] if event.key else ""
    return Watched(watcher, at, event.revision, event.kind, event.key, event.token, place)


async def watch(world: LiveWorld, name: str, urls: Sequence[str], prefix: str) -> None:
    """Until it is cancelled. ``urls`` lead through proxies."""
    began = Watch(name, world.now(), prefix, 1 if not prefix else 0)
    world.history.watches.append(began)
    place: int | None = None if prefix else 0
    async with tenure.connect(urls) as client:
        while True:
            try:
                async for event in client.watch(prefix, after=place):
                    world.history.watched.append(_written(name, world.now(), event))
                    place = event.revision
                    world.count(f"event {event.kind} told")
            except TenureError as error:
                world.count(f"watch met {type(error).__name__}")
            await asyncio.sleep(AGAIN_S)
