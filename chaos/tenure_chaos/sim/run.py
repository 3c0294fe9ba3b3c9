"""One seed from its beginning to its verdict.

A safety phase with work and faults; everything is mended; a liveness phase, in which the cluster must come to
a leader, to a fresh grant and to rest within bounds; then the rules over the whole history.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tenure_chaos.checkers import rules
from tenure_chaos.history import History
from tenure_chaos.sim import liveness
from tenure_chaos.sim.nemesis import Nemesis
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.workload import Worker
from tenure_chaos.sim.workloads.watching import begin_watchers
from tenure_chaos.sim.world import World
from tenure_cluster.raft import mitigations

OUTCOMES: Final = ("ok", "refused", "unavailable", "unknown", "pending")

HEARTBEAT_NEAR_MS: Final = 100
"""Clusters with longer lines have slower leaders."""


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
    for client in world.clients.values():
        world.counts.update(client.counts)
    lines = "long" if world.options.heartbeat_ms > HEARTBEAT_NEAR_MS else "short"
    world.count(
        f"simulated seconds of {world.options.nodes} nodes, {lines} lines", round(world.history.duration_s)
    )
    violations = [str(violation) for violation in world.violations]
    for verdict in rules.judge(world.history):
        rule = f"property {verdict.number}, {verdict.title}"
        violations += [f"{rule}: {wrong.what}" for wrong in verdict.wrongs]
        world.count(f"checked for property {verdict.number:02}", verdict.looked_at)
        if verdict.undecided:
            world.count(f"unchecked for property {verdict.number:02}", len(verdict.undecided))
    violations += [
        f"every result is understood: {call.client} {call.name} ended as {call.outcome!r}"
        for call in world.history.calls
        if call.outcome not in OUTCOMES
    ]
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
    begin_watchers(world)
    nemesis = Nemesis(world)
    faults = world.loop.create_task(nemesis.run())
    await asyncio.sleep(world.options.safety_s)
    nemesis.stopping = True
    faults.cancel()
    await nemesis.heal()
    if not await liveness.leader_in_time(world):
        return
    for worker in workers:
        worker.stopping = True
    client = next(iter(world.clients.values()))
    client.lose_reply = 0.0
    await liveness.fresh_acquire(world, client)
    if await liveness.settled(world):
        liveness.take_final_states(world)
        world.history.complete = True
