"""What a follower lets an append do to its log, for all logs that can meet."""

from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_cluster.raft.append_rules import is_well_formed, refusal_hint, trim
from tenure_cluster.raft.engine import RaftBroken

Entry = tuple[bytes, int, int]


class Meeting(NamedTuple):
    """A leader's log, a follower's log that may be compacted, and an append."""

    leader: list[Entry]
    follower: list[Entry]
    commit: int
    common: int
    prev: int
    entries: list[Entry]


def log_of(terms: list[int]) -> list[Entry]:
    return [(b"%d.%d" % (term, n), n, term) for n, term in enumerate(terms, 1)]


@st.composite
def meetings(draw: st.DrawFn) -> Meeting:
    """Logs share a prefix and never an (index, term) after it, as Raft's log matching demands: even terms
    are those of the leader's side, odd ones those of the follower's."""
    rising = st.lists(st.integers(0, 3), max_size=6).map(sorted)
    common = [0, *draw(rising)]
    base = common[-1] + 1
    leader = common + [2 * (base + step) for step in draw(rising)]
    follower = common + [2 * (base + step) + 1 for step in draw(rising)]
    commit = draw(st.integers(1, len(common)))
    compacted = draw(st.integers(0, commit - 1))
    prev = draw(st.integers(1, len(leader)))
    count = draw(st.integers(0, len(leader) - prev))
    whole = log_of(leader)
    return Meeting(whole, log_of(follower)[compacted:], commit, len(common), prev, whole[prev : prev + count])


def package(log: list[Entry], prev: int, prev_term: int, entries: list[Entry]) -> tuple[bool, list[Entry]]:
    """What the package does with an append: success, and the log after it."""
    first = log[0][1]
    if not first <= prev <= log[-1][1] or log[prev - first][2] != prev_term:
        return False, log
    return True, log[: prev - first + 1] + entries


@given(meetings())
def test_nothing_that_matches_is_cut_and_nothing_else_is_answered_for(meeting: Meeting) -> None:
    leader, follower, commit, common, prev, entries = meeting
    trimmed = trim(cast(Any, follower), commit, prev, leader[prev - 1][2], entries, len(leader))
    success, after = package(follower, trimmed.prev_index, trimmed.prev_term, trimmed.entries)
    first = follower[0][1]
    reached = prev + len(entries)
    assert success == (prev <= common or prev < first)
    # What both logs had stays.
    assert after[: max(0, common - first + 1)] == follower[: max(0, common - first + 1)]
    if not success:
        return
    matched = trimmed.matched_index
    if matched is None:
        matched = trimmed.prev_index + len(trimmed.entries)
    # What is answered for is there, and equal.
    assert after[-1][1] >= matched
    assert after[: matched - first + 1] == leader[first - 1 : matched]
    assert matched == max(reached, first)
    # The commit index that is passed on is of what matches.
    if trimmed.matched_index is not None:
        assert trimmed.commit_index <= matched
    # A log is cut only where it conflicts.
    if after[-1][1] < follower[-1][1]:
        assert reached > common


@given(meetings())
def test_a_refusal_asks_for_an_earlier_place_but_never_for_one_that_is_committed(meeting: Meeting) -> None:
    leader, follower, commit, common, prev, _ = meeting
    if prev <= common or prev < follower[0][1]:
        return
    hint = refusal_hint(cast(Any, follower), commit, prev)
    assert commit < hint <= prev
    assert hint <= follower[-1][1] + 1
    del leader


def test_a_whole_conflicting_term_is_skipped_at_once() -> None:
    follower = log_of([0, 1, 3, 3, 3, 3])
    assert refusal_hint(cast(Any, follower), 1, 6) == 3
    assert refusal_hint(cast(Any, follower), 4, 6) == 5
    assert refusal_hint(cast(Any, follower), 1, 50) == 7


def test_a_leader_that_contradicts_what_is_committed_is_not_obeyed() -> None:
    follower = log_of([0, 1, 1, 1])
    with pytest.raises(RaftBroken, match="another entry at 3"):
        trim(cast(Any, follower), 3, 3, 2, [], 3)
    with pytest.raises(RaftBroken, match="overwrite 3"):
        trim(cast(Any, follower), 3, 2, 1, [(b"", 3, 2)], 3)
    with pytest.raises(RaftBroken, match="another entry at 3"):
        trim(cast(Any, follower[2:]), 3, 1, 0, [(b"", 2, 2), (b"", 3, 2), (b"", 4, 2)], 3)


@pytest.mark.parametrize(
    ("prev_term", "term", "terms", "good"),
    [
        (1, 1, [], True),
        (1, 3, [1, 2, 3], True),
        (1, 3, [2, 1], False),
        (2, 3, [1], False),
        (1, 3, [4], False),
        (4, 3, [], False),
    ],
)
def test_terms_along_an_append(prev_term: int, term: int, terms: list[int], good: bool) -> None:
    assert is_well_formed(prev_term, term, [(entry_term, b"") for entry_term in terms]) == good
