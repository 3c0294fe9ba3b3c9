"""The lease machine as the state machine that consensus drives: decodes commands, applies them, passes events
on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tenure_cluster.lease.commands import AnyCommand, decode
from tenure_cluster.lease.events import Event
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.snapshot import digest, dump, load
from tenure_cluster.lease.table import LeaseTable

TIDY_STEPS_MAX: Final = 300
"""Most steps of each kind of tidying in one entry: half a millisecond, and many more than an entry's commands
and its share of the time ask for."""


class Replica:
    """This node's copy of the replicated state.

    Anything that `apply` or `restore` raises (a broken invariant, a command that this version can't decode)
    means that the state can no longer be trusted; consensus then stops the node before it answers anything.
    """

    def __init__(self) -> None:
        self._machine = LeaseMachine(LeaseTable())
        self.applied_index = 0
        """Of the last entry that the state has, or of a snapshot; entries without commands don't count."""
        self.on_events: Callable[[Sequence[Event]], None] | None = None
        """Called after an entry with everything that happened in it, while consensus is still in its round:
        it may take notes, and must not propose."""
        self.on_restored: Callable[[], None] | None = None
        """Called after the whole state was replaced."""
        self.on_applied: Callable[[Sequence[AnyCommand], Sequence[object], Sequence[Event]], None] | None = (
            None
        )
        """Called after an entry with its commands, their results and all events, in order; likewise."""

    @property
    def table(self) -> LeaseTable:
        """For reading alone."""
        return self._machine.table

    @property
    def time_ms(self) -> int:
        return self._machine.table.time_ms

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        machine = self._machine
        asked: list[AnyCommand] = []
        results: list[object] = []
        events: list[Event] = []
        for at_ms, data in commands:
            command = decode(data)
            applied = machine.apply(at_ms, command)
            asked.append(command)
            results.append(applied.result)
            if applied.events:
                events += applied.events
        machine.tidy(TIDY_STEPS_MAX)
        self.applied_index = index
        if events and self.on_events is not None:
            self.on_events(events)
        if self.on_applied is not None:
            self.on_applied(asked, results, events)
        return results

    def snapshot(self) -> Iterator[bytes]:
        return dump(self._machine.table)

    def restore(self, chunks: Iterable[bytes], index: int) -> None:
        self._machine = LeaseMachine(load(chunks))
        self.applied_index = index
        if self.on_restored is not None:
            self.on_restored()

    def digest(self) -> str:
        """SHA-256 of the state's content, equal on all nodes at the same applied index."""
        return digest(self._machine.table)
