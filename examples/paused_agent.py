"""An agent that is paused for too long: what it can't know, and why its late write does no harm.

    python examples/paused_agent.py [ENDPOINTS]

The agent does everything right, it even checks its lease before it writes. But between the check and the
write it is paused, for longer than its lease lasts: a garbage collection, a suspended machine. Here it is
played by the plain calls, which renew nothing by themselves.
"""

from __future__ import annotations

import asyncio
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS

KEY = "report/customer/42"


async def main(endpoints: str) -> None:
    async with tenure.connect(endpoints) as cluster:
        # The plain calls renew nothing by themselves, just like a process that is paused.
        agent_a = await cluster.acquire(KEY, owner="agent-a", ttl=3)
        say(f"agent A holds {KEY} with token {agent_a.token}, checks its lease, and is paused")

        async with cluster.lease(KEY, owner="agent-b", ttl=30, wait=30) as agent_b:
            say(f"agent A's lease has ended; agent B holds the key with token {agent_b.token}")
            try:
                await cluster.commit(KEY, lease_id=agent_a.lease_id, token=agent_a.token, value="by A, late")
            except tenure.CommitRefused as refused:
                say(f"agent A wakes up and writes with token {agent_a.token}: {refused.code}, {refused}")
            else:
                sys.exit("the late write was accepted")
            await agent_b.commit("by B")

        record = await cluster.record(KEY)
        assert record is not None
        say(f"the report is {record.value!r}, written with token {record.token}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
