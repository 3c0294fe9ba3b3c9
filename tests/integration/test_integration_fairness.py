"""Fairness on three real nodes, judged by what the watchers are told: nobody is passed, nobody starves."""

import asyncio
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any, Final

import pytest
from any_node import AnyNode
from live_cluster import LiveCluster, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

READERS: Final = 12
READ_S: Final = 0.05
WRITERS: Final = 8
ENDS: Final = frozenset({"released", "expired", "broken", "handed_over"})

WAITERS: Final = int(os.environ.get("TENURE_TEST_QUEUE", "100"))
LEADER_CHANGES: Final = 3


SINGLES_PER_KEY: Final = 3
SET_PATIENCE_MS: Final = 10_000
"""For so long a waiting set lets others pass it, by cluster time."""


async def read_without_pause(nodes: AnyNode, name: str, read: list[str]) -> None:
    """Hold for a moment and come again, for as long as the test lasts."""
    for number in itertools.count():
        owner = f"{name}-{number}"
        lease = await nodes.acquired("k", owner, mode="shared", wait_ms=20_000)
        read.append(owner)
        await asyncio.sleep(READ_S)
        await nodes.ok("release", lease_id=lease["lease_id"])


async def test_a_writer_among_readers_without_pause_waits_only_for_those_who_are_there(
    tmp_path: Path,
) -> None:
    """Between a writer's place in the queue and its grant nobody is granted, and those end who were there."""
    async with LiveCluster(tmp_path, durability="os") as cluster:
        urls = [node.url for node in cluster.nodes.values()]
        read: list[str] = []
        readers = [
            asyncio.create_task(read_without_pause(AnyNode(urls, number), f"r{number}", read))
            for number in range(READERS)
        ]
        nodes = AnyNode(urls)

        async def readers_came() -> bool:
            for reader in readers:
                if reader.done():
                    reader.result()
            return len(read) >= came

        for number in range(WRITERS):
            came = len(read) + READERS
            await until(readers_came, 30.0, f"{READERS} more readers", 0.01)
            lease = await nodes.acquired("k", f"w{number}", wait_ms=20_000)
            await nodes.ok("release", lease_id=lease["lease_id"])
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        told = await nodes.told("k")

    holders: set[tuple[str, int]] = set()
    present: set[tuple[str, int]] | None = None
    waits: list[int] = []
    for event in told:
        who = (event["owner"], event["token"])
        writes = event["owner"].startswith("w")
        if event["kind"] == "queue_joined" and writes:
            present = set(holders)
        elif event["kind"] == "granted":
            if present is not None:
                assert writes, f"{who} was granted before a writer that waited"
                waits.append(len(present))
                present = None
            assert not (writes and holders), f"{who} was granted beside {holders}"
            holders.add(who)
        elif event["kind"] in ENDS:
            holders.remove(who)
            assert present is None or who in present
    assert present is None
    # A writer that finds nobody is granted at once; among so many readers that is the exception.
    assert len(waits) >= WRITERS / 2
    assert max(waits) > 1


async def hold_without_pause(nodes: AnyNode, key: str, name: str) -> None:
    for number in itertools.count():
        lease = await nodes.acquired(key, f"{name}-{number}", wait_ms=20_000)
        await asyncio.sleep(READ_S)
        await nodes.ok("release", lease_id=lease["lease_id"])


async def test_a_set_among_single_holders_without_pause_reserves_nothing_at_first_and_does_not_starve(
    tmp_path: Path,
) -> None:
    """Its keys are never free together by themselves: somebody waits for each of them all the time."""
    async with LiveCluster(tmp_path, durability="os") as cluster:
        urls = [node.url for node in cluster.nodes.values()]
        singles = [
            asyncio.create_task(hold_without_pause(AnyNode(urls, number), f"s/{key}", f"{key}{number}"))
            for key in "ab"
            for number in range(SINGLES_PER_KEY)
        ]
        nodes = AnyNode(urls)

        async def both_are_waited_for() -> bool:
            for single in singles:
                if single.done():
                    single.result()
            queues = [await nodes.ok("queue", key=f"s/{key}") for key in "ab"]
            return all(len(queue["waiters"]) >= 1 for queue in queues)

        await until(both_are_waited_for, 30.0, "somebody to wait for each key")
        asked = {"keys": ["s/a", "s/b"], "owner": "set", "ttl_ms": 60_000, "request_id": "set"}
        status = 0
        while status != 200:
            status, answer = await nodes.sure("acquire", **asked, wait_ms=20_000)
            assert status in (200, 202), answer
        for single in singles:
            single.cancel()
        await asyncio.gather(*singles, return_exceptions=True)
        told = await nodes.told("s/")

    joined = next(e for e in told if (e["kind"], e["owner"]) == ("queue_joined", "set"))
    granted = next(e for e in told if (e["kind"], e["owner"]) == ("granted", "set"))
    meanwhile = [
        event
        for event in told
        if joined["revision"] < event["revision"] < granted["revision"] and event["kind"] == "granted"
    ]
    patient_until_ms = joined["cluster_time_ms"] + SET_PATIENCE_MS
    passed_by = [event["cluster_time_ms"] for event in meanwhile]
    assert passed_by, "it kept its keys for itself from the first"
    assert max(passed_by) <= patient_until_ms


async def test_waiters_are_served_in_their_order_through_changes_of_leader(tmp_path: Path) -> None:
    """T52, T55: the queue is replicated state. The leader is killed while a part of the queue is left; each
    waiter asks on, at any node, and is granted once, when those before it have been."""
    async with LiveCluster(tmp_path, durability="os") as cluster:
        urls = [node.url for node in cluster.nodes.values()]
        nodes = AnyNode(urls)
        holder = await nodes.acquired("q", "holder")
        names = [f"w{number:03}" for number in range(WAITERS)]
        for position, name in enumerate(names, 1):
            body = waiter(name)
            status, answer = await nodes.sure("acquire", **body, wait_ms=10)
            assert (status, answer["position"]) == (202, position)
        serving = Serving()
        served = serving.served
        waiting = [
            asyncio.create_task(wait_and_release(AnyNode(urls, number), name, serving))
            for number, name in enumerate(names)
        ]
        await nodes.ok("release", lease_id=holder["lease_id"])
        leaders = []
        for change in range(1, LEADER_CHANGES + 1):
            goal = serving.goal = WAITERS * change // (LEADER_CHANGES + 1)

            async def so_far(goal: int = goal) -> bool:
                for task in waiting:
                    if task.done():
                        task.result()
                return len(served) >= goal

            await until(so_far, 120.0, f"{goal} served", 0.005)
            leader = await cluster.leader()
            leaders.append((leader.node_id, len(served)))
            cluster.kill(leader)
            serving.goal = WAITERS if change == LEADER_CHANGES else goal + 1
            cluster.start(leader)
            await cluster.ready()
        began_s = time.monotonic()
        await asyncio.gather(*waiting)
        figures = {"killed_after": leaders, "rest_s": round(time.monotonic() - began_s, 1)}
        print(json.dumps(figures))  # noqa: T201 -- shown when the test is run by hand
        told = await nodes.told("q")

    assert [name for name, _ in served] == names
    tokens = [token for _, token in served]
    assert tokens == sorted(set(tokens))
    assert [event["owner"] for event in told if event["kind"] == "queue_joined"] == names
    assert [event["owner"] for event in told if event["kind"] == "granted"] == ["holder", *names]
    assert [event for event in told if event["kind"] in ("queue_left", "expired", "broken")] == []


def waiter(name: str) -> dict[str, Any]:
    return {"key": "q", "owner": name, "ttl_ms": 60_000, "request_id": name}


class Serving:
    """Who has been served, and how many may be until the next leader is killed."""

    def __init__(self) -> None:
        self.served: list[tuple[str, int]] = []
        self.goal = 0


async def wait_and_release(nodes: AnyNode, name: str, serving: Serving) -> None:
    """Ask until granted, then hand on."""
    while True:
        status, answer = await nodes.sure("acquire", **waiter(name), wait_ms=20_000)
        if status == 200:
            break
        assert status == 202, (name, status, answer)
    serving.served.append((name, answer["lease"]["token"]))

    async def goes_on() -> bool:
        return len(serving.served) < serving.goal or serving.goal == WAITERS

    await until(goes_on, 60.0, "the queue to go on", 0.005)
    await nodes.ok("release", lease_id=answer["lease"]["lease_id"])
