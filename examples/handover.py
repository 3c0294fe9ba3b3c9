"""A long job that moves to another worker while it runs, before its machine is switched off.

    python examples/handover.py [ENDPOINTS]

The successor opens a session and tells its id; the holder hands the lease over to that session, past all who
wait. Metadata and the last note of progress go with the lease, so the successor goes on where the other one
stopped, with a token that is newer: what the old worker still writes late is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS

STEPS = 6


async def work(held: tenure.Held, name: str, leaves_at: int = STEPS) -> int:
    """Step after step, from where the lease says; returns the step that is next."""
    begun = 0 if held.found_progress is None else held.found_progress.counter
    for step in range(begun, leaves_at):
        await asyncio.sleep(0.01)
        sys.stdout.write(f"{name} does step {step + 1} with token {held.token}\n")
        await held.progress("steps", counter=step + 1)
    return leaves_at


async def main(endpoints: str) -> None:
    job = f"job/{secrets.token_hex(4)}"
    async with tenure.connect(endpoints) as old, tenure.connect(endpoints) as new:
        async with old.lease(job, owner="worker-1", progress=60) as held:
            await work(held, "worker-1", leaves_at=3)
            async with new.lease(job, owner="worker-2", progress=60).successor() as successor:
                receiving = asyncio.create_task(successor.acquire(wait=30))
                await held.handover(successor.session_id)
                received = await receiving
        try:
            await old.commit(job, lease_id=held.lease_id, token=held.token, value="late")
        except tenure.CommitRefused as refused:
            sys.stdout.write(f"worker-1 is too late: {refused.code}\n")
        await work(received, "worker-2")
        await received.commit(f"done in {STEPS} steps")
        await received.release()
        sys.stdout.write("worker-2 is done\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
