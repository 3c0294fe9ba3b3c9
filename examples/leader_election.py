"""One leader among many: each campaigns, one leads, and when it is gone the next one does.

    python examples/leader_election.py [ENDPOINTS]

Here three candidates run in one process, and each resigns after a moment. In real life each is a process of
its own, and ``lead`` runs until it is cancelled because the office was lost.
"""

from __future__ import annotations

import asyncio
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS


async def candidate(endpoints: str, name: str) -> None:
    async with tenure.connect(endpoints) as client:

        async def lead(held: tenure.Held) -> None:
            sys.stdout.write(f"{name} leads with token {held.token}\n")
            # Whatever the leader writes elsewhere carries that token, and is refused once there is another.
            await asyncio.sleep(0.1)

        await client.election("scheduler", owner=name, ttl=10).run(lead)


async def main(endpoints: str) -> None:
    async with asyncio.TaskGroup() as candidates:
        for name in ("a", "b", "c"):
            candidates.create_task(candidate(endpoints, name))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
