"""Random operations on the journal, with crashes anywhere, against a list that is right by being simple.

After each crash the journal must hold exactly what was durable, or that and the one batch whose sync had not
returned; never less, never anything else.
"""

import random
from collections.abc import Callable

from disk_model import ModelDisk, PowerLost
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from journal_cases import State, open_journal, state

from tenure_cluster.raft.journal import Entry, SyncTicket

SIZES = st.sampled_from([0, 1, 30, 300, 600, 3000, 20_000, 70_000])
FILLS = st.sampled_from([b"c", b"\0", b"\xf7TJF"])
SEEDS = st.integers(0, 1 << 32)


def aligned(entries: list[Entry], snapshot: tuple[Entry, Entry] | None) -> list[Entry]:
    """The log as it is after a start with this snapshot."""
    if snapshot is None:
        return entries
    position = next((n for n, entry in enumerate(entries) if entry[1] == snapshot[1][1]), None)
    if position is None or entries[position][2] != snapshot[1][2]:
        return list(snapshot)
    return entries[position - 1 :]


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = ModelDisk()
        self.chance = random.Random(0)
        self.snapshot: tuple[Entry, Entry] | None = None
        self.durable: State = ([], 0, None)
        self.written: State | None = None
        self.ticket: SyncTicket | None = None
        self.synced = False
        self.journal = open_journal(self.disk)
        self.entries: list[Entry] = []
        self.term = 0
        self.voted_for: str | None = None

    # -- the machine room

    def now(self) -> State:
        return list(self.entries), self.term, self.voted_for

    def guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except PowerLost:
            self.start_again(self.stop)

    def stop(self) -> None:
        """The operation under way does not return: the process has ended, or the machine."""
        if self.chance.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.lose_power(self.chance)

    def start_again(self, crash: Callable[[], None]) -> None:
        crash()
        while True:
            try:
                self.journal = open_journal(self.disk, self.snapshot)
                break
            except PowerLost:
                self.stop()
        expected = [
            (aligned(entries, self.snapshot), term, vote)
            for entries, term, vote in filter(None, (self.durable, self.written))
        ]
        found = state(self.journal)
        assert found in expected
        assert self.journal.durable_index == (found[0][-1][1] if found[0] else 0)
        assert not self.journal.dirty
        self.durable = found
        self.entries, self.term, self.voted_for = list(found[0]), found[1], found[2]
        self.written = self.ticket = None
        self.synced = False

    # -- what Raft does

    @rule(count=st.integers(1, 5), size=SIZES, fill=FILLS)
    def add(self, count: int, size: int, fill: bytes) -> None:
        for _ in range(count):
            index = self.entries[-1][1] + 1 if self.entries else 1
            term = max(self.term, self.entries[-1][2] if self.entries else 0)
            entry = (b"%d/%d." % (index, term) + fill * (size // len(fill)), index, term)
            self.journal.add(*entry)
            self.entries.append(entry)

    @rule(part=st.floats(0, 1))
    def cut(self, part: float) -> None:
        kept = 2 if self.snapshot is not None else 0
        position = kept + int(part * (len(self.entries) - kept))
        self.journal.deleteEntriesFrom(position)
        if position < len(self.entries):
            # What follows comes from a later leader: (index, term) names one entry for ever.
            later_term = max(self.term, self.entries[-1][2]) + 1
            del self.entries[position:]
            self.set_term(later_term - self.term, None)

    @rule(rise=st.integers(0, 2), vote=st.sampled_from([None, "n1", "n2"]))
    def set_term(self, rise: int, vote: str | None) -> None:
        self.term, self.voted_for = self.term + rise, vote
        self.journal.setCurrentTerm(self.term, vote)

    @precondition(lambda self: len(self.entries) > 2)
    @rule(part=st.floats(0, 1))
    def compact(self, part: float) -> None:
        position = 1 + int(part * (len(self.entries) - 2))
        self.snapshot = (self.entries[position - 1], self.entries[position])
        del self.entries[: position - 1]
        self.guarded(lambda: self.journal.deleteEntriesTo(position - 1))

    @rule(ahead=st.integers(-3, 50), clears=st.booleans())
    def install(self, ahead: int, clears: bool) -> None:
        """A snapshot from a leader: beyond this log, or in place of a tail that was never committed."""
        least = self.snapshot[1][1] + 1 if self.snapshot else 2
        index = max(least, (self.entries[-1][1] if self.entries else 0) + ahead)
        term = max(self.term, *(entry[2] for entry in self.entries), 0) + 1
        term = max(term, self.durable[1] + 1)
        previous, last = (b"p", index - 1, term), (b"l%d" % index, index, term)
        self.snapshot = (previous, last)
        self.entries = [previous, last]
        if clears:
            self.journal.clear()
            self.journal.add(*previous)
            self.journal.add(*last)
        else:
            self.journal.rebase(self.snapshot)
        self.set_term(2, None)

    # -- the way to the disk

    @precondition(lambda self: self.ticket is None)
    @rule()
    def flush(self) -> None:
        if self.journal.dirty:
            self.written = self.now()

        def action() -> None:
            self.ticket = self.journal.flush_batch()

        self.guarded(action)

    @precondition(lambda self: self.ticket is not None and not self.synced)
    @rule()
    def sync(self) -> None:
        def done(error: BaseException | None) -> None:
            assert error is None
            assert self.written is not None
            self.durable, self.written, self.synced = self.written, None, True

        assert self.ticket is not None
        self.disk.run(self.ticket.sync, done)
        self.guarded(lambda: self.disk.work(bulk=False))

    @precondition(lambda self: self.synced)
    @rule()
    def mark(self) -> None:
        self.guarded(self.journal.mark_durable)
        self.ticket, self.synced = None, False

    @rule(batches=st.integers(1, 3), size=SIZES, fill=FILLS)
    def go_on(self, batches: int, size: int, fill: bytes) -> None:
        """The ordinary course of things."""
        for _ in range(batches):
            self.add(1, size, fill)
            if self.ticket is None:
                self.flush()
            if self.ticket is not None and not self.synced:
                self.sync()
            if self.synced:
                self.mark()

    @rule(pieces=st.integers(1, 8))
    def work(self, pieces: int) -> None:
        self.guarded(lambda: self.disk.work(pieces))

    # -- crashes

    @rule()
    def kill(self) -> None:
        self.start_again(self.disk.kill)

    @rule(seed=SEEDS)
    def lose_power(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.start_again(lambda: self.disk.lose_power(self.chance))

    @rule(seed=SEEDS, operations=st.integers(0, 20))
    def let_the_power_fail_soon(self, seed: int, operations: int) -> None:
        self.chance = random.Random(seed)
        self.disk.fail_after(operations)

    @rule(seed=SEEDS, operations=st.integers(0, 12))
    def lose_power_and_again_while_starting(self, seed: int, operations: int) -> None:
        self.chance = random.Random(seed)

        def crash() -> None:
            self.disk.lose_power(self.chance)
            self.disk.fail_after(operations)

        self.start_again(crash)

    @invariant()
    def the_log_in_memory_is_right(self) -> None:
        assert state(self.journal) == self.now()
        assert self.journal.durable_index <= (self.entries[-1][1] if self.entries else 0)
        if self.snapshot is not None:
            assert self.journal[:2] == list(self.snapshot)


TestJournalAgainstAModel = JournalMachine.TestCase
TestJournalAgainstAModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
