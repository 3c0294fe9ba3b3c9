"""A call that waits, for as long as the credential that it came with is valid.

An acquire may wait for 25 seconds. Without this it could be granted long after its credential was revoked,
and held for the TTL that it had asked for. When the credential is over it is given up as if its caller had
left.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenure_cluster.api.exchange import RECHECK_S

T = TypeVar("T")


async def while_allowed(waiting: Awaitable[T], allowed: Callable[[], bool]) -> T | None:
    """What is waited for; None if that was given up because the caller may not ask for it any more."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    revoked = False
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal revoked, timer
        if allowed():
            timer = loop.call_later(RECHECK_S, look)
        else:
            revoked = task.cancel()

    timer = loop.call_later(RECHECK_S, look)
    try:
        return await waiting
    except asyncio.CancelledError:
        if revoked and task.uncancel() == 0:
            return None
        raise
    finally:
        if timer is not None:
            timer.cancel()
