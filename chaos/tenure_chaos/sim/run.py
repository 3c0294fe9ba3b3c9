"""One seed from its beginning to its verdict."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from tenure import _requests
from tenure_chaos.checkers import rules
from tenure_chaos.history import History
from tenure_chaos.sim.nemesis import Nemesis
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.workload import Worker
from tenure_chaos.sim.world import World
from tenure_cluster.raft import mitigations

LEADER_BOUND_S = 15.0
SETTLE_S = 1.0


@dataclass
class Report:
    """What one seed came to."""

    seed: int
    options: Options
    violations: list[str]
    counts: Counter[str]
    simulated_s: float
    wall_s: float
    trace_hash: str
    trace: list[str] = field(repr=False)
    history: History = field(repr=False)


def run_seed(seed: int, options: Options | None = None, on: frozenset[str] = mitigations.ALL) -> Report:
    """Simulate and check. Deterministic in its arguments."""
    began = time.perf_counter()
    world = World(seed, options, on)
    world.run(_main(world))
    violations = [str(violation) for violation in world.violations]
    violations += [f"{rule}: {what}" for rule, what in rules.check(world.history)]
    return Report(
        seed=seed,
        options=world.options,
        violations=violations,
        counts=world.counts,
        simulated_s=world.history.duration_s,
        wall_s=time.perf_counter() - began,
        trace_hash=world.trace_hash,
        trace=world.trace,
        history=world.history,
    )


async def _main(world: World) -> None:
    for node in world.nodes.values():
        world.start_node(node)
    workers = []
    for client in world.clients.values():
        worker = Worker(world, client)
        workers.append(worker)
        world.loop.spawn(client.process, lambda worker=worker: world.loop.create_task(worker.run()))
    nemesis = Nemesis(world)
    faults = world.loop.create_task(nemesis.run())
    await asyncio.sleep(world.options.safety_s)
    nemesis.stopping = True
    faults.cancel()
    await nemesis.heal()
    healed_at = world.loop.time()
    while world.leader() is None and world.loop.time() < healed_at + LEADER_BOUND_S:
        await asyncio.sleep(0.05)
    if world.leader() is None:
        world.violation("a leader within a bound", f"none {LEADER_BOUND_S} s after healing")
        return
    for worker in workers:
        worker.stopping = True
    await _fresh_acquire(world)
    await _settle(world)


async def _fresh_acquire(world: World) -> None:
    """The healed cluster grants a key that nobody has touched."""
    client = next(iter(world.clients.values()))
    client.lose_reply = 0.0
    worker = Worker(world, client)
    body = {"key": "fresh", "owner": "world", "ttl_ms": 3_000, "request_id": "fresh"}
    done = world.loop.create_future()

    async def ask() -> None:
        record, _, _ = await worker.call(_requests.acquire(body), **body)
        done.set_result(record.outcome)

    world.loop.spawn(client.process, lambda: world.loop.create_task(ask()))
    outcome = await done
    if outcome != "ok":
        world.violation("a fresh acquire is granted", f"it ended as {outcome}")


async def _settle(world: World) -> None:
    """All nodes come to the same index and the same digest; what was left behind ends by itself."""
    ends = world.loop.time() + 3 * max(world.options.ttl_ms) / 1000 + 60
    while world.loop.time() < ends:
        await asyncio.sleep(SETTLE_S)
        replicas = [node.replica for node in world.nodes.values() if node.up]
        if len(replicas) < len(world.nodes) or any(replica is None for replica in replicas):
            continue
        tables = [replica.table for replica in replicas if replica is not None]
        if any(table.leases or table.waiters for table in tables):
            continue
        if len({replica.applied_index for replica in replicas if replica is not None}) == 1:
            break
    else:
        left = {
            node.name: (
                len(node.replica.table.leases),
                len(node.replica.table.waiters),
                node.replica.applied_index,
            )
            if node.replica is not None
            else None
            for node in world.nodes.values()
        }
        world.violation("what is abandoned ends", f"leases, waiters, applied index: {left}")
        return
    digests = {node.name: node.replica.digest() for node in world.nodes.values() if node.replica is not None}
    if len(set(digests.values())) != 1:
        world.violation("equal digests", f"at the end {digests}")
