"""What is refused before it reaches a call, in the log: one line a minute for each kind, with the number.

An attack must be seen, and its lines must not become another one.
"""

import logging
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

PERIOD_S: Final = 60.0

Kind: TypeAlias = Literal[
    "connections refused, all in use",
    "requests refused that are not HTTP/1.1",
    "requests cut off that did not come in time",
    "requests refused for their size",
    "requests refused without a valid credential",
    "requests refused under a foreign name",
    "frames of streams refused",
]

_log = logging.getLogger("tenure.api")


class Refusals:
    """Counts by kind."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counts: dict[Kind, int] = {}
        self._logged_at: dict[Kind, float] = {}

    def note(self, kind: Kind, origin: str) -> None:
        """One more, from this address."""
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        now = self._monotonic()
        if now - self._logged_at.get(kind, -PERIOD_S) >= PERIOD_S:
            self._logged_at[kind] = now
            _log.warning(
                "%s: %d so far, the last one from %s (said at most once a minute)", kind, count, origin or "?"
            )
