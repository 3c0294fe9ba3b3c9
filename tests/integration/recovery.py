"""How long a cluster is without acknowledged acquires after a fault, as its clients see it."""

import asyncio
import itertools
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from history import History
from live_cluster import LiveNode
from workload import Client, acquire_body

PROBES_PER_NODE: Final = 6
"""Probing connections to each surviving node."""

ATTEMPT_S: Final = 0.25
"""A probe whose answer takes longer is given up, and the next is sent on another connection."""

_numbers = itertools.count(1)


async def first_acquire(
    survivors: Sequence[LiveNode], history: History, *, since_s: float, within_s: float, seed: int
) -> float:
    """Hammer the survivors with acquires of fresh keys; seconds from `since_s` to the first acknowledgement.

    Only acquires that were sent after this call began count, so nothing that the failed node did can.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[float] = loop.create_future()

    async def probe(node: LiveNode, turn: int) -> None:
        client = Client(f"probe.{node.node_id}.{turn}", [(node.node_id, node.url)], history)
        try:
            await asyncio.sleep(turn * 0.002)
            while not found.done():
                name = f"probe-{seed}-{next(_numbers)}"
                call = await client.call("acquire", acquire_body(name, f"probe/{name}", 3_000), ATTEMPT_S)
                if call.outcome == "ok" and not found.done():
                    found.set_result(call.returned_s - since_s)
                # A port that nobody listens on yet answers at once: do not starve the processes that start.
                await asyncio.sleep(0.005 if call.status else 0.025)
        finally:
            client.close()

    tasks = [loop.create_task(probe(node, turn)) for node in survivors for turn in range(PROBES_PER_NODE)]
    try:
        async with asyncio.timeout(within_s):
            return await found
    finally:
        if not found.done():
            found.cancel()
        await asyncio.gather(*tasks)


def report(name: str, seconds: Sequence[float], **more: Any) -> dict[str, Any]:
    """Print a series' figures; add them to the JSON file named by TENURE_TEST_FIGURES, if it is set."""
    figures = {
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 4),
        "worst_s": round(max(seconds), 4),
        "all_s": [round(value, 4) for value in seconds],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **more,
    }
    print(f"{name}: {json.dumps(figures)}")  # noqa: T201
    if path := os.environ.get("TENURE_TEST_FIGURES"):
        file = Path(path)
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.write_text(json.dumps(known | {name: figures}, indent=1), encoding="utf-8")
    return figures
