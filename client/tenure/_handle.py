"""The life of one handle, as a pure state machine: no I/O, no clock, no chance.

    WAITING ──granted──> HELD <──renewed / renewal failed or overdue──> AT_RISK
                           │                                              │
                           ├──────── V reached, lost, forked ─────────────┤
                           v                                              v
                        RELEASED ──the release finds it ended before──> LOST(reason)
                        PARKED ───────────── its limit is over ─────────> LOST(expired)

Theory of operation. The state is not stored but evaluated at every read from ``now``, so a handle is never
HELD past V (_validity.py), whatever else stalls: a paused process that reads its handle first thing after
the pause reads LOST. What has been read as LOST stays LOST; there is no way back, and a new grant has a new
handle. All that happens to a handle goes through this one machine, in the order in which it happened:

- A renewal that is answered after V, after the loss, or after the release has begun changes nothing.
- ``released`` as the answer to a renewal that raced with one's own release is no loss.
- With ``release_begun`` the holder has stopped acting and the state reads RELEASED, but the lease id and the
  token must not be forgotten: the release may not have arrived. They are ``forgettable`` after a definite
  answer, or at V, when the cluster ends the lease by itself.
- A handover ends the handle's belief before it is sent, because the successor may believe before its answer
  is here; so does parking. Until they are answered the handle is set aside: it reads RELEASED or PARKED, and
  what the cluster says of the lease meanwhile says no more than that answer. It is HELD again only if it is
  certain that nothing was done.
- A lease that demands progress ends without it, however often its session is renewed, so its handle has a
  bound of its own beside V (_demand.py).
- After a fork the child's handle is LOST; the parent's knows nothing of it.

The reasons that the client adds to those of the cluster: ``expired`` also stands for V, ``forked`` for a
handle that came through a fork, and ``closed`` for one whose renewal has ended because its client was closed.
"""

from __future__ import annotations

import enum

from tenure._demand import Demand
from tenure._validity import RHO, Validity, default_margin_s


class State(enum.Enum):
    """What a handle may be believed to be."""

    WAITING = "waiting"
    """Not granted yet."""
    HELD = "held"
    AT_RISK = "at_risk"
    """Still held; a renewal has failed or is overdue, and V is not reached."""
    LOST = "lost"
    RELEASED = "released"
    """Given back, or handed over."""
    PARKED = "parked"
    """Kept by the cluster without heartbeats until a limit, and nobody's to act on."""


class HandleLife:
    """One handle. ``now`` and all times are seconds of one clock, ``draw`` is a number in [0, 1).

    ``validity`` is that of the session; the handles of one session share it. Without it the handle has one
    of its own, from ``ttl_ms``, ``rho`` and ``margin_s``.
    """

    def __init__(
        self,
        *,
        ttl_ms: int = 0,
        rho: float = RHO,
        margin_s: float | None = None,
        validity: Validity | None = None,
        demand: Demand | None = None,
    ) -> None:
        self.demand = demand
        """What is known of the progress that the lease demands."""
        self.validity = validity or Validity(ttl_ms=ttl_ms, rho=rho, margin_s=margin_s)
        self.reason = ""
        """Why it is LOST; empty otherwise."""
        self._state = State.WAITING
        self._aside: State | None = None
        """What it reads as while a handover or parking is under way."""
        self._parked_until = float("-inf")
        self._release_answered = False

    @classmethod
    def from_grant(
        cls,
        *,
        ttl_ms: int,
        remaining_ms: int,
        sent_at: float,
        now: float,
        draw: float,
        rho: float = RHO,
        margin_s: float | None = None,
    ) -> HandleLife:
        """The handle of a grant: the acquire that was answered had been sent at ``sent_at``."""
        life = cls(ttl_ms=ttl_ms, rho=rho, margin_s=margin_s)
        life.granted(sent_at=sent_at, remaining_ms=remaining_ms, now=now, draw=draw)
        return life

    # -- reading

    def state(self, now: float) -> State:
        """The state at ``now``."""
        if self._state is State.HELD:
            if self.validity.is_over(now) or (self.demand is not None and self.demand.is_over(now)):
                self._lose("expired")
            elif self._aside is not None:
                return self._aside
            elif self.validity.is_at_risk(now) or (self.demand is not None and self.demand.is_at_risk(now)):
                return State.AT_RISK
        elif self._state is State.PARKED and now >= self._parked_until:
            self._lose("expired")
        return self._state

    def is_held(self, now: float) -> bool:
        """The holder may act: HELD or AT_RISK."""
        return self.state(now) in (State.HELD, State.AT_RISK)

    def is_kept(self, now: float) -> bool:
        """It is to be kept alive: held, or set aside by what may come to nothing."""
        self.state(now)
        return self._state is State.HELD

    @property
    def valid_until(self) -> float:
        """V; minus infinity before the grant."""
        return self.validity.valid_until

    def expires_in_s(self, now: float) -> float:
        """Seconds of validity left; 0 unless held."""
        if not self.is_held(now):
            return 0.0
        left_s = self.validity.left_s(now)
        return left_s if self.demand is None else min(left_s, self.demand.left_s(now))

    @property
    def demanded_until(self) -> float:
        """When it is lost for want of progress; infinity if it demands none, or is being given back."""
        if self.demand is None or self._state is State.RELEASED:
            return float("inf")
        return self.demand.until

    def parked_for_s(self, now: float) -> float:
        """Seconds for which it certainly stays parked; 0 unless it is."""
        return self._parked_until - now if self.state(now) is State.PARKED and self._aside is None else 0.0

    @property
    def next_renewal(self) -> float:
        """When the next attempt to renew is due; infinity if there is to be none."""
        return self.validity.renew_at if self._state is State.HELD else float("inf")

    def renew_due(self, now: float) -> bool:
        """An attempt to renew is to be made now. False while one is under way, and for ever once the handle
        is lost or its release has begun."""
        return self.is_held(now) and self.validity.renewal_due(now)

    @property
    def is_answered(self) -> bool:
        """The release was answered for certain."""
        return self._release_answered

    def forgettable(self, now: float) -> bool:
        """Nothing that the cluster holds for this handle can be left: its lease id and token may be
        forgotten."""
        if self._state is State.RELEASED:
            return self._release_answered or self.validity.is_over(now)
        return self.state(now) is State.LOST

    # -- what happens

    def granted(
        self, *, sent_at: float, remaining_ms: int, now: float, draw: float, ttl_ms: int | None = None
    ) -> State:
        """The acquire was answered. A grant whose answer took longer than it is valid is LOST at once."""
        if self._state is State.WAITING:
            self._state = State.HELD
            if not self.validity.extended(
                sent_at=sent_at, remaining_ms=remaining_ms, now=now, draw=draw, ttl_ms=ttl_ms
            ):
                self._lose("expired")
        return self.state(now)

    def renewal_begun(self, now: float) -> float:
        """An attempt to renew is sent now. Returns its time-out in seconds: min(TTL/6, validity left / 2)."""
        return self.validity.renewal_begun(now)

    def renewed(
        self, *, sent_at: float, remaining_ms: int, now: float, draw: float, ttl_ms: int | None = None
    ) -> State:
        """The attempt that was sent at ``sent_at`` was answered. Without effect once the handle is LOST or
        its release has begun."""
        if self.is_held(now):
            self.validity.extended(
                sent_at=sent_at, remaining_ms=remaining_ms, now=now, draw=draw, ttl_ms=ttl_ms
            )
        return self.state(now)

    def renew_failed(self, now: float, draw: float) -> State:
        """The attempt failed in a way that says nothing of the lease (no answer, no leader, overload …): it
        is repeated until V."""
        if self.is_held(now):
            self.validity.renewal_failed(now, draw)
        return self.state(now)

    def lost(self, reason: str, now: float) -> State:
        """The cluster says that the lease, or its session, is over. The first reason stands. Without effect
        once the release has begun, or while it is set aside: then the answer to a renewal says no more than
        that to the release, the handover or the parking itself."""
        if self.is_held(now) or (self._state is State.PARKED and self._aside is None):
            self._lose(reason)
        return self.state(now)

    def set_aside(self, reads: State, now: float) -> State:
        """A handover or parking is about to be sent: believe no more from here on, for now."""
        if self.is_held(now):
            self._aside = reads
        return self.state(now)

    def taken_back(self) -> None:
        """What it was set aside for was certainly not done."""
        self._aside = None

    def passed_on(self) -> None:
        """The cluster has answered the handover: it is the successor's."""
        if self._state is State.HELD:
            self._state, self._aside = State.RELEASED, None
            self._release_answered = True

    def parked(self, *, sent_at: float, remaining_ms: int, now: float) -> State:
        """The cluster has answered the parking that was sent at ``sent_at``."""
        if self._state is State.HELD or self.state(now) is State.PARKED:
            rho = self.validity.rho
            self._state, self._aside = State.PARKED, None
            self._parked_until = (
                sent_at + remaining_ms / 1000 * (1 - rho) / (1 + rho) - default_margin_s(remaining_ms)
            )
        return self.state(now)

    def taken_up(self) -> None:
        """The lease is another handle's life from here on, under a new token."""
        if self._state is State.PARKED or self._state is State.HELD:
            self._state, self._aside = State.RELEASED, None
            self._release_answered = True

    def release_begun(self, now: float) -> State:
        """The holder has stopped acting, and the release is about to be sent, or sent again. From here on
        the handle is not renewed. Without effect on a LOST handle."""
        if self.is_held(now) or self.state(now) is State.PARKED:
            self._state, self._aside = State.RELEASED, None
        return self.state(now)

    def release_answered(self, lost_reason: str | None = None) -> None:
        """The cluster has answered the release for certain: done, or the lease had ended before because of
        ``lost_reason``."""
        if self._state is State.RELEASED:
            self._release_answered = True
            if lost_reason is not None:
                self._lose(lost_reason)

    def forked(self) -> None:
        """This is the child's copy of a handle, which stays with the parent."""
        if self._state in (State.WAITING, State.HELD, State.PARKED):
            self._lose("forked")

    def given_up(self, reason: str, now: float) -> State:
        """Nobody will renew it any more: it must not be believed in. Also ends one that WAITs."""
        if self._state is State.WAITING or self.is_kept(now):
            self._lose(reason)
        return self.state(now)

    def _lose(self, reason: str) -> None:
        self._state, self._aside = State.LOST, None
        self.reason = reason
