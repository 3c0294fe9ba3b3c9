"""What a follower lets an append do to its log: pure decisions over (log, commit index, message).

The stock engine truncates its log after prev_index, whatever follows there, matching or not (S1), and obeys
a message that is late or repeated just as well (S2). Both lose entries that this follower has acknowledged.
So before it sees a message, the message is rewritten: entries that are here already are taken off its head,
and one that brings nothing new becomes one about the very end of the log, which truncates nothing. The
answer is then for what is known to match, not for the end of the log.
"""

from typing import NamedTuple

from tenure_cluster.raft.engine import RaftBroken
from tenure_cluster.raft.journal import Entry, Journal


class Trimmed(NamedTuple):
    """An append as the engine shall see it. `matched_index`: what to answer for, if that is not the
    engine's own idea."""

    prev_index: int
    prev_term: int
    entries: list[Entry]
    commit_index: int
    matched_index: int | None = None


def trim(
    log: Journal, commit: int, prev: int, prev_term: int, entries: list[Entry], leader_commit: int
) -> Trimmed:
    """Raises RaftBroken if the leader contradicts what is committed here."""
    first, last = log[0][1], log[-1][1]
    if prev < first:
        # What is compacted here is committed, so the leader has it too.
        covered = min(first - prev, len(entries))
        if covered == first - prev and entries[covered - 1][2] != log[0][2]:
            raise RaftBroken(f"the leader has another entry at {first}, which is committed here")
        entries, prev, prev_term = entries[covered:], first, log[0][2]
    if prev > last:
        return Trimmed(prev, prev_term, entries, leader_commit)
    if log[prev - first][2] != prev_term:
        if prev <= commit:
            raise RaftBroken(f"the leader has another entry at {prev}, which is committed here")
        return Trimmed(prev, prev_term, entries, leader_commit)
    same = 0
    while same < len(entries) and prev + same < last and log[prev + same + 1 - first][2] == entries[same][2]:
        same += 1
    if same:
        _, prev, prev_term = entries[same - 1]
        entries = entries[same:]
    if entries:
        if prev < commit:
            raise RaftBroken(f"the leader wants to overwrite {prev + 1}, which is committed here")
        return Trimmed(prev, prev_term, entries, leader_commit)
    # Nothing new: matching is known up to prev, and what follows here stays.
    return Trimmed(last, log[-1][2], [], min(leader_commit, prev), prev)


def refusal_hint(log: Journal, commit: int, prev: int) -> int:
    """Where the leader should ask next (L13): past the end of a log that is too short, else at the
    beginning of the whole term that conflicts; never below what is committed here."""
    first, last = log[0][1], log[-1][1]
    if prev > last:
        return last + 1
    lowest = max(first, commit) + 1
    index = max(prev, lowest)
    while index > lowest and log[index - 1 - first][2] == log[index - first][2]:
        index -= 1
    return index


def is_well_formed(prev_term: int, term: int, entries: list[tuple[int, bytes]]) -> bool:
    """Whether terms never fall along the entries, as in every log, nor pass that of the leader who sends
    them."""
    for entry_term, _ in entries:
        if not prev_term <= entry_term <= term:
            return False
        prev_term = entry_term
    return prev_term <= term
