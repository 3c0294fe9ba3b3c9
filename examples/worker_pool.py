"""Many workers, many tasks, and each task is done once.

    python examples/worker_pool.py [ENDPOINTS]

Every worker goes through the tasks. It skips what somebody else is at, and what has a result. The result is
committed through the task's guard, so a worker that was paused past its lease can't overwrite the result of
the one that took over.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS

WORKERS, TASKS = 4, 12


async def worker(endpoints: str, name: str, keys: list[str]) -> int:
    done = 0
    async with tenure.connect(endpoints) as client:
        for key in random.sample(keys, len(keys)):
            try:
                async with client.lease(key, owner=name, ttl=10) as held:
                    if await client.record(key) is not None:
                        continue
                    await asyncio.sleep(0.02)  # the work
                    await held.commit(f"done by {name}")
                    done += 1
            except tenure.LeaseUnavailable:
                continue  # somebody else is at it
            except (tenure.LeaseLost, tenure.CommitRefused):
                continue  # it took too long; who has it now will do it
    return done


async def main(endpoints: str) -> None:
    batch = secrets.token_hex(4)
    keys = [f"task/{batch}/{number}" for number in range(TASKS)]
    did = await asyncio.gather(*(worker(endpoints, f"worker-{n}", keys) for n in range(WORKERS)))
    sys.stdout.write(f"{sum(did)} of {TASKS} tasks done, by worker: {did}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
