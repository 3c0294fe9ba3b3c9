"""Consensus, as far as a history shows it. The simulation looks at more, at every event."""

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import Findings, Wrong
from tenure_chaos.history import AppliedEntry, Elected, RaftState


def one_leader_a_term(facts: Facts) -> Findings:
    """18: election safety. No two nodes take office in one term."""
    leaders: dict[int, str] = {}
    for elected in facts.history.elected:
        first = leaders.setdefault(elected.term, elected.node)
        if first != elected.node:
            yield Wrong(f"{first} and {elected.node} were both elected in term {elected.term}")
    return len(facts.history.elected)


def leaders_are_complete(facts: Facts) -> Findings:
    """18: leader completeness. Who takes office has every entry that had been committed in an earlier term
    than its own and applied by then. An entry of an earlier term may have been committed in a later one: who
    was elected in between, and hears of it late, may lack it.
    """
    committed_in: dict[int, int] = {}
    for entry in facts.history.applied:
        committed_in.setdefault(entry.index, entry.in_term or entry.term)
    looked = 0
    for elected in facts.history.elected:
        if elected.last_index < 0:
            continue
        looked += 1
        n = facts.last_applied(elected.at)
        while n >= 0 and committed_in.get(facts.effects[n].index, 0) >= elected.term:
            n -= 1
        applied = facts.effects[n].index if n >= 0 else 0
        if elected.last_index < applied:
            yield Wrong(_lacks(elected, applied))
    return looked


def _lacks(elected: Elected, applied: int) -> str:
    return (
        f"{elected.node} was elected in term {elected.term} with entries up to {elected.last_index}, but "
        f"entry {applied} had been applied"
    )


def terms_and_votes_never_go_back(facts: Facts) -> Findings:
    """18: a node's term never falls, across its restarts, and it votes once in a term."""
    terms: dict[str, int] = {}
    votes: dict[tuple[str, int], str] = {}
    for state in facts.history.raft:
        before = terms.get(state.node, 0)
        if state.term < before:
            yield Wrong(f"{state.node} went back from term {before} to {state.term} at {state.at:.3f} s")
        terms[state.node] = max(before, state.term)
        if state.voted_for:
            first = votes.setdefault((state.node, state.term), state.voted_for)
            if first != state.voted_for:
                yield Wrong(
                    f"{state.node} voted for {first} and for {state.voted_for} in term {state.term}",
                )
    return len(facts.history.raft)


def indexes_never_go_back(facts: Facts) -> Findings:
    """18: while a node runs its commit index and its applied index never fall, and nothing is applied that is
    not committed.
    """
    last: dict[tuple[str, int], RaftState] = {}
    for state in facts.history.raft:
        before = last.setdefault((state.node, state.incarnation), state)
        if state.commit_index < before.commit_index or state.applied_index < before.applied_index:
            yield Wrong(f"{state.node} went back from {_indexes(before)} to {_indexes(state)}")
        elif state.applied_index > state.commit_index:
            yield Wrong(f"{state.node} has {_indexes(state)} at {state.at:.3f} s")
        last[state.node, state.incarnation] = state
    return len(facts.history.raft)


def _indexes(state: RaftState) -> str:
    return f"committed {state.commit_index}, applied {state.applied_index}"


def committed_entries_are_final(facts: Facts) -> Findings:
    """18: log matching. All nodes apply the same entry at an index, and terms never fall along the log."""
    first: dict[int, AppliedEntry] = {}
    for entry in facts.history.applied:
        other = first.setdefault(entry.index, entry)
        if (other.term, other.content) != (entry.term, entry.content):
            yield Wrong(f"{other.node} and {entry.node} applied different entries at {entry.index}")
    last = 0
    for index in sorted(first):
        if first[index].term < last:
            yield Wrong(f"entry {index} is of term {first[index].term}, after one of term {last}")
        last = max(last, first[index].term)
    return len(facts.history.applied)
