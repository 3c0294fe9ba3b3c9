"""One session that is kept alive for its leases: what the threads of a client know of it.

Theory of operation. Liveness belongs to sessions, so what is renewed is the session, once, however many
leases it has; their handles share its validity (_validity.py), and each has a life of its own (_handle.py).
Three kinds of thread come here: those that acquire and release, those that read a handle's state, and the one
that renews. Each call takes the lock for a few steps without I/O, so nobody waits for anybody's network.

A renewal of the session says nothing of a single lease that was broken. But it tells how many leases the
session has, and where that is not the number of handles, the leases are asked for one by one.

Whoever is told of a loss is told once, by whichever thread carries ``told`` out; that is never what makes the
handle LOST, only what wakes a body that isn't looking.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tenure._clock import Clock
from tenure._demand import Demand
from tenure._handle import HandleLife, State
from tenure._validity import Validity
from tenure.answers import Grant

ENOUGH_LEFT: float = 0.5
"""An idle session is used again only if this part of its TTL is left; otherwise a new one is opened."""


class Member:
    """One lease of a session, or those of one set: its life, and whom to tell of its loss."""

    __slots__ = ("grants", "life", "notify", "orphaned", "told")

    def __init__(
        self,
        grants: list[Grant],
        life: HandleLife,
        notify: Callable[[], None],
        orphaned: Callable[[], bool],
    ) -> None:
        self.grants = grants
        self.life = life
        self.notify = notify
        self.orphaned = orphaned
        self.told = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Send a renewal now, and give it so many seconds."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Come back after so many seconds, or when woken."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Over:
    """The session is over; there is nothing to keep."""


class KeptSession:
    """One session and the handles of its leases. Safe to use from any thread."""

    def __init__(
        self, session_id: str, *, ttl_ms: int, clock: Clock, draw: Callable[[], float] = random.random
    ) -> None:
        self.session_id = session_id
        self.validity = Validity(ttl_ms=ttl_ms)
        self.wake: Callable[[], None] = lambda: None
        """Has the renewer look again."""
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._held: Counter[str] = Counter()
        """The keys of the members: a session may have ten thousand."""
        self._demanding: dict[str, Member] = {}
        """Those whose leases demand progress."""
        self._parked: weakref.WeakSet[HandleLife] = weakref.WeakSet()
        """Of leases that were parked here: no members any more, but lost to a forked child like them."""
        self._uses: Counter[str] = Counter()
        self._retired = False
        self._reason = ""
        _ALL.add(self)

    # -- whether to use it

    def usable(self) -> bool:
        """New leases can be acquired in it."""
        with self._lock:
            now = self._clock()
            if self._retired or self._reason or self.validity.is_over(now):
                return False
            idle = not self._needed(now)
            return not idle or self.validity.left_s(now) > ENOUGH_LEFT * self.validity.ttl_ms / 1000

    def retire(self) -> None:
        """Acquire nothing more in it. What it holds goes on being kept."""
        with self._lock:
            self._retired = True
        self.wake()

    def uses_any(self, keys: Iterable[str]) -> bool:
        """One of the keys is held, waited for or being given back in the session. Nobody can wait for
        themselves, so whoever else wants it needs another session."""
        with self._lock:
            return any(key in self._uses or key in self._held for key in keys)

    def use(self, keys: Iterable[str]) -> None:
        """The keys are about to be acquired, or an acquire of them is to be undone. For an acquire the
        session is kept alive."""
        with self._lock:
            self._uses.update(keys)
        self.wake()

    def unuse(self, keys: Iterable[str]) -> None:
        """The acquire, or its undoing, has come to its end."""
        with self._lock:
            for key in keys:
                self._uses[key] -= 1
                if self._uses[key] <= 0:
                    del self._uses[key]
        self.wake()

    @property
    def is_empty(self) -> bool:
        """No handle of it can be believed in, and nothing is being acquired in it."""
        with self._lock:
            return not self._needed(self._clock())

    def _needed(self, now: float) -> bool:
        return bool(self._uses) or any(member.life.is_kept(now) for member in self._members.values())

    def keeps(self, member: Member) -> bool:
        """It is kept here."""
        with self._lock:
            return self._members.get(member.grants[0].lease_id) is member

    @property
    def is_retired(self) -> bool:
        return self._retired

    @property
    def is_over(self) -> bool:
        with self._lock:
            return bool(self._reason) or self.validity.is_over(self._clock())

    # -- handles

    def hold(
        self,
        grants: list[Grant],
        sent_at: float,
        notify: Callable[[], None],
        orphaned: Callable[[], bool] = lambda: False,
        *,
        new_since: float | None = None,
    ) -> Member:
        """An acquire in the session was answered. ``notify`` is called once if the handle is LOST: from
        any thread, so it must only pass the word on. ``orphaned`` says that nobody is left who could act
        on the lease. The grants were made after ``new_since``, if that is known."""
        remaining_ms = min(grant.expires_in_ms for grant in grants)
        demand = _demand_of(grants, sent_at, new_since, self.validity.rho)
        life = HandleLife(validity=self.validity, demand=demand)
        member = Member(grants, life, notify, orphaned)
        with self._lock:
            life.granted(sent_at=sent_at, remaining_ms=remaining_ms, now=self._clock(), draw=self._draw())
            if self._reason:
                life.given_up(self._reason, self._clock())
            self._members[grants[0].lease_id] = member
            self._held.update(grant.key for grant in grants)
            if demand is not None:
                self._demanding[grants[0].lease_id] = member
        self.wake()
        return member

    def _forget(self, member: Member) -> None:
        lease_id = member.grants[0].lease_id
        if self._members.get(lease_id) is not member:
            return
        del self._members[lease_id]
        if self._demanding.get(lease_id) is member:
            del self._demanding[lease_id]
        for grant in member.grants:
            self._held[grant.key] -= 1
            if self._held[grant.key] <= 0:
                del self._held[grant.key]

    def state(self, member: Member) -> State:
        with self._lock:
            return member.life.state(self._clock())

    def expires_in_s(self, member: Member) -> float:
        with self._lock:
            return member.life.expires_in_s(self._clock())

    def parked_for_s(self, member: Member) -> float:
        with self._lock:
            return member.life.parked_for_s(self._clock())

    def lose(self, member: Member, reason: str, *, settles: bool = False) -> None:
        """The cluster has said that this lease is over. ``settles``: that is also what becomes of it if it
        was set aside."""
        with self._lock:
            if settles:
                member.life.taken_back()
            member.life.lost(reason, self._clock())
        self.tell()

    # -- handing over and parking

    def set_aside(self, member: Member, reads: State) -> State:
        """A handover or parking of the lease is about to be sent."""
        with self._lock:
            return member.life.set_aside(reads, self._clock())

    def take_back(self, member: Member) -> None:
        """It was certainly not done: the handle is as before."""
        with self._lock:
            member.life.taken_back()
        self.wake()
        self.tell()

    def passed_on(self, member: Member) -> None:
        """It is the successor's."""
        with self._lock:
            member.life.passed_on()
            self._forget(member)
        self.wake()

    def parked(self, member: Member, sent_at: float, remaining_ms: int) -> None:
        """It is not kept here any more, until it is taken up again as a new member."""
        with self._lock:
            member.life.parked(sent_at=sent_at, remaining_ms=remaining_ms, now=self._clock())
            self._forget(member)
            self._parked.add(member.life)
        self.wake()

    def taken_up(self, member: Member) -> None:
        """Another member keeps the lease from here on."""
        with self._lock:
            member.life.taken_up()
            self._forget(member)
        self.wake()

    def progressed(self, member: Member, lease: Grant, sent_at: float) -> None:
        """A renewal of the lease, perhaps with a note of progress, was answered."""
        with self._lock:
            if member.life.demand is not None:
                member.life.demand.told(lease, sent_at=sent_at, now=self._clock())
        self.wake()

    def begin_release(self, member: Member) -> State:
        with self._lock:
            return member.life.release_begun(self._clock())

    def release_answered(self, member: Member, lost_reason: str | None = None) -> None:
        with self._lock:
            member.life.release_answered(lost_reason)
            self._forget(member)
        self.wake()

    def lease_ids(self) -> list[str]:
        """Of all handles that say they hold."""
        with self._lock:
            now = self._clock()
            held = [member for member in self._members.values() if member.life.is_held(now)]
            return [grant.lease_id for member in held for grant in member.grants]

    def lost(self, lease_id: str, reason: str) -> None:
        """As ``lose``, by the lease's id; of a set, one is enough."""
        with self._lock:
            for member in self._members.values():
                if any(grant.lease_id == lease_id for grant in member.grants):
                    member.life.lost(reason, self._clock())
        self.tell()

    def orphans(self) -> list[Member]:
        """Handles that are still held, and whose owners are gone."""
        with self._lock:
            now = self._clock()
            return [m for m in self._members.values() if m.life.is_held(now) and m.orphaned()]

    # -- renewal

    def next(self) -> Renew | Wait | Over:
        """What the renewer has to do now."""
        with self._lock:
            now = self._clock()
            if self._reason or self.validity.is_over(now):
                return Over()
            if not self._needed(now):
                # Handles that are lost or being released need no time any more.
                done = self._retired and not self._members
                return Over() if done else Wait(self.validity.valid_until - now)
            if self.validity.renewal_due(now):
                return Renew(self.validity.renewal_begun(now))
            demanded = [member.life.demanded_until for member in self._demanding.values()]
            return Wait(min(self.validity.renew_at, self.validity.valid_until, *demanded) - now)

    def renewed(self, sent_at: float, remaining_ms: int) -> None:
        """A renewal that was sent at ``sent_at`` was answered."""
        with self._lock:
            self.validity.extended(
                sent_at=sent_at, remaining_ms=remaining_ms, now=self._clock(), draw=self._draw()
            )

    def renew_failed(self) -> None:
        """A renewal came to nothing; it is tried again."""
        with self._lock:
            self.validity.renewal_failed(self._clock(), self._draw())

    def counts(self, leases: int) -> bool:
        """The cluster says that the session has so many leases: whether that is what is known here."""
        with self._lock:
            return leases == sum(
                len(member.grants) for member in self._members.values() if member.life.reason == ""
            )

    def end(self, reason: str) -> None:
        """The session is over, or nobody keeps it any more: no handle of it may be believed in."""
        with self._lock:
            now = self._clock()
            self._reason = self._reason or ("expired" if self.validity.is_over(now) else reason)
            for member in self._members.values():
                member.life.given_up(self._reason, now)
        self.tell()

    def tell(self) -> None:
        """Tell of every loss that was not told of yet."""
        with self._lock:
            now = self._clock()
            lost = [
                member
                for member in self._members.values()
                if not member.told and member.life.state(now) is State.LOST
            ]
            for member in lost:
                member.told = True
                self._forget(member)
        for member in lost:
            member.notify()

    @property
    def is_renewing(self) -> bool:
        """For tests: a renewal is under way."""
        return not self._reason and self.validity.renewing

    def has_to_act(self) -> bool:
        """For tests: the renewer has something to do before time goes on."""
        with self._lock:
            now = self._clock()
            if any(
                not member.told and member.life.state(now) is State.LOST for member in self._members.values()
            ):
                return True
            if self._reason or not self._needed(now):
                return False
            return not self.validity.renewing and (
                self.validity.renewal_due(now) or self.validity.is_over(now)
            )

    # -- fork

    def forked(self) -> None:
        """This is the child's copy. The lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()
        self.wake = lambda: None
        self._reason = self._reason or "forked"
        for member in self._members.values():
            member.told = True
            member.life.forked()
        for life in list(self._parked):
            life.forked()


def _demand_of(grants: list[Grant], sent_at: float, new_since: float | None, rho: float) -> Demand | None:
    """The progress that a lease demands, or those of a set, which are told of it together."""
    if not grants[0].progress_ms:
        return None
    demand = Demand(progress_ms=grants[0].progress_ms, rho=rho)
    shortest = min(grants, key=lambda grant: grant.expires_in_ms)
    demand.granted(shortest, sent_at=sent_at, new_since=new_since)
    return demand


_ALL: weakref.WeakSet[KeptSession] = weakref.WeakSet()


def sessions_of(clock: Clock) -> list[KeptSession]:
    """For tests: the sessions that live by this clock."""
    return [session for session in list(_ALL) if session._clock == clock]


def _after_fork_in_child() -> None:
    for session in list(_ALL):
        session.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
