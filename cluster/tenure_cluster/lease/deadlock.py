"""Finding a cycle of sessions that wait for one another, before a wait would close it.

A wait is blocked by the holders that it does not go beside, and by the waiters before it; a shared one only
by the exclusive ones among them, because the readers before it are granted no later than it and wait for
the same. A session that waits for a key cannot wait for it once more: it would wait for itself.

A permit is blocked by the waiters before it, and by its pool's holders only if none of them leaves: one is
enough. So a path through the holders of a pool is only a suspicion, and then _Search.hopeless() decides: the
wait can never end if all holders of the pool wait, directly or not, for the session that asks.

Only explicit sessions can close a cycle: a private session is opened for one acquire, so while it waits it
holds nothing, and whoever waits behind it on the key waits for the same sessions as it does.

The search goes depth first from the sessions that the new waiter would wait for, the longest-standing
first. Leases and waiters that are over at this entry block nobody. It looks at no more than
DEADLOCK_SEARCH_MAX holders and waiters; a cycle that hides behind more than that is left to be ended by
time-outs.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.liveness import lease_live, waiter_dead
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Key, Mode, SessionId, TenantId


class Wait(NamedTuple):
    """One session waiting for one key; ``ticket`` None stands for the end of the queue."""

    session_id: SessionId
    owner: str
    key: Key
    mode: Mode
    ticket: int | None


def find_cycle(step: Step, tenant: TenantId, asked: Acquire) -> list[str] | None:
    """The cycle ``[owner, key, owner, key, …]`` that would exist if the acquire queued, each owner as it
    is named where it holds or waits; None if there would be none."""
    session_id = asked.session_id
    if session_id is None:
        return None
    indexes = step.table.indexes
    ref = (tenant, session_id)
    if ref not in indexes.session_leases and ref not in indexes.session_waiters:
        # Nobody can be waiting for a session that neither holds nor queues: the ordinary case.
        return None
    wait = Wait(session_id, asked.owner, asked.keys[0], asked.mode, None)
    search = _Search(step, tenant, session_id)
    if search.waits_already(wait.key):
        return [wait.owner, wait.key]
    cycle = search.path_from(wait)
    if cycle is None or (search.through_pool and not search.hopeless(wait)):
        return None
    return cycle


class _Search:
    """One depth-first search for a way back to the session that wants to wait."""

    def __init__(self, step: Step, tenant: TenantId, target: SessionId) -> None:
        self.step = step
        self.tenant = tenant
        self.target = target
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        self.seen: set[SessionId] = set()
        self.scanned: dict[tuple[Key, bool], int] = {}
        """How many waiters of each key's queue have been looked at from its head, for shared waits and for
        others."""
        self.closed = False
        self.through_pool = False
        """Whether the path that was found leads through the holders of a pool."""

    def waits_already(self, key: Key) -> bool:
        """Whether the session waits for the key."""
        waits = self._waits_of(self.target)
        return any(wait.key == key for wait in waits)

    def path_from(self, wait: Wait) -> list[str] | None:
        path = [wait]
        branches = [self._next_waits(wait)]
        while branches:
            following = next(branches[-1], None)
            if self.closed:
                self.through_pool = any(wait.mode == "permit" for wait in path)
                return [name for wait in path for name in (wait.owner, wait.key)]
            if following is None:
                branches.pop()
                path.pop()
            else:
                path.append(following)
                branches.append(self._next_waits(following))
        return None

    def _next_waits(self, wait: Wait) -> Iterator[Wait]:
        """What those wait for who block a wait. Sets ``closed`` and stops at the target."""
        for session_id, owner in self._blockers(wait):
            if session_id == self.target:
                self.closed = True
                return
            if session_id in self.seen:
                continue
            self.seen.add(session_id)
            for following in self._waits_of(session_id):
                yield following._replace(owner=owner)

    def _waits_of(self, session_id: SessionId) -> Iterator[Wait]:
        waiters = self.step.table.waiters
        for ref in self.step.table.indexes.session_waiters.get((self.tenant, session_id), ()):
            waiter = waiters[ref]
            if not waiter_dead(self.step, waiter):
                yield Wait(session_id, waiter.owner, waiter.keys[0], waiter.mode, waiter.ticket)

    def _blockers(self, wait: Wait) -> Iterator[tuple[SessionId, str]]:
        """Sessions that hold the key, then those that wait for it before; what an earlier branch has looked
        at is left out."""
        key, shared = wait.key, wait.mode == "shared"
        place = (key, shared)
        if place not in self.scanned:
            self.scanned[place] = 0
            yield from self._holders(key, shared)
        yield from self._ahead(wait, place)

    def _holders(self, key: Key, shared: bool) -> Iterator[tuple[SessionId, str]]:
        for lease in self.step.table.leases_of(self.tenant, key):
            if self.steps_left <= 0:
                return
            self.steps_left -= 1
            if not (shared and lease.mode == "shared") and lease_live(self.step, lease):
                yield lease.session_id, lease.owner

    def _ahead(self, wait: Wait, place: tuple[Key, bool] | None = None) -> Iterator[tuple[SessionId, str]]:
        """Sessions that wait for the key before; at a ``place`` only those that were not looked at there."""
        table = self.step.table
        queue = table.key_queue(self.tenant, wait.key)
        if queue is None:
            return
        end = len(queue) if wait.ticket is None else queue.position(wait.ticket) - 1
        for at in range(self.scanned[place] if place is not None else 0, end):
            if self.steps_left <= 0:
                return
            self.steps_left -= 1
            if place is not None:
                self.scanned[place] = at + 1
            waiter = table.waiters[queue.at(at)]
            blocks = not (wait.mode == "shared" and waiter.mode == "shared")
            if not waiter.private and blocks and not waiter_dead(self.step, waiter):
                yield waiter.session_id, waiter.owner

    # Pools

    def hopeless(self, wait: Wait) -> bool:
        """Whether the wait could never end, whatever those do that wait for nobody. Found by beginning with
        the target alone and adding every session one of whose waits is blocked for good by those before."""
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        waits: dict[Wait, None] = {}
        self._gather(wait, waits)
        stuck = {self.target}
        grows = True
        while grows and self.steps_left > 0:
            found = {other.session_id for other in waits if self._blocked_for_good(other, stuck)}
            grows = not found <= stuck
            stuck |= found
        return self._blocked_for_good(wait, stuck)

    def _gather(self, wait: Wait, waits: dict[Wait, None]) -> None:
        """All waits that the wait's end depends on."""
        ahead = [wait]
        while ahead:
            blockers = self._blocking(ahead.pop())
            for session_id in blockers:
                for following in self._waits_of(session_id):
                    if following not in waits:
                        waits[following] = None
                        ahead.append(following)

    def _blocking(self, wait: Wait) -> list[SessionId]:
        holders = [session_id for session_id, _ in self._holders(wait.key, wait.mode == "shared")]
        return holders + [session_id for session_id, _ in self._ahead(wait)]

    def _blocked_for_good(self, wait: Wait, stuck: set[SessionId]) -> bool:
        if any(session_id in stuck for session_id, _ in self._ahead(wait)):
            return True
        holders = [session_id for session_id, _ in self._holders(wait.key, wait.mode == "shared")]
        if wait.mode != "permit":
            return any(session_id in stuck for session_id in holders)
        state = self.step.table.keys.get((self.tenant, wait.key))
        full = state is not None and len(holders) == state.slots
        return full and all(session_id in stuck for session_id in holders)
