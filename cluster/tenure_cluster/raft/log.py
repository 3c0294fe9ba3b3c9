"""The log of one node in memory, with its term and vote: what the journal makes durable.

The same operations serve the live journal and the replay of its files, so a log that is read back can only be
one that could have been written. Entries are the plain tuples that PySyncObj works with; their positions
count from the first entry that is still kept, their indexes never change.
"""

from collections.abc import Iterable
from typing import TypeAlias

Entry: TypeAlias = tuple[bytes, int, int]
"""(command, index, term)"""


class InconsistentLog(Exception):
    """A change that no Raft log may make: a gap, a term that falls. A bug, or a damaged file."""


class Log:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.floor_index: int | None = 0
        """Index of the entry before the first one that is kept. None: the first one may have any index."""
        self.floor_term = 0
        self.term = 0
        self.voted_for: str | None = None
        self.bytes = 0
        """Bytes of all commands that are kept."""

    @property
    def last_index(self) -> int | None:
        return self.entries[-1][1] if self.entries else self.floor_index

    @property
    def last_term(self) -> int:
        return self.entries[-1][2] if self.entries else self.floor_term

    def add(self, entry: Entry) -> None:
        command, index, term = entry
        if self.entries:
            _, last_index, last_term = self.entries[-1]
            if index != last_index + 1 or term < last_term:
                raise InconsistentLog(f"entry ({index}, term {term}) after ({last_index}, term {last_term})")
        elif self.floor_index is None:
            self.floor_index = index - 1
        elif index != self.floor_index + 1 or term < self.floor_term:
            raise InconsistentLog(
                f"entry ({index}, term {term}) after ({self.floor_index}, term {self.floor_term})"
            )
        self.entries.append(entry)
        self.bytes += len(command)

    def cut(self, first_index: int, term_before: int) -> None:
        """Take away all entries from ``first_index`` on; ``term_before`` is the term of the entry before
        that.

        That may be before the first entry here: in the replay of a journal whose older segments, which a
        later restart of the log has made void, are already gone.
        """
        last_index = self.last_index
        if last_index is None or first_index > last_index + 1:
            raise InconsistentLog(f"cut at {first_index}, after the last entry {last_index}")
        position = first_index - (last_index + 1 - len(self.entries))
        if position <= 0:
            self.floor_index, self.floor_term, position = first_index - 1, term_before, 0
        self.bytes -= sum(len(entry[0]) for entry in self.entries[position:])
        del self.entries[position:]
        if self.last_term != term_before:
            raise InconsistentLog(f"cut at {first_index}, where the term before is {self.last_term}")

    def forget(self, count: int) -> None:
        """Keep only what follows the first ``count`` entries, which a durable snapshot covers."""
        if not 0 <= count <= len(self.entries):
            raise InconsistentLog(f"forget {count} of {len(self.entries)} entries")
        if count:
            _, self.floor_index, self.floor_term = self.entries[count - 1]
            self.bytes -= sum(len(entry[0]) for entry in self.entries[:count])
            del self.entries[:count]

    def restart(self, entries: Iterable[Entry]) -> None:
        """Hold exactly these entries. With none, the next one may have any index."""
        self.entries = []
        self.bytes = 0
        self.floor_index, self.floor_term = None, 0
        for entry in entries:
            self.add(entry)

    def set_term(self, term: int, voted_for: str | None) -> None:
        if term < self.term:
            raise InconsistentLog(f"term {term} after term {self.term}")
        self.term, self.voted_for = term, voted_for
