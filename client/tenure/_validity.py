"""How long a lease may be believed in, and when to renew it: arithmetic over times that are given.

Theory of operation. Every answer that tells the time left tells it as the leader counted it when it answered,
at some unknown moment after the request was sent. So validity counts from the send of that very attempt,

    V = sent_at + remaining * (1 - rho) / (1 + rho) - margin

where rho bounds how far either clock's rate may be off. What is known can only grow: renewing never shortens
a lease, so an answer that arrives out of order is no reason to believe less than before.

    sent_at   + TTL/3 +-10 %              renewal due; an attempt lasts TTL/6, or half of what is left
              first failure, or overdue   AT_RISK: the holder may want to hurry or to stop
              V                           over, for good

Failed attempts are repeated after a pause that doubles, bounded by a part of the TTL and of what is left, so
that with the defaults at least two further attempts fit before V even if every attempt hangs.

The validity belongs to a session; all its leases share it. Times are seconds of one clock, of which only
differences matter; ``now`` and ``draw`` (a number in [0, 1)) are arguments.
"""

from __future__ import annotations

from typing import Final

RHO: Final = 0.005
"""Bound on how far the rate of any clock may be off."""
MARGIN_MIN_S: Final = 0.25
MARGIN_OF_TTL: Final = 0.01
"""Time kept back for what the holder needs to stop: this part of the TTL, and MARGIN_MIN_S at least."""

RENEW_AT_LEFT: Final = 2 / 3
"""A renewal is due when this part of the TTL is left."""
RENEW_JITTER: Final = 0.1
"""The time to the renewal varies by this part, so that clients do not come in step."""
ATTEMPT_OF_TTL: Final = 1 / 6
ATTEMPT_OF_LEFT: Final = 1 / 2
"""An attempt to renew lasts these parts of the TTL and of the validity left, whichever is less."""

RETRY_OF_TTL_MIN: Final = 1 / 50
RETRY_OF_TTL_MAX: Final = 1 / 12
RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 10.0
RETRY_OF_LEFT: Final = 1 / 8
RETRY_FLOOR_S: Final = 0.02
"""The pause after a failed attempt doubles from the lesser of the first and third to the lesser of the second
and fourth. It is never more than RETRY_OF_LEFT of the validity left, and never less than RETRY_FLOOR_S."""


def default_margin_s(ttl_ms: int) -> float:
    """The margin that is taken when none is given."""
    return max(MARGIN_MIN_S, MARGIN_OF_TTL * ttl_ms / 1000)


class Validity:
    """What is known of one session's time. Not valid until the first ``extended``."""

    def __init__(self, *, ttl_ms: int, rho: float = RHO, margin_s: float | None = None) -> None:
        self.ttl_ms = ttl_ms
        self.rho = rho
        self.margin_s = default_margin_s(ttl_ms) if margin_s is None else margin_s
        self.valid_until = float("-inf")
        """V: from here on nothing may be believed."""
        self.renew_at = float("inf")
        """When the next renewal is due."""
        self.overdue_at = float("inf")
        """When the next renewal should have been answered at the latest."""
        self._over = False
        self._begun_at: float | None = None
        self._failures = 0

    @property
    def renewing(self) -> bool:
        """An attempt to renew is under way."""
        return self._begun_at is not None

    def left_s(self, now: float) -> float:
        """Seconds of validity left; 0 once it is over."""
        return 0.0 if self.is_over(now) else self.valid_until - now

    def is_over(self, now: float) -> bool:
        """V has been reached. Once true it stays true: nothing that is learned later revives it."""
        if now >= self.valid_until and self.valid_until != float("-inf"):
            self._over = True
        return self._over

    def is_at_risk(self, now: float) -> bool:
        """A renewal has failed or is overdue."""
        return self._failures > 0 or now >= self.overdue_at

    def extended(
        self, *, sent_at: float, remaining_ms: int, now: float, draw: float, ttl_ms: int | None = None
    ) -> bool:
        """The attempt that was sent at ``sent_at`` was answered: ``remaining_ms`` are left as the leader
        counts. Returns false if it came too late."""
        if ttl_ms is not None:
            self.ttl_ms = ttl_ms
        ended = self.is_over(now)
        self._begun_at = None
        if ended:
            return False
        remaining_s = remaining_ms / 1000
        valid_until = sent_at + remaining_s * (1 - self.rho) / (1 + self.rho) - self.margin_s
        if valid_until >= self.valid_until:
            self.valid_until = valid_until
            self._plan(sent_at, remaining_s, draw)
        self._failures = 0
        return not self.is_over(now)

    def _plan(self, sent_at: float, remaining_s: float, draw: float) -> None:
        ttl_s = self.ttl_ms / 1000
        until_due_s = max(0.0, min(remaining_s, ttl_s) - RENEW_AT_LEFT * ttl_s)
        self.renew_at = sent_at + until_due_s * (1 + RENEW_JITTER * (2 * draw - 1))
        latest_due_at = sent_at + until_due_s * (1 + RENEW_JITTER)
        self.overdue_at = latest_due_at + ATTEMPT_OF_TTL * ttl_s

    def renewal_due(self, now: float) -> bool:
        """An attempt to renew is to be made now."""
        return not self.renewing and now >= self.renew_at and not self.is_over(now)

    def attempt_timeout_s(self, now: float) -> float:
        """How long an attempt that begins now may take."""
        return min(ATTEMPT_OF_TTL * self.ttl_ms / 1000, ATTEMPT_OF_LEFT * self.left_s(now))

    def renewal_begun(self, now: float) -> float:
        """An attempt is sent now; returns its time-out in seconds."""
        self._begun_at = now
        return self.attempt_timeout_s(now)

    def renewal_failed(self, now: float, draw: float) -> None:
        """The attempt came to nothing that is known for certain; it is made again after a pause."""
        ttl_s = self.ttl_ms / 1000
        shortest_s = min(RETRY_OF_TTL_MIN * ttl_s, RETRY_MIN_S)
        longest_s = min(RETRY_OF_TTL_MAX * ttl_s, RETRY_MAX_S)
        pause_s = min(shortest_s * 2 ** min(self._failures, 16), longest_s) * (1 + draw) / 2
        self.renew_at = now + max(RETRY_FLOOR_S, min(pause_s, RETRY_OF_LEFT * self.left_s(now)))
        self._failures += 1
        self._begun_at = None

    def renew_now(self, now: float) -> None:
        """Let the next renewal be due at once."""
        self.renew_at = min(self.renew_at, now)
