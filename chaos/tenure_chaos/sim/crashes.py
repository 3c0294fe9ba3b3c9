"""Processes that end between two steps of what they do: at a named point of their code
(tenure_cluster.faults), or right before any one operation of their disk.

All nodes of a world share the table of points, so each armed point asks whose code has come there.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

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


OPERATIONS: Final = ("create", "open", "spend", "synced", "rename", "remove")
"""What SimDisk is entered by for every operation: a write asks for space, a sync says that it is one."""


class CrashAtOperation:
    """Ends a node right before the ``nth`` operation of its disk from now on, whoever does it."""

    def __init__(
        self, node: SimNode, nth: int, crash: Callable[[], None], counts: Collection[str] = OPERATIONS
    ) -> None:
        """``counts``: the operations that are counted."""
        self.left = nth
        self._counts = counts
        self.at = ""
        """The operation before which the node has ended; empty as long as it has not."""
        self._disk = node.disk
        self._crash = crash
        for name in OPERATIONS:
            self._wrap(name)

    def _wrap(self, name: str) -> None:
        operation = getattr(self._disk, name)

        def counted(*args: Any) -> Any:
            self.left -= name in self._counts
            if self.left == 0:
                self.at = name
                self._unwrap()
                self._crash()
                raise Crashed(name)
            return operation(*args)

        setattr(self._disk, name, counted)

    @staticmethod
    def armed(node: SimNode) -> bool:
        return OPERATIONS[0] in vars(node.disk)

    def disarm(self) -> None:
        """It shall not end any more."""
        if self.left > 0:
            self._unwrap()

    def _unwrap(self) -> None:
        for name in OPERATIONS:
            delattr(self._disk, name)
