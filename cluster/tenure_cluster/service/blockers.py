"""Who is in the way: the table as a reader may see it, and the chain of those who wait for one another.

The chain begins at a key with the one who has been in its way for longest: its first holder, or if nobody
holds it, the first of its queue, a set that waits for another of its keys. It goes on at what that one's
session waits for, as long as it waits for something. The last of the chain waits for nobody: it is the
one that everybody before it waits for. What a reader sees is no promise, so a chain that comes back to a key,
or is longer than CHAIN_MAX, just ends there.
"""

from typing import Final

from tenure_cluster.lease import results
from tenure_cluster.lease.room import has_room
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import Waiter
from tenure_cluster.service.answers import deadline_of, progress_body, remaining_ms
from tenure_cluster.service.replies import BlockerBody

CHAIN_MAX: Final = 32
"""Most links of a chain."""


class View:
    """The table at one moment, as a reader may see it."""

    def __init__(self, table: LeaseTable, as_of_ms: int, now_ms: int, applied_index: int = 0) -> None:
        self.table = table
        self.applied_index = applied_index
        self.as_of_ms = as_of_ms
        self.now_ms = now_ms
        self.undecided = False
        """Whether anything was met whose deadline lies after as_of_ms and not after now_ms."""

    def live(self, deadline_ms: int) -> bool:
        if deadline_ms <= self.as_of_ms:
            return False
        if deadline_ms <= self.now_ms:
            self.undecided = True
        return True

    def holders(self, tenant: str, key: str) -> list[results.Grant]:
        return [grant for grant in self.table.holders(tenant, key) if self.live(deadline_of(grant))]

    def queue(self, tenant: str, key: str) -> list[Waiter]:
        """The waiters that are still there, in order."""
        return [waiter for waiter in self.table.queue(tenant, key) if self.waits(waiter)]

    def first_waiter(self, tenant: str, key: str) -> Waiter | None:
        """The first waiter that is still there."""
        queue = self.table.key_queue(tenant, key)
        refs = queue.in_order() if queue is not None else ()
        waiters = (self.table.waiters[ref] for ref in refs)
        return next((waiter for waiter in waiters if self.waits(waiter)), None)

    def waits(self, waiter: Waiter) -> bool:
        if not self.live(waiter.poll_deadline_ms):
            return False
        if waiter.private:
            return True
        session = self.table.session(waiter.tenant, waiter.session_id)
        return session is not None and self.live(session.deadline_ms)


def chain(view: View, tenant: str, key: str) -> list[BlockerBody]:
    """From who is in the way at a key to the one that everybody waits for."""
    found: list[BlockerBody] = []
    seen: set[str] = set()
    while key not in seen and len(found) < CHAIN_MAX:
        seen.add(key)
        holders = view.holders(tenant, key)
        if holders:
            found.append(_holder(view, holders[0]))
            following = _waits_for(view, tenant, holders[0].lease.session_id, seen)
        else:
            waiter = view.first_waiter(tenant, key)
            if waiter is None:
                break
            found.append(_waiter(view, waiter, key))
            following = _kept_from(view, waiter, seen)
        if following is None:
            break
        key = following
    return found


def _holder(view: View, grant: results.Grant) -> BlockerBody:
    lease = grant.lease
    return BlockerBody(
        key=lease.key,
        owner=lease.owner,
        state="parked" if lease.parked else "holding",
        token=lease.token,
        since_ms=remaining_ms(view.now_ms, lease.granted_ms),
        expires_in_ms=remaining_ms(deadline_of(grant), view.now_ms),
        progress=progress_body(lease.life, view.now_ms),
    )


def _waiter(view: View, waiter: Waiter, key: str) -> BlockerBody:
    return BlockerBody(
        key=key,
        owner=waiter.owner,
        state="waiting",
        token=0,
        since_ms=remaining_ms(view.now_ms, waiter.queued_ms),
        expires_in_ms=remaining_ms(waiter.poll_deadline_ms, view.now_ms),
    )


def _waits_for(view: View, tenant: str, session_id: str, seen: set[str]) -> str | None:
    """The key that a session waits for, and that is not yet in the chain."""
    for ref in view.table.indexes.session_waiters.get((tenant, session_id), ()):
        waiter = view.table.waiters[ref]
        if view.waits(waiter):
            key = _kept_from(view, waiter, seen)
            if key is not None:
                return key
    return None


def _kept_from(view: View, waiter: Waiter, seen: set[str]) -> str | None:
    """The key for whose sake a waiter waits. Of a set: the first that has no room for it beside its holders,
    else the first for which somebody else comes before."""
    tenant, keys = waiter.tenant, [key for key in waiter.keys if key not in seen]
    if len(waiter.keys) == 1:
        return keys[0] if keys else None
    for key in keys:
        if view.holders(tenant, key) and not has_room(view.table, tenant, key, (waiter.mode, waiter.slots)):
            return key
    return next((key for key in keys if view.first_waiter(tenant, key) is not waiter), None)
