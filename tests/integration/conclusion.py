"""The end of a run: stop the load, look at everything, stop the nodes, and hold what was said against what
is there.
"""

import json
import random
from typing import Any

from check_history import check_history
from live_cluster import LiveCluster, LiveNode, until
from replicas import compare_replicas
from workload import Load


def new_load(cluster: LiveCluster) -> Load:
    """A load on all nodes, with a seed that is printed so that its intentions can be had again."""
    seed = random.randrange(1_000_000)
    print(f"seed of the load: {seed}")  # noqa: T201
    return Load([(node.node_id, node.url) for node in cluster.nodes.values()], seed=seed)


async def progress(load: Load, acknowledged: int, timeout_s: float = 30.0) -> None:
    """Wait until the load has had so many more acknowledged calls; raises what ended a client early."""
    seen = len(load.history.calls)
    count = 0

    async def enough() -> bool:
        nonlocal seen, count
        load.check_alive()
        calls = load.history.calls
        count += sum(call.outcome == "ok" for call in calls[seen:])
        seen = len(calls)
        return count >= acknowledged

    await until(enough, timeout_s, f"{acknowledged} acknowledged calls")


async def conclude(cluster: LiveCluster, load: Load) -> dict[str, Any]:
    """All checks of a run. Raises AssertionError with every violation; the history is then kept as a file."""
    await load.stop()
    await load.settle()
    await cluster.caught_up()
    await agree_by_stale_reads(cluster)
    cluster.assert_all_run()
    await cluster.stop(*cluster.nodes.values())
    violations = check_history(load.history) + compare_replicas(cluster)
    if violations:
        path = cluster.directory / "history.jsonl"
        load.history.save(path)
        listed = "\n".join(violations[:40])
        raise AssertionError(f"{len(violations)} violations, history in {path}:\n{listed}")
    return summary(load)


async def agree_by_stale_reads(cluster: LiveCluster) -> None:
    """Every node, asked for its own replica at the same applied index, lists the same leases."""

    async def listing(node: LiveNode) -> tuple[int, list[Any]] | None:
        leases: list[Any] = []
        after, applied = "", set()
        while True:
            query = f"/v1/leases?consistency=stale&limit=1000{'&after=' + after if after else ''}"
            answer = await cluster.get(node, query)
            if answer is None:
                return None
            assert answer.status == 200, answer.body
            page = json.loads(answer.body)
            applied.add(page["applied_index"])
            leases += [{**lease, "expires_in_ms": None} for lease in page["leases"]]
            if page["next"] is None:
                return (applied.pop(), leases) if len(applied) == 1 else None
            after = page["next"]

    async def equal() -> bool:
        listings = [await listing(node) for node in cluster.nodes.values()]
        if any(each is None for each in listings) or len({each[0] for each in listings if each}) != 1:
            return False  # an entry came between
        first = listings[0]
        differing = [node_id for node_id, each in zip(cluster.nodes, listings, strict=True) if each != first]
        assert differing == [], (
            f"{differing} list other leases than n1 at index {first[0] if first else None}"
        )
        return True

    await until(equal, 20.0, "all nodes to list their leases at the same index", 0.2)


def summary(load: Load) -> dict[str, Any]:
    """How much the run has asked, and how it was answered."""
    outcomes: dict[str, int] = {}
    operations: dict[str, int] = {}
    for call in load.history.calls:
        outcomes[call.outcome] = outcomes.get(call.outcome, 0) + 1
        operations[call.op] = operations.get(call.op, 0) + 1
    return {"calls": len(load.history.calls), "outcomes": outcomes, "operations": operations}
