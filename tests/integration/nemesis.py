"""Faults at random on a live cluster: some of the nodes killed or stopped, at any moment, and healed
again.
"""

import random

from conclusion import progress
from live_cluster import LiveCluster, LiveNode
from workload import Load


async def trouble(cluster: LiveCluster, load: Load, *, faults: int, seed: int) -> list[str]:
    """So many faults, each healed before the next; returns what was done, for the report.

    Each time one to all of the nodes are killed, or one or two are stopped; the load goes on all the while,
    and progress is demanded only when all are well again, and where a majority was left alone.
    """
    chance = random.Random(seed)
    done: list[str] = []
    for _ in range(faults):
        nodes = list(cluster.nodes.values())
        await progress(load, chance.choice((1, 20, 100, 300)), 60.0)
        count = chance.choice((1, 1, 1, 2, 3))
        victims = chance.sample(nodes, count)
        if chance.random() < 0.5:
            victims[0] = await cluster.leader()
            victims = list({node.node_id: node for node in victims}.values())
        done.append(await _fault(cluster, load, victims, chance))
        await cluster.ready(timeout_s=60.0)
    return done


async def _fault(cluster: LiveCluster, load: Load, victims: list[LiveNode], chance: random.Random) -> str:
    majority_left = len(victims) * 2 < len(cluster.nodes)
    names = "+".join(node.node_id for node in victims)
    if chance.random() < 0.7 or len(victims) == len(cluster.nodes):
        cluster.kill(*victims)
        if majority_left:
            await progress(load, chance.choice((1, 100, 500)), 60.0)
        for node in victims:
            cluster.start(node)
        return f"kill {names}"
    for node in victims:
        await cluster.pause(node)
    if majority_left:
        await progress(load, chance.choice((1, 100, 500)), 60.0)
    for node in victims:
        cluster.resume(node)
    return f"stop {names}"
