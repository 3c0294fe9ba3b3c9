"""A process that ends at a named point of its code (tenure_cluster.faults), between two steps of it.

All nodes of a world share the table of points, so each armed point asks whose code has come there.
"""

from collections.abc import Callable

from tenure_chaos.sim.loop import CURRENT
from tenure_chaos.sim.node import SimNode
from tenure_cluster import faults


class Crashed(BaseException):
    """The process is dead: nothing of what it was doing happens any more. Raised through its code."""


class Crashes:
    """The points at which nodes shall end."""

    def __init__(self) -> None:
        self._armed: dict[str, dict[str, Callable[[], None]]] = {}

    def arm(self, node: SimNode, point: str, crash: Callable[[], None]) -> None:
        """At the next time that a process of the node comes to the point: ``crash`` ends it."""
        self._armed.setdefault(point, {})[node.name] = crash
        faults.arm(point, lambda: self._hit(point))

    def armed(self, node: SimNode, point: str) -> bool:
        return node.name in self._armed.get(point, {})

    def disarm(self, node: SimNode, point: str) -> None:
        """It shall not end there any more."""
        waiting = self._armed.get(point, {})
        waiting.pop(node.name, None)
        if not waiting:
            faults.disarm(point)

    def _hit(self, point: str) -> None:
        process = CURRENT.get()
        crash = self._armed[point].pop(process.name, None) if process is not None else None
        if crash is not None:
            crash()
            raise Crashed(point)
