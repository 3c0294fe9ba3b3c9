"""Finding a cycle of sessions that wait for one another, before a wait would close it.

A wait is blocked by the holders that it does not go beside, and by the waiters before it; a shared one only
by the exclusive ones among them, because the readers before it are granted no later than it and wait for
the same. A session that waits for a key cannot wait for it once more: it would wait for itself.

A permit is blocked by the waiters before it, and by its pool's holders only if too few of them leave: one is
enough, unless the pool was made smaller. So a path through the holders of a pool is only a suspicion, and
then _Search.hopeless() decides: the wait can never end if so many holders of the pool wait, directly or not,
for the session that asks.

Only explicit sessions can close a cycle: a private session is opened for one acquire, so while it waits it
holds nothing. But it may stand in the middle of one: a reader behind a private writer waits for the readers
that the writer waits for, and a private set keeps one key from those behind it while it waits for another.
Otherwise whoever waits behind a private session waits for the same sessions as it does.

A set that waits counts as in the way of those behind it from the first, although it lets them pass for a
while: what it does later must not surprise anybody. And because who passes it makes it wait, none may pass
that waits for something itself (may_pass() in room.py). So no grant ever closes a cycle.

The search goes depth first from the sessions that the new waiter would wait for, the longest-standing
first. Leases and waiters that are over at this entry block nobody. It looks at no more than
DEADLOCK_SEARCH_MAX holders, waiters and keys of waiting sets; a cycle that hides behind more than that is
left to be ended by time-outs.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.indexes import WaiterRef
from tenure_cluster.lease.liveness import lease_live, waiter_dead
from tenure_cluster.lease.rules import SMALLER_POOLS
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
    steps_left = limits.DEADLOCK_SEARCH_MAX
    for key in asked.keys:
        wait = Wait(session_id, asked.owner, key, asked.mode, None)
        search = _Search(step, tenant, session_id)
        if search.waits_already(key):
            return [wait.owner, key]
        search.steps_left = steps_left
        cycle = search.path_from(wait)
        steps_left = search.steps_left
        if cycle is not None and (not search.through_pool or search.hopeless(wait)):
            return cycle
    return None


def find_cycle_through(step: Step, tenant: TenantId, session_id: SessionId, key: Key) -> list[str] | None:
    """The cycle that would exist if a session came to hold a key that others wait for: it waits, directly or
    not, for one of them, who is the last that is named."""
    indexes = step.table.indexes
    queue = step.table.key_queue(tenant, key)
    if queue is None or (tenant, session_id) not in indexes.session_waiters:
        return None
    waiters = [step.table.waiters[ref] for ref in queue.in_order()]
    others = {
        waiter.session_id
        for waiter in waiters
        if waiter.session_id != session_id and not waiter_dead(step, waiter)
    }
    search = _Search(step, tenant, session_id, others)
    steps_left = search.steps_left
    for wait in list(search.waits_of(session_id)):
        search = _Search(step, tenant, session_id, others)
        search.steps_left = steps_left
        cycle = search.path_from(wait) if wait.key != key else None
        steps_left = search.steps_left
        if cycle is not None and (not search.through_pool or search.hopeless(wait)):
            return [*cycle, search.closed_by, key]
    return None


class _Search:
    """One depth-first search for a way from a session that wants to wait back to it, or to one of others."""

    def __init__(
        self, step: Step, tenant: TenantId, target: SessionId, others: Collection[SessionId] = ()
    ) -> None:
        self.step = step
        self.tenant = tenant
        self.target = target
        self.targets = frozenset((target, *others))
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        self.seen: set[SessionId] = set()
        self.scanned: dict[tuple[Key, bool], int] = {}
        """How many waiters of each key's queue have been looked at from its head, for shared waits and for
        others."""
        self.closed = False
        self.closed_by = ""
        """As who the one at whom the path ends is in the way there."""
        self.through_pool = False
        """Whether the path that was found leads through the holders of a pool."""

    def waits_already(self, key: Key) -> bool:
        """Whether the session waits for the key."""
        waits = self.waits_of(self.target)
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
            if session_id in self.targets:
                self.closed, self.closed_by = True, owner
                return
            if session_id in self.seen:
                continue
            self.seen.add(session_id)
            for following in self.waits_of(session_id):
                if self.steps_left <= 0:
                    return
                self.steps_left -= 1
                yield following._replace(owner=owner)

    def waits_of(self, session_id: SessionId) -> Iterator[Wait]:
        table = self.step.table
        place = (self.tenant, session_id)
        refs: Iterable[WaiterRef] = table.indexes.session_waiters.get(place, ())
        if not refs and place in table.indexes.reserved:
            refs = (table.indexes.reserved[place],)  # a private session
        for ref in refs:
            waiter = table.waiters[ref]
            if not waiter_dead(self.step, waiter):
                for key in waiter.keys:
                    yield Wait(session_id, waiter.owner, key, waiter.mode, waiter.ticket)

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
            is_set, reads = len(waiter.keys) > 1, wait.mode == "shared"
            blocks = is_set or not (reads and waiter.mode == "shared")
            waits_for_more = is_set or reads or not waiter.private
            if waits_for_more and blocks and not waiter_dead(self.step, waiter):
                yield waiter.session_id, waiter.owner

    # Pools

    def hopeless(self, wait: Wait) -> bool:
        """Whether the wait could never end, whatever those do that wait for nobody. Found by beginning with
        the target alone and adding every session one of whose waits is blocked for good by those before."""
        self.steps_left = limits.DEADLOCK_SEARCH_MAX
        waits: dict[Wait, None] = {}
        self._gather(wait, waits)
        stuck = set(self.targets)
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
                for following in self.waits_of(session_id):
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
        if state is None:
            return False
        if self.step.table.rules < SMALLER_POOLS:
            return len(holders) == state.slots and all(session_id in stuck for session_id in holders)
        if not holders:
            return False
        # Of a pool that was made smaller more than one has to leave before there is room.
        leaving = sum(session_id not in stuck for session_id in holders)
        return leaving <= len(holders) - state.slots
