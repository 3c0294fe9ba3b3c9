"""What is counted where things happen: plain integers, read when somebody asks.

prometheus_client's own counters take a lock and look up their labels each time, which costs more than all
else that is done to count an operation. Everything that counts here runs on the event loop, so plain integers
do; the library's part is what it is good at, the form in which they are told.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Observations in buckets, their number and sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the buckets' upper bounds, rising; one more bucket takes what is above the last."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Each upper bound with the number of observations up to it, as the exposition format has them."""
        told: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            told.append(("+Inf" if bound == float("inf") else str(float(bound)), float(below)))
        return told


SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Of a journal's sync: half of a fast disk's to what deposes a leader."""

SNAPSHOT_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
"""Of making one snapshot."""

WAIT_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Of a queue, from joining it to the grant."""

HOLD_BOUNDS_S = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
"""Of a lease, from its grant to its end."""
