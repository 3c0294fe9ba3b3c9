"""Leader-stamped monotone time.

A leader stamps commands with base + (monotonic now - monotonic at base). On taking office the base is the
greatest stamp in its log, so time never falls from one leader to the next, and the time without a leader
does not count: a lease is never shortened by an election.

Nor does the time in which this process did not run. A leader whose event loop stalled (collector, swapped
out, a suspended machine) has not been reading its clients' renewals meanwhile, and may have been replaced.
If more than `stall_after_s` passes between two looks at the clock, which the pump takes care to do many
times in that span, the whole gap is taken out of the elapsed time, and `confirmed` turns false until a
quorum round that began afterwards has succeeded. Until then nobody may be expired.
"""


class ClusterClock:
    """The clock of one office. Pure: `now_s` of a monotonic clock is always an argument."""

    def __init__(self, base_ms: int, now_s: float, stall_after_s: float) -> None:
        self._base_ms = base_ms
        self._base_s = now_s
        self._seen_s = now_s
        self._stall_after_s = stall_after_s
        self._stamp_ms = base_ms
        self.stalls = 0
        self.confirmed = True

    def observe(self, now_s: float) -> None:
        """Look at the clock, so that a gap is a stall and not a lack of interest. Called at every turn and
        timer."""
        gap_s = now_s - self._seen_s
        self._seen_s = now_s
        if gap_s > self._stall_after_s:
            self._base_s += gap_s
            self.stalls += 1
            self.confirmed = False

    def now_ms(self, now_s: float) -> int:
        """Cluster time; never falls."""
        self.observe(now_s)
        stamp_ms = self._base_ms + int((now_s - self._base_s) * 1000)
        if stamp_ms > self._stamp_ms:
            self._stamp_ms = stamp_ms
        return self._stamp_ms

    def confirm(self, stalls: int) -> None:
        """A quorum round that began when `stalls` stalls had been seen has succeeded."""
        if stalls == self.stalls:
            self.confirmed = True
