"""Proposals on their way: queued, then in an entry that this node has appended, then answered. Pure.

All that is queued when a round forms its entry goes into one entry, up to a number and a size. An entry is
the unit of the log, of the sync and of the messages, so throughput rises with the number of callers.

Every proposal is answered exactly once: with its result when its entry is applied; with NotExecuted as long
as it has not been appended; with Unknown when it has been, and this node lost its office before seeing it
committed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tenure_cluster.raft.messages import encode_entry
from tenure_cluster.raft.types import Applied, NotExecuted, Outcome, Unknown

Done = Callable[[Outcome], None]

PAIR_OVERHEAD_BYTES: Final = 16
"""MessagePack around one command: array, stamp and length."""
ENTRY_OVERHEAD_BYTES: Final = 16
"""Type byte and array header of an entry, and room to spare."""


class Batch(NamedTuple):
    """The proposals of one entry."""

    pairs: list[tuple[int, bytes]]
    dones: list[Done]


class Proposals:
    def __init__(self, *, queue_max: int, entry_bytes_max: int, entry_commands_max: int) -> None:
        self.command_bytes_max = entry_bytes_max - ENTRY_OVERHEAD_BYTES - PAIR_OVERHEAD_BYTES
        self._queue: deque[tuple[int, bytes, Done]] = deque()
        self._queue_max = queue_max
        self._entry_bytes_max = entry_bytes_max
        self._entry_commands_max = entry_commands_max
        self._appended: dict[int, tuple[int, Batch]] = {}
        self._answers: list[tuple[Done, Outcome]] = []
        self._last_stamp_ms = 0

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def appended(self) -> int:
        """Entries of this office that are not applied yet."""
        return len(self._appended)

    @property
    def idle(self) -> bool:
        return not self._queue and not self._appended and not self._answers

    def is_full(self) -> bool:
        return len(self._queue) >= self._queue_max

    def add(self, at_ms: int, command: bytes, done: Done) -> None:
        self._queue.append((at_ms, command, done))

    def take(self) -> tuple[bytes, Batch] | None:
        """The next entry, of as much as fits; its proposals are with the caller until `append`."""
        queue, size = self._queue, ENTRY_OVERHEAD_BYTES
        if not queue:
            return None
        pairs: list[tuple[int, bytes]] = []
        dones: list[Done] = []
        while queue and len(pairs) < self._entry_commands_max:
            at_ms, command, done = queue[0]
            size += len(command) + PAIR_OVERHEAD_BYTES
            if pairs and size > self._entry_bytes_max:
                break
            queue.popleft()
            # Stamps never fall along the log, whatever order they were asked for in.
            self._last_stamp_ms = max(self._last_stamp_ms, at_ms)
            pairs.append((self._last_stamp_ms, command))
            dones.append(done)
        return encode_entry(pairs), Batch(pairs, dones)

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
        self._answers.extend(
            (done, Applied(result, index)) for done, result in zip(known[1].dones, results, strict=True)
        )

    def begin_office(self, stamp_ms: int) -> None:
        """Stamps of this office are not below `stamp_ms`."""
        self._last_stamp_ms = stamp_ms

    def end_office(self, refusal: NotExecuted) -> None:
        self._answers.extend((done, refusal) for _, _, done in self._queue)
        self._queue.clear()
        for _, batch in self._appended.values():
            self._answers.extend((done, Unknown()) for done in batch.dones)
        self._appended.clear()

    def take_answers(self) -> list[tuple[Done, Outcome]]:
        answers, self._answers = self._answers, []
        return answers
