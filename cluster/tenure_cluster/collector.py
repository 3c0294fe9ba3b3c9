"""The garbage collector of a node's process: what it need not walk.

Nearly everything that a call makes is freed by counting references, and what lives on is the replicated
state, which has no cycles. A collector left to itself walks that over and over: of a million leases that held
the event loop for more than 200 ms. So what recovery has built is taken out of its sight (gc.freeze), and so
is what has been granted since, each time the leases have doubled: a handful of times in the life of a
process, since whatever is in a cycle at that moment stays for good.

The dictionaries of an empty table are a case of their own. The collector does not know a dictionary before
something that may be in a cycle is put in, so they would come into its sight with the first lease, after
everything else was taken out. They are shown to it before.
"""

import gc
from collections.abc import Callable
from typing import Any, Final

from tenure_cluster.lease.table import LeaseTable

THRESHOLDS: Final = (5_000, 20, 50)
"""The interpreter's own thresholds walk what lives on far too often. What a granted lease leaves behind is
walked once and never again, but all that came since the last walk in one go: ten times as many objects held
the loop for 46 ms.
"""

DOUBLED_MIN: Final = 50_000
"""Of fewer leases a walk takes a few milliseconds."""


class Collector:
    """Follows the state of one node, from `begin` to `end`."""

    def __init__(self, table: Callable[[], LeaseTable]) -> None:
        """`table` gives the present one: an installed snapshot brings another."""
        self._table = table
        self._leases = 0
        self._of: LeaseTable | None = None
        self.frozen = 0
        """How often something was taken out of the collector's sight."""

    def begin(self) -> None:
        """Recovery is over."""
        gc.collect()
        self._freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        """The collector begins or has ended: a good moment to look, and not an often one."""
        if phase == "stop" and info["generation"] > 0:
            self.look()

    def look(self) -> None:
        """Freeze if there is enough that is new."""
        table = self._table()
        leases = len(table.leases)
        if leases >= DOUBLED_MIN and (leases >= 2 * self._leases or table is not self._of):
            self._freeze()

    def _freeze(self) -> None:
        table = self._of = self._table()
        for section in (table.sessions, table.leases, table.keys, table.waiters, table.records):
            if type(section) is dict and not gc.is_tracked(section):
                seen = (object(),)  # any tuple that is new is tracked
                section[seen] = None
                del section[seen]
        gc.freeze()
        self._leases = len(table.leases)
        self.frozen += 1
