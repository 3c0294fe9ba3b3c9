"""An agent that prepares a payment, and a human who approves it, minutes or days later.

    python examples/human_approval.py [ENDPOINTS]

The agent parks its lease while the human thinks: nobody else can prepare the same payment meanwhile, and no
process has to run for that. Whoever acts on the approval takes the lease up again, perhaps on another
machine, and gets a new fencing token: what the agent still had under way when it parked can't be written
after that. If an operator breaks the lease first, an approval that comes late finds nothing to act on.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS

A_DAY_S = 24 * 3600


async def prepare(endpoints: str, payment: str) -> str:
    """The agent: it drafts, parks the lease, and ends. What it leaves is the lease's id, for the approver."""
    draft = f"$100 to {payment}"
    async with (
        tenure.connect(endpoints) as client,
        client.lease(f"payment/{payment}", owner="agent-a", ttl=30, metadata={"draft": draft}) as held,
    ):
        await held.progress("waits for approval", text=draft)
        await held.park(A_DAY_S)
        return held.lease_id


async def approve(endpoints: str, lease_id: str) -> str:
    """Somebody clicks on something, and this runs wherever that is handled."""
    async with tenure.connect(endpoints) as client:
        try:
            held = await client.take_up(lease_id, owner="approver")
            draft = held.metadata["draft"]
            await held.commit(draft, mode="once")
            await held.release()
        except (tenure.LeaseLost, tenure.CommitRefused) as late:
            return f"not paid: {late}"
        return f"paid {draft} with token {held.token}"


async def main(endpoints: str) -> None:
    lease_id = await prepare(endpoints, f"42-{secrets.token_hex(4)}")
    sys.stdout.write(await approve(endpoints, lease_id) + "\n")

    payment = f"43-{secrets.token_hex(4)}"
    lease_id = await prepare(endpoints, payment)
    async with tenure.connect(endpoints) as client:
        await client.break_(f"payment/{payment}", reason="the customer has called")
    sys.stdout.write(await approve(endpoints, lease_id) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
