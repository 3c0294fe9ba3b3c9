"""An agent that prepares a payment, and a human who approves it, minutes or days later.

    python examples/human_approval.py [ENDPOINTS]

The agent keeps its lease while it waits: renewing costs one heartbeat, whatever the number of its leases. If
the lease is lost meanwhile, because the machine was suspended or an operator broke it, the wait is cancelled,
and an approval that comes late finds nobody to act on it. The payment itself carries the fencing token.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS


async def human() -> bool:
    """Somebody clicks on something."""
    await asyncio.sleep(0.3)
    return True


async def pay(client: tenure.Client, payment: str) -> str:
    draft = f"$100 to {payment}"
    metadata = {"draft": draft, "waiting_for": "approval"}
    try:
        async with client.lease(f"payment/{payment}", owner="agent-a", ttl=30, metadata=metadata) as held:
            approved = await human()
            if not approved:
                return "rejected"
            await held.commit(draft, mode="once")
            return f"paid {draft} with token {held.token}"
    except (tenure.LeaseLost, tenure.CommitRefused) as late:
        return f"not paid: {late}"


async def main(endpoints: str) -> None:
    async with tenure.connect(endpoints) as client:
        sys.stdout.write(await pay(client, f"42-{secrets.token_hex(4)}") + "\n")

        waiting = asyncio.create_task(pay(client, "43"))
        while await client.get("payment/43") is None:  # noqa: ASYNC110 -- it looks until it is there
            await asyncio.sleep(0.01)
        await client.break_("payment/43", reason="the customer has called")
        sys.stdout.write(await waiting + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS))
