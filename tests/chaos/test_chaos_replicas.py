"""The replicas that write down what they apply tell all that the node's own replica tells."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure_chaos.live.node.observer import ObservedReplica, Observer
from tenure_chaos.sim.effects import WatchedReplica
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.world import World
from tenure_cluster.lease.commands import Acquire, CloseSession, OpenSession, Tick, encode
from tenure_cluster.lease.events import Event
from tenure_cluster.service.replica import Replica

ACQUIRE = Acquire(
    tenant="t",
    keys=["k"],
    lease_ids=["l"],
    owner="a",
    session_id="s",
    ttl_ms=None,
    request_id="r",
    remember=True,
    wait=False,
    mode="exclusive",
    slots=0,
    grace_ms=0,
    if_held="return",
    metadata={},
    wall_ms=0,
)

COMMANDS = [
    (100, encode(OpenSession("t", "s", "a", 5_000, {}, 0))),
    (200, encode(Tick(0))),
    (300, encode(ACQUIRE)),
    (300, encode(CloseSession("t", "s", 0))),
    (300, encode(CloseSession("t", "s", 0))),
]


def told_by(replica: Replica) -> list[Any]:
    """All that its listeners hear of an entry, in order, and its answer."""
    heard: list[Any] = []

    def applied(asked: Sequence[Any], results: Sequence[object], events: Sequence[Event]) -> None:
        heard.append(("applied", list(asked), list(results), list(events)))

    replica.on_applied = applied
    replica.on_events = lambda events: heard.append(("events", list(events)))
    answer = list(replica.apply(2, COMMANDS))
    assert [what for what, *_ in heard] == ["events", "applied"]
    return [heard, answer, replica.applied_index, replica.digest()]


@pytest.fixture
def simulated() -> Iterator[WatchedReplica]:
    world = World(1, Options())
    yield WatchedReplica(world.effects, world.hosts["n1"])
    world.loop.close()


def test_a_simulated_replica_tells_all_that_a_replica_tells(simulated: WatchedReplica) -> None:
    assert told_by(simulated) == told_by(Replica())


def test_the_replica_of_a_live_node_tells_all_that_a_replica_tells(tmp_path: Path) -> None:
    assert told_by(ObservedReplica(Observer(tmp_path / "observed", "n1", 1))) == told_by(Replica())
