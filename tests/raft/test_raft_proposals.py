"""Every proposal is answered exactly once, with the truth."""

from tenure_cluster.raft import Applied, NotExecuted, Outcome, Unknown
from tenure_cluster.raft.messages import decode_entry
from tenure_cluster.raft.proposals import Proposals

LOST = NotExecuted("not_leader", "n2")


class Callers:
    def __init__(self, proposals: Proposals) -> None:
        self.proposals = proposals
        self.outcomes: dict[bytes, list[Outcome]] = {}

    def propose(self, *commands: bytes, at_ms: int = 5) -> None:
        for command in commands:
            outcomes = self.outcomes.setdefault(command, [])
            self.proposals.add(at_ms, command, outcomes.append)

    def append(self, index: int, term: int = 1) -> list[tuple[int, bytes]]:
        taken = self.proposals.take()
        assert taken is not None
        entry, batch = taken
        self.proposals.append(index, term, batch)
        return decode_entry(entry)

    def answer(self) -> None:
        for done, outcome in self.proposals.take_answers():
            done(outcome)


def make(**limits: int) -> tuple[Proposals, Callers]:
    defaults = {"queue_max": 100, "entry_bytes_max": 10_000, "entry_commands_max": 100}
    proposals = Proposals(**(defaults | limits))
    return proposals, Callers(proposals)


def test_all_that_is_queued_is_one_entry_in_order() -> None:
    proposals, callers = make()
    callers.propose(b"a", b"b", b"c")
    assert callers.append(7) == [(5, b"a"), (5, b"b"), (5, b"c")]
    assert (proposals.queued, proposals.appended, proposals.take()) == (0, 1, None)


def test_results_go_to_their_callers_when_the_entry_is_applied() -> None:
    proposals, callers = make()
    callers.propose(b"a", b"b")
    callers.append(7)
    proposals.applied(7, 1, ["A", "B"])
    assert not proposals.idle
    callers.answer()
    assert callers.outcomes == {b"a": [Applied("A", 7)], b"b": [Applied("B", 7)]}
    assert proposals.idle


def test_entries_of_others_answer_nobody() -> None:
    proposals, callers = make()
    proposals.applied(3, 1, ["x"])
    callers.answer()
    assert proposals.idle
    assert proposals.pairs(3, 1) is None


def test_an_entry_of_another_term_in_our_place_leaves_our_outcome_unknown() -> None:
    proposals, callers = make()
    callers.propose(b"a")
    callers.append(7, term=1)
    assert proposals.pairs(7, 1) == [(5, b"a")]
    assert proposals.pairs(7, 2) is None
    proposals.applied(7, 2, ["other"])
    callers.answer()
    assert callers.outcomes == {b"a": [Unknown()]}


def test_when_the_office_ends_the_queued_are_not_executed_and_the_appended_unknown() -> None:
    proposals, callers = make()
    callers.propose(b"appended")
    callers.append(7)
    callers.propose(b"queued")
    proposals.end_office(LOST)
    callers.answer()
    assert callers.outcomes == {b"appended": [Unknown()], b"queued": [LOST]}
    proposals.applied(7, 1, ["late"])
    callers.answer()
    assert callers.outcomes[b"appended"] == [Unknown()]


def test_an_entry_is_cut_at_its_number_of_commands() -> None:
    _, callers = make(entry_commands_max=2)
    callers.propose(b"a", b"b", b"c")
    assert [len(callers.append(7)), len(callers.append(8))] == [2, 1]


def test_an_entry_is_cut_at_its_size_and_never_exceeds_it() -> None:
    proposals, callers = make(entry_bytes_max=1000)
    callers.propose(*[bytes([n]) * 300 for n in range(7)])
    while proposals.queued:
        taken = proposals.take()
        assert taken is not None
        assert len(taken[0]) <= 1000
        assert len(taken[1].pairs) <= 3


def test_the_largest_command_fits_into_an_entry_of_its_own() -> None:
    proposals, callers = make(entry_bytes_max=1000)
    callers.propose(bytes(proposals.command_bytes_max), at_ms=1 << 53)
    taken = proposals.take()
    assert taken is not None
    assert len(taken[0]) <= 1000


def test_stamps_never_fall_along_the_log_nor_below_the_base_of_the_office() -> None:
    proposals, callers = make()
    proposals.begin_office(100)
    callers.propose(b"a", at_ms=50)
    callers.propose(b"b", at_ms=200)
    callers.propose(b"c", at_ms=150)
    assert [at_ms for at_ms, _ in callers.append(7)] == [100, 200, 200]


def test_the_queue_is_bounded() -> None:
    proposals, callers = make(queue_max=2)
    assert not proposals.is_full()
    callers.propose(b"a", b"b")
    assert proposals.is_full()
