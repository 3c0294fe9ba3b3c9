"""What a leader knows of a follower, and what it may send."""

from tenure_cluster.raft.replication import UNANSWERED_MAX, Mode, Progress

WINDOW = 1000


def streaming(next_index: int = 10) -> Progress:
    return Progress(next_index, WINDOW)


def test_entries_go_out_without_waiting_until_the_window_is_full() -> None:
    progress = streaming()
    assert progress.may_send
    progress.sent(1, 600, 0.0)
    assert progress.may_send
    progress.sent(2, 600, 0.0)
    assert not progress.may_send
    assert progress.answered(1)
    assert progress.in_flight_bytes == 600
    assert progress.may_send


def test_an_answer_covers_all_earlier_messages_and_dates_from_when_its_question_was_sent() -> None:
    progress = streaming()
    for number, at_s in ((1, 0.5), (2, 0.6), (3, 0.7)):
        progress.sent(number, 10, at_s)
    assert progress.answered(2)
    assert (progress.answered_number, progress.answered_sent_s, progress.in_flight_bytes) == (2, 0.6, 10)


def test_an_answer_to_what_was_never_sent_or_is_answered_already_is_not_one() -> None:
    progress = streaming()
    assert not progress.answered(1)
    progress.sent(5, 10, 0.0)
    assert not progress.answered(4)
    assert not progress.answered(6)
    assert progress.answered(5)
    assert not progress.answered(5)


def test_only_the_first_refusal_of_a_flight_moves_the_place() -> None:
    progress = streaming(next_index=100)
    for number in (1, 2, 3):
        progress.sent(number, 10, 0.0)
    progress.refused(1, hint_index=50, last_number=3)
    assert (progress.mode, progress.next_index) == (Mode.PROBE, 50)
    progress.refused(2, hint_index=90, last_number=3)
    progress.refused(3, hint_index=20, last_number=3)
    assert progress.next_index == 50
    progress.sent(4, 0, 0.0)
    progress.refused(4, hint_index=20, last_number=4)
    assert progress.next_index == 20


def test_without_the_filter_every_refusal_moves_the_place() -> None:
    progress = Progress(100, WINDOW, filter_flights=False)
    progress.refused(1, hint_index=50, last_number=3)
    progress.refused(2, hint_index=90, last_number=3)
    assert progress.next_index == 49


def test_a_refusal_never_goes_below_what_matches_nor_below_the_first_entry() -> None:
    progress = streaming(next_index=10)
    progress.matched(6)
    progress.refused(1, hint_index=3, last_number=1)
    assert progress.next_index == 7
    fresh = streaming(next_index=3)
    fresh.refused(1, hint_index=0, last_number=1)
    assert fresh.next_index == 2


def test_a_probe_is_asked_one_at_a_time_and_ends_with_the_first_match() -> None:
    progress = streaming(next_index=100)
    progress.refused(1, hint_index=50, last_number=1)
    assert progress.may_send
    progress.sent(2, 0, 0.0)
    assert not progress.may_send
    progress.answered(2)
    progress.matched(49)
    assert (progress.mode, progress.next_index, progress.match_index) == (Mode.STREAM, 50, 49)


def test_a_match_never_moves_back() -> None:
    progress = streaming(next_index=10)
    progress.matched(9)
    progress.matched(5)
    assert (progress.match_index, progress.next_index) == (9, 10)


def test_while_a_snapshot_is_sent_refusals_say_nothing_and_its_end_says_where_to_go_on() -> None:
    progress = streaming(next_index=5)
    progress.begin_snapshot(80)
    progress.refused(1, hint_index=2, last_number=9)
    assert progress.mode is Mode.SNAPSHOT
    progress.matched(40)
    assert progress.mode is Mode.SNAPSHOT
    progress.matched(80)
    assert (progress.mode, progress.next_index) == (Mode.STREAM, 81)


def test_a_new_connection_begins_with_a_probe_behind_what_is_known_to_match() -> None:
    progress = streaming(next_index=10)
    progress.sent(1, 900, 0.0)
    progress.matched(7)
    progress.reconnected(last_number=1)
    assert (progress.mode, progress.next_index, progress.in_flight_bytes) == (Mode.PROBE, 8, 0)
    assert not progress.answered(1)
    progress.refused(1, hint_index=2, last_number=1)
    assert progress.next_index == 8, "a refusal of the old connection"


def test_a_follower_that_answers_nothing_is_sent_only_heartbeats_in_the_end() -> None:
    progress = streaming(next_index=10)
    for number in range(UNANSWERED_MAX):
        assert progress.may_send
        progress.sent(number, 1 if number < 5 else 0, 0.0)
    for heartbeat in range(UNANSWERED_MAX, 2 * UNANSWERED_MAX):
        assert not progress.may_send
        progress.sent(heartbeat, 0, float(heartbeat))
    assert progress.in_flight_bytes == 5
    assert not progress.answered(0), "nobody remembers when that was sent"
    assert progress.answered(UNANSWERED_MAX + 3)
    assert (progress.in_flight_bytes, progress.answered_sent_s) == (0, UNANSWERED_MAX + 3)
    assert progress.may_send
