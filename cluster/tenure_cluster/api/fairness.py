"""Tenants beside each other at one front: whose request is worked on next, and how fast refusals come.

Quotas bound what a tenant gets. What it asks for beyond them costs something too, and so do renewals, which
no quota refuses; on the one thread of a node another tenant's heartbeats would wait behind all of it. So two
things are done, where callers are told apart by credentials:

*Turns.* In one turn of the event loop only so much is begun. What came beyond waits for the next turns, and
then those who have had least go first: start-time fair queueing. A request's tag is where its tenant's work
ended in virtual time, or the present if that is later, and the least tag is served next. Its tenant's work
then ends by the request's cost later. So whoever asks little never waits behind somebody's many.

*Patience.* Who is refused for want of quota, of a right or of a valid credential is told at once as long as
that happens REFUSALS_PER_S times a second; beyond that the answers come at that pace, up to HOLD_MAX_S late.
A caller that waits for its answers is slowed down by that, and nothing is refused that was not before.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

BEGUN_PER_TURN_MAX: Final = 16
"""Requests that are begun in one turn of the loop: two or three milliseconds."""

OPERATIONS_PER_REQUEST: Final = 8
"""So many operations of a frame cost what one request by HTTP does."""

REFUSALS_PER_S: Final = 200
"""Refusals that one tenant, or one address of strangers, is told at once."""

HOLD_MAX_S: Final = 1.0
"""Longest that a refusal is held back. Well below the least time in which a lease must be renewed, since a
renewal may stand behind it on its connection."""

HELD_BACK: Final = frozenset({"quota", "forbidden", "unauthenticated"})
"""Codes of refusals that are."""

STRANGERS: Final = "\0from "
"""What stands before the address of those who show no valid credential. No tenant's name has such a
character, so none shares a stranger's patience."""

PATIENCE_ENTRIES_MAX: Final = 10_000
"""Tenants and addresses that are remembered; when there are more, those that need not be are forgotten."""


def cost_of(operations: int) -> int:
    """What a frame of so many operations costs, in requests."""
    return 1 + operations // OPERATIONS_PER_REQUEST


class Turns:
    """Whose request is begun next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = BEGUN_PER_TURN_MAX
        self._present = 0
        """Virtual time: the tag of what was begun last."""
        self._ends: dict[str, int] = {}
        """By tenant, where its work ends in virtual time."""
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._next: asyncio.Handle | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._waiting)

    async def turn(self, tenant: str, cost: int = 1) -> None:
        """Return when a request of the tenant may be begun: mostly at once."""
        tag = max(self._present, self._ends.get(tenant, 0))
        self._ends[tenant] = tag + cost
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)
        if self._left > 0 and not self._waiting:
            self._left -= cost
            self._present = tag
            return
        future = self._loop.create_future()
        heappush(self._waiting, (tag, next(self._numbers), cost, future))
        await future

    def _turn(self) -> None:
        """A turn of the loop is over."""
        idle = self._left == BEGUN_PER_TURN_MAX and not self._waiting
        if idle:
            self._next, self._present = None, 0
            self._ends.clear()
            return
        self._left = BEGUN_PER_TURN_MAX
        while self._waiting and self._left > 0:
            tag, _, cost, future = heappop(self._waiting)
            if not future.done():  # else its connection was lost
                self._left -= cost
                self._present = tag
                future.set_result(None)
        self._next = self._loop.call_soon(self._turn)


class Patience:
    """How long refusals are held back, by whom they are told to."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._free_s: dict[str, float] = {}
        """When the next refusal is told at once."""
        self.held = 0

    def hold_s(self, whom: str, refusals: int = 1) -> float:
        """How long so many refusals, which are told together, are to be held back: until the last is due."""
        now_s = self._monotonic()
        free_s = max(now_s, self._free_s.pop(whom, 0.0))
        if len(self._free_s) >= PATIENCE_ENTRIES_MAX:
            self._free_s = {name: at_s for name, at_s in self._free_s.items() if at_s > now_s}
        if len(self._free_s) < PATIENCE_ENTRIES_MAX:
            self._free_s[whom] = min(free_s + refusals / REFUSALS_PER_S, now_s + HOLD_MAX_S)
        hold_s = min(free_s + (refusals - 1) / REFUSALS_PER_S - now_s, HOLD_MAX_S)
        self.held += hold_s > 0
        return hold_s


class Fairness:
    """Both, of one front."""

    def __init__(self) -> None:
        turns = Turns()
        self.turns = turns
        self.turn = turns.turn
        self.patience = Patience(asyncio.get_running_loop().time)

    async def hold(self, whom: str, refusals: int) -> None:
        """Return when so many refusals may be told."""
        hold_s = self.patience.hold_s(whom, refusals)
        if hold_s > 0:
            await asyncio.sleep(hold_s)
