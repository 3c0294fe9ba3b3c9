"""Which answers confirm which reads."""

import pytest

from tenure_cluster.raft.read_barrier import ReadBarrier, quorum_number


@pytest.mark.parametrize(
    ("answered", "voters", "number"),
    [
        ({"n2": 5, "n3": 0}, 3, 5),
        ({"n2": 5, "n3": 7}, 3, 7),
        ({"n2": 5, "n3": 7, "n4": 0, "n5": 0}, 5, 5),
        ({"n2": 5, "n3": 0, "n4": 0, "n5": 0}, 5, 0),
        ({"n2": 4}, 2, 4),
        ({"n2": 1, "n3": 2, "n4": 3}, 4, 2),
    ],
)
def test_the_number_that_a_majority_has_answered(answered: dict[str, int], voters: int, number: int) -> None:
    assert quorum_number(answered, voters) == number


def test_a_single_node_is_its_own_majority() -> None:
    assert quorum_number({}, 1) > 1 << 60


class Waiting:
    def __init__(self, barrier: ReadBarrier) -> None:
        self.settled: list[Exception | None] = []
        barrier.add(self.settled.append)


def test_a_read_waits_for_an_answer_to_what_was_sent_after_it_began() -> None:
    barrier = ReadBarrier()
    read = Waiting(barrier)
    barrier.begin_round(number=10, commit_index=3)
    barrier.advance(answered_number=9, applied_index=3)
    assert read.settled == []
    barrier.advance(answered_number=10, applied_index=3)
    assert read.settled == [None]
    assert len(barrier) == 0


def test_a_confirmed_read_waits_until_its_index_is_applied() -> None:
    barrier = ReadBarrier()
    read = Waiting(barrier)
    barrier.begin_round(number=1, commit_index=8)
    barrier.advance(answered_number=5, applied_index=7)
    assert read.settled == []
    barrier.advance(answered_number=5, applied_index=8)
    assert read.settled == [None]


def test_reads_that_come_during_a_round_belong_to_the_next() -> None:
    barrier = ReadBarrier()
    first = Waiting(barrier)
    barrier.begin_round(number=1, commit_index=1)
    second = Waiting(barrier)
    assert barrier.wants_round
    barrier.begin_round(number=2, commit_index=1)
    assert not barrier.wants_round
    barrier.advance(answered_number=1, applied_index=1)
    assert (first.settled, second.settled) == ([None], [])
    barrier.advance(answered_number=2, applied_index=1)
    assert second.settled == [None]


def test_reads_that_wait_share_a_round() -> None:
    barrier = ReadBarrier()
    reads = [Waiting(barrier) for _ in range(3)]
    barrier.begin_round(number=4, commit_index=0)
    barrier.advance(answered_number=4, applied_index=0)
    assert all(read.settled == [None] for read in reads)


def test_when_leadership_is_lost_every_read_fails_wherever_it_stands() -> None:
    barrier = ReadBarrier()
    confirmed = Waiting(barrier)
    barrier.begin_round(number=1, commit_index=9)
    barrier.advance(answered_number=1, applied_index=0)
    asked = Waiting(barrier)
    barrier.begin_round(number=2, commit_index=9)
    fresh = Waiting(barrier)
    lost = RuntimeError("lost")
    barrier.fail(lost)
    assert [read.settled for read in (confirmed, asked, fresh)] == [[lost]] * 3
    barrier.advance(answered_number=99, applied_index=99)
    assert len(barrier) == 0
