"""Progress that a lease demands, as its holder may believe in it: arithmetic over times that are given.

Theory of operation. The cluster ends a lease with ``progress_ms`` that much after the last note that was new,
or after the grant. What the client knows of that end are lower bounds, each counted from the send of the
attempt that was answered, as V is (_validity.py); since only progress moves the end, and only forward, the
greatest of them holds. An answer bounds it from below in three ways:

    expires_in_ms             the lease is there for so long, whichever of the two ends comes first
    progress_ms - age_ms      of the note, as the cluster counts its age
    progress_ms               for a grant that was made after the attempt was sent
"""

from __future__ import annotations

from typing import Final

from tenure._validity import RHO, default_margin_s
from tenure.answers import LeaseInfo

HURRY_AT_LEFT: Final = 1 / 3
"""The handle is AT_RISK when only this part of the demanded time is left."""


class Demand:
    """What is known of the end that comes without progress. Times are seconds of one clock."""

    def __init__(self, *, progress_ms: int, rho: float = RHO) -> None:
        self.progress_ms = progress_ms
        self.rho = rho
        self.margin_s = default_margin_s(progress_ms)
        self.until = float("-inf")
        """From here on the lease may be over for want of progress."""
        self._over = False

    def granted(self, lease: LeaseInfo, *, sent_at: float, new_since: float | None) -> None:
        """The grant, as an answer to the attempt that was sent at ``sent_at`` showed it. It was made after
        ``new_since``, if that is known."""
        self.until = self._bound(lease, sent_at)
        if new_since is not None:
            self.until = max(self.until, self._after(new_since, self.progress_ms))

    def told(self, lease: LeaseInfo, *, sent_at: float, now: float) -> None:
        """An answer to the attempt that was sent at ``sent_at`` showed the lease. Without effect once it is
        over: nothing that is learned later revives it."""
        if not self.is_over(now):
            self.until = max(self.until, self._bound(lease, sent_at))

    def _bound(self, lease: LeaseInfo, sent_at: float) -> float:
        left_ms = lease.expires_in_ms
        if lease.progress is not None:
            left_ms = max(left_ms, self.progress_ms - lease.progress.age_ms)
        return self._after(sent_at, left_ms)

    def _after(self, sent_at: float, left_ms: int) -> float:
        return sent_at + left_ms / 1000 * (1 - self.rho) / (1 + self.rho) - self.margin_s

    def left_s(self, now: float) -> float:
        return 0.0 if self.is_over(now) else self.until - now

    def is_over(self, now: float) -> bool:
        """Once true it stays true."""
        if now >= self.until and self.until != float("-inf"):
            self._over = True
        return self._over

    def is_at_risk(self, now: float) -> bool:
        """Time to tell of progress."""
        return self.left_s(now) <= HURRY_AT_LEFT * self.progress_ms / 1000
