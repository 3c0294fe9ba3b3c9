"""Proposals on their way: queued, then in an entry that this node has appended, then answered. Pure.

All that is queued when a round forms its entry goes into one entry, up to a number and a size. An entry is
the unit of the log, of the sync and of the messages, so throughput rises with the number of callers. Commands
that were proposed together are queued, appended and answered together, at the cost of one.

Every proposal is answered exactly once: with its result when its entry is applied; with NotExecuted as long
as it has not been appended; with Unknown when it has been, and this node lost its office before seeing it
committed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tenure_cluster.raft.messages import encode_entry
from tenure_cluster.raft.types import Applied, NotExecuted, Outcome, Unknown

Done = Callable[[Outcome], None]
DoneAll = Callable[[range, Outcome], None]
"""Told which of the commands that were proposed together came to this; Applied then has all their results."""

PAIR_OVERHEAD_BYTES: Final = 16
"""MessagePack around one command: array, stamp and length."""
ENTRY_OVERHEAD_BYTES: Final = 16
"""Type byte and array header of an entry, and room to spare."""


class Part(NamedTuple):
    """Commands that go into one entry together."""

    at_ms: int
    commands: Sequence[bytes]
    done: Done
    alone: bool
    """Whether it is a single proposal, which is told its result and no list."""
    size: int


class Batch(NamedTuple):
    """The proposals of one entry."""

    pairs: list[tuple[int, bytes]]
    dones: list[Done]
    counts: list[int]
    """How many commands each of ``dones`` is told of; 0 for a single proposal."""


class Proposals:
    def __init__(self, *, queue_max: int, entry_bytes_max: int, entry_commands_max: int) -> None:
        self.command_bytes_max = entry_bytes_max - ENTRY_OVERHEAD_BYTES - PAIR_OVERHEAD_BYTES
        self._queue: deque[Part] = deque()
        self._queue_max = queue_max
        self.queued = 0
        """Commands in the queue."""
        self._entry_bytes_max = entry_bytes_max
        self._entry_commands_max = entry_commands_max
        self._appended: dict[int, tuple[int, Batch]] = {}
        self._answers: list[tuple[Done, Outcome]] = []
        self._last_stamp_ms = 0

    @property
    def appended(self) -> int:
        """Entries of this office that are not applied yet."""
        return len(self._appended)

    @property
    def idle(self) -> bool:
        return not self._queue and not self._appended and not self._answers

    def is_full(self, count: int = 1) -> bool:
        """Whether there is no room for so many commands more."""
        return self.queued + count > self._queue_max

    def add(self, at_ms: int, command: bytes, done: Done) -> None:
        self._queue.append(Part(at_ms, (command,), done, True, len(command) + PAIR_OVERHEAD_BYTES))
        self.queued += 1

    def add_all(self, at_ms: int, commands: Sequence[bytes], done: DoneAll) -> None:
        """As many parts as it takes for each to fit into an entry: one, as a rule."""
        first, size, size_max = 0, 0, self._entry_bytes_max - ENTRY_OVERHEAD_BYTES
        for place, command in enumerate(commands):
            grown = size + len(command) + PAIR_OVERHEAD_BYTES
            if place > first and (grown > size_max or place - first == self._entry_commands_max):
                self._add_part(at_ms, commands[first:place], partial(done, range(first, place)), size)
                first, grown = place, grown - size
            size = grown
        if commands:
            which = range(first, len(commands))
            self._add_part(at_ms, commands[first:], partial(done, which), size)

    def _add_part(self, at_ms: int, commands: Sequence[bytes], done: Done, size: int) -> None:
        self._queue.append(Part(at_ms, commands, done, False, size))
        self.queued += len(commands)

    def take(self) -> tuple[bytes, Batch] | None:
        """The next entry, of as much as fits; its proposals are with the caller until `append`."""
        queue, size = self._queue, ENTRY_OVERHEAD_BYTES
        if not queue:
            return None
        pairs: list[tuple[int, bytes]] = []
        dones: list[Done] = []
        counts: list[int] = []
        while queue:
            at_ms, commands, done, alone, part_size = queue[0]
            size += part_size
            if pairs and (
                size > self._entry_bytes_max or len(pairs) + len(commands) > self._entry_commands_max
            ):
                break
            queue.popleft()
            # Stamps never fall along the log, whatever order they were asked for in.
            stamp_ms = self._last_stamp_ms = max(self._last_stamp_ms, at_ms)
            pairs += [(stamp_ms, command) for command in commands]
            dones.append(done)
            counts.append(0 if alone else len(commands))
        self.queued -= len(pairs)
        return encode_entry(pairs), Batch(pairs, dones, counts)

    def append(self, index: int, term: int, batch: Batch) -> None:
        self._appended[index] = (term, batch)

    def pairs(self, index: int, term: int) -> list[tuple[int, bytes]] | None:
        """What the entry at `index` holds, if it was proposed here in `term`."""
        known = self._appended.get(index)
        return known[1].pairs if known is not None and known[0] == term else None

    def applied(self, index: int, term: int, results: Sequence[object]) -> None:
        """The entry at `index` has been applied."""
        known = self._appended.pop(index, None)
        if known is None:
            return
        if known[0] != term:
            self._answers.extend((done, Unknown()) for done in known[1].dones)
            return
        at = 0
        for done, count in zip(known[1].dones, known[1].counts, strict=True):
            result = results[at : at + count] if count else results[at]
            self._answers.append((done, Applied(result, index)))
            at += count or 1

    def begin_office(self, stamp_ms: int) -> None:
        """Stamps of this office are not below `stamp_ms`."""
        self._last_stamp_ms = stamp_ms

    def end_office(self, refusal: NotExecuted) -> None:
        self._answers.extend((part.done, refusal) for part in self._queue)
        self._queue.clear()
        self.queued = 0
        for _, batch in self._appended.values():
            self._answers.extend((done, Unknown()) for done in batch.dones)
        self._appended.clear()

    def take_answers(self) -> list[tuple[Done, Outcome]]:
        answers, self._answers = self._answers, []
        return answers
