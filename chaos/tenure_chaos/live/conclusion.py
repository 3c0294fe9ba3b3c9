"""The end of a run: everything is mended, the cluster comes to rest, and its nodes say what they have."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tenure import _requests
from tenure_chaos.history import History, NodeState
from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import CLUSTER_ID
from tenure_chaos.live.work.client import LiveClient
from tenure_chaos.live.work.program import LiveProgram
from tenure_chaos.live.work.routes import Routes
from tenure_chaos.live.work.world import LiveWorld
from tenure_chaos.sim.options import Options
from tenure_cluster.inspection import read_contents

SETTLE_EXTRA_S: Final = 60.0
"""Longer than anything but a lease stays that nobody asks for any more: a waiter that does not poll."""
LEADER_PATIENCE: Final = 4
"""How many times the bound is waited, so that a late leader is told apart from none."""
LOOK_S: Final = 0.1
SETTLE_LOOK_S: Final = 0.5


async def heal(bench: Bench) -> None:
    """End every fault, and see that nothing is left of any: what is, is a fault of the bench."""
    await bench.end_all()
    for line in await bench.network.heal_everything():
        bench.failures.append(f"the line {line} was not healed")
    for client in bench.clients.values():
        if client.paused:
            bench.failures.append(f"{client.name} was left paused")
            client.resume()
    for node in bench.cluster.nodes.values():
        if node.paused:
            bench.failures.append(f"{node.name} was left paused")
            bench.cluster.resume(node)
    bench.cluster.look()
    for node in bench.cluster.nodes.values():
        if not node.running:
            bench.note(f"{node.name} is started for the end")
            bench.cluster.start(node)


async def leader_comes(bench: Bench, history: History) -> bool:
    """Whether a node leads, and all can be asked, within several times the bound; the history says when."""
    history.healed_at = bench.now()
    deadline = time.monotonic() + LEADER_PATIENCE * history.leader_bound_s
    while time.monotonic() < deadline:
        if await bench.leader() is not None:
            history.leader_after_healing_at = bench.now()
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def fresh_acquire(bench: Bench, history: History, options: Options) -> str:
    """The healed cluster grants a key that nobody has touched. Returns what is wrong, or nothing."""
    nodes = bench.names_by_url()
    world = LiveWorld(seed=bench.options.seed, began_at=bench.began_at, options=options, nodes=nodes)
    client = LiveClient(
        name="bench", world=world, routes=Routes({url: url for url in nodes}), rng=random.Random("bench")
    )
    program = LiveProgram(world, client, None)
    ttl_ms = min(options.ttl_ms)
    body: dict[str, Any] = {"key": "fresh", "owner": "bench", "ttl_ms": ttl_ms, "request_id": "fresh"}
    record, *_ = await program.call(_requests.acquire(body), **body)
    await program.close()
    history.calls += world.history.calls
    return "" if record.outcome == "ok" else f"a fresh acquire ended as {record.outcome} {record.code}"


async def settle(bench: Bench, options: Options) -> str:
    """All nodes come to the same index with nothing held and nobody waiting. Returns what is wrong."""
    # Of a program with a broken promise, rest is neither expected nor needed.
    extra_s = 0.0 if bench.options.mutant else SETTLE_EXTRA_S
    deadline = time.monotonic() + 3 * max(options.ttl_ms) / 1000 + extra_s
    while True:
        states = await bench.cluster.states()
        if all(states.values()) and _is_at_rest([state for state in states.values() if state]):
            return ""
        if time.monotonic() > deadline:
            left = {
                name: None
                if state is None
                else (state["final"]["held"], state["final"]["waiting"], state["final"]["applied_index"])
                for name, state in states.items()
            }
            return f"what is abandoned does not end: leases, waiters, applied index: {left}"
        await asyncio.sleep(SETTLE_LOOK_S)


def _is_at_rest(states: Sequence[dict[str, Any]]) -> bool:
    if any(state["final"]["held"] or state["final"]["waiting"] for state in states):
        return False
    indexes = {
        (state["raft_applied"], state["last_index"], state["final"]["applied_index"]) for state in states
    }
    return len(indexes) == 1 and all(state["raft_applied"] == state["last_index"] for state in states)


async def take_final_states(bench: Bench, history: History) -> None:
    """Write down what every node has."""
    for state in (await bench.cluster.states()).values():
        if state is not None:
            history.final.append(msgspec.convert(state["final"], NodeState))


async def stop_nodes(bench: Bench) -> list[str]:
    """Stop all in good order, and compare what their disks hold. Returns what is wrong."""
    wrong = []
    for node in bench.cluster.nodes.values():
        if not await bench.cluster.stop(node):
            wrong.append(f"{node.name} did not stop on SIGTERM")
        elif node.endings[-1].code != 0:
            wrong.append(f"{node.name} ended with {node.endings[-1].code} on SIGTERM")
    return wrong + await asyncio.to_thread(_compare_disks, bench)


def _compare_disks(bench: Bench) -> list[str]:
    """Rebuilt from its disk, every replica has the same state at the last index that all logs reach."""
    contents = [read_contents(node.data_dir, CLUSTER_ID, node.name) for node in bench.cluster.nodes.values()]
    index = min(each.last_index for each in contents)
    wrong = [
        f"{each.node_id} has a torn end after a quiet stop: {each.torn}" for each in contents if each.torn
    ]
    if any(each.snapshot_index > index for each in contents):
        return [*wrong, f"a snapshot is ahead of a log: {[each.last_index for each in contents]}"]
    digests = {each.node_id: each.replica_at(index).digest() for each in contents}
    if len(set(digests.values())) != 1:
        wrong.append(f"the states on the disks differ at index {index}: {digests}")
    return wrong
