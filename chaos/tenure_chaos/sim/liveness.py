"""After healing: what must come about within bounds, and what every node has then."""

import asyncio
from typing import Any, Final

from tenure import _requests
from tenure_chaos.history import NodeState, named
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.workload import Worker
from tenure_chaos.sim.world import World
from tenure_cluster.service.replica import Replica

LOOK_S: Final = 0.05
SETTLE_LOOK_S: Final = 0.25
SETTLE_EXTRA_S: Final = 60.0
"""Longer than anything but a lease stays that nobody asks for any more: a waiter that does not poll."""


async def leader_in_time(world: World) -> bool:
    """A node leads within the bound."""
    healed_at = world.history.healed_at = world.now()
    while world.leader() is None:
        if world.now() > healed_at + world.options.leader_bound_s:
            world.violation("a leader within a bound", f"none {world.options.leader_bound_s} s after healing")
            return False
        await asyncio.sleep(LOOK_S)
    world.history.leader_after_healing_at = world.now()
    return True


async def fresh_acquire(world: World, client: SimClient) -> None:
    """The healed cluster grants a key that nobody has touched."""
    worker = Worker(world, client)
    body: dict[str, Any] = {
        "key": "fresh",
        "owner": "world",
        "ttl_ms": min(world.options.ttl_ms),
        "request_id": "fresh",
    }
    done: asyncio.Future[str] = world.loop.create_future()

    async def ask() -> None:
        record, *_ = await worker.call(_requests.acquire(body), **body)
        done.set_result(record.outcome)

    world.loop.spawn(client.process, lambda: world.loop.create_task(ask()))
    outcome = await done
    if outcome != "ok":
        world.violation("a fresh acquire is granted", f"it ended as {outcome}")


async def settled(world: World) -> bool:
    """All nodes come to the same index with nothing held and nobody waiting: what was left behind ends by
    itself."""
    ends = world.now() + 3 * max(world.options.ttl_ms) / 1000 + SETTLE_EXTRA_S
    while not _is_settled(world):
        if world.now() > ends:
            left = {
                node.name: None
                if node.replica is None
                else (
                    len(node.replica.table.leases),
                    len(node.replica.table.waiters),
                    node.replica.applied_index,
                )
                for node in world.nodes.values()
            }
            world.violation("what is abandoned ends", f"leases, waiters, applied index: {left}")
            return False
        await asyncio.sleep(SETTLE_LOOK_S)
    return True


def _is_settled(world: World) -> bool:
    replicas = [node.replica for node in world.nodes.values() if node.up and node.replica is not None]
    if len(replicas) < len(world.nodes) or world.membership.learners:
        return False
    if any(replica.table.leases or replica.table.waiters for replica in replicas):
        return False
    return len({replica.applied_index for replica in replicas}) == 1


def take_final_states(world: World) -> None:
    """Write down what every node has, for the rules about the end of a run."""
    for node in world.nodes.values():
        if node.replica is None:
            continue
        world.history.final.append(state_of(node.name, node.replica))
    digests = {state.node: state.digest for state in world.history.final}
    if len(set(digests.values())) != 1:
        world.violation("equal digests", f"at the end {digests}")


def state_of(node: str, replica: Replica) -> NodeState:
    """What a node has, as data."""
    table = replica.table
    return NodeState(
        node=node,
        applied_index=replica.applied_index,
        digest=replica.digest(),
        held=tuple((named(lease.tenant, lease.key), lease.token) for lease in table.leases.values()),
        waiting=tuple(
            (named(waiter.tenant, key), waiter.request_id)
            for waiter in table.waiters.values()
            for key in waiter.keys
        ),
        records=tuple(
            (named(record.tenant, record.key), record.token, record.value.decode(errors="replace"))
            for record in table.records.values()
        ),
        floors=tuple(
            (named(tenant, f"{key}#{slot}" if state.mode == "permit" else key), guard.floor)
            for (tenant, key), state in table.keys.items()
            for slot, guard in state.guards.items()
        ),
    )
