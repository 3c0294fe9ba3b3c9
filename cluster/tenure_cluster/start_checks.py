"""Faults of a start that only the other nodes can show: a node that has just started listens to them for a
while, and ends if it should not be there.

    another cluster   more than half of the others say that this node is of another cluster: the addresses of
                      its [members] are those of a cluster that is not its own, or its data is
    a double          another node says that a process with this node's id was there before, and still is
    the clock         more than half of the others, and at least two, have another time than this machine.
                      No lease depends on it; certificates, the ends of credentials and what is written down
                      for people do

A node that has run for longer is not ended by any of this: what others say of it then is their start's fault.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tenure_cluster.raft.admission import DOUBLE, OTHER_CLUSTER

WINDOW_S: Final = 30.0
"""How long after its start a node counts as one that starts."""

CLOCK_TOLERANCE_MS: Final = 60_000
"""By so much clocks may differ. Far above what any synchronised clock is off by."""


class StartChecks:
    """What the others have shown so far. ``fault`` is told once, in one line with its remedy."""

    def __init__(
        self, node_id: str, peers: Collection[str], now_s: Callable[[], float], fault: Callable[[str], None]
    ) -> None:
        self._node_id = node_id
        self._peers = frozenset(peers)
        self._now_s = now_s
        self._until_s = math.inf
        self._fault: Callable[[str], None] | None = fault
        self._refusals: dict[str, str] = {}
        self.compared = False
        """Whether the clocks of all others have been looked at."""

    def begin(self, peers: Collection[str] | None = None) -> None:
        """The node has recovered, however long that took, and dials: from here on its time counts.
        `peers`: the others by its log, where that has said meanwhile who they are."""
        if peers is not None:
            self._peers = frozenset(peers)
        self._until_s = self._now_s() + WINDOW_S

    @property
    def over(self) -> bool:
        """Whether nothing more can come of it."""
        return self._fault is None or not self._peers or self._now_s() > self._until_s

    def refused(self, peer: str, why: str) -> None:
        """A node that was dialled has refused this one."""
        if self.over:
            return
        if DOUBLE in why:
            self._tell(
                f"another process runs as node {self._node_id!r}, and was there before ({peer} says: {why}): "
                "stop that one, or give this node an id of its own"
            )
        elif why.startswith(OTHER_CLUSTER) and peer in self._peers:
            self._refusals[peer] = why
            if 2 * len(self._refusals) > len(self._peers):
                self._tell(
                    f"{' and '.join(sorted(self._refusals))} are nodes of another cluster: they refuse "
                    f"{why}; correct the addresses in [members] or the cluster_id, or, if the cluster was "
                    "restored from a backup, restore this node too"
                )

    def clocks(self, skews_ms: Mapping[str, int]) -> None:
        """By how much the clocks of nodes that were asked are ahead of this machine's."""
        if self.over:
            return
        self.compared = len(skews_ms) == len(self._peers)
        off = {peer: skew for peer, skew in skews_ms.items() if abs(skew) > CLOCK_TOLERANCE_MS}
        if len(off) < 2 or 2 * len(off) <= len(self._peers):
            return
        told = ", ".join(
            f"{abs(skew) // 1000} s {'behind' if skew > 0 else 'ahead of'} {peer}"
            for peer, skew in sorted(off.items())
        )
        self._tell(
            f"the clock of this machine is {told}: set it, and keep it synchronised (chrony, "
            "systemd-timesyncd); up to 60 s are tolerated"
        )

    def _tell(self, line: str) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            fault(line)
