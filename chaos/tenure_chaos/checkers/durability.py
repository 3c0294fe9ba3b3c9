"""What was acknowledged stays, everywhere; and all nodes have the same."""

from collections.abc import Iterator
from typing import Any

from tenure_chaos.checkers.attribution import DONE, says_done
from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import Findings, Wrong, called_key, place_of
from tenure_chaos.checkers.waiting import queues_at
from tenure_chaos.history import NodeState, named


def acknowledged_grants_are_in_the_log(facts: Facts) -> Findings:
    """13: every grant that a client was told of was applied, with that token, before it was told."""
    if not facts.effects:
        return 0
    for call, lease in facts.granted_calls:
        key = place_of(lease, call.tenant)
        life = facts.life(key, lease["token"])
        if life is None:
            if not facts.granted_elsewhere(key, lease["token"]):
                yield Wrong(
                    f"call {call.number}: no effect granted {key[1]} with token {lease['token']}", key
                )
        elif life.began_at > call.returned_at:
            yield Wrong(f"call {call.number} was told of {life.name} before it was applied", key)
    return len(facts.granted_calls)


def acknowledged_changes_are_in_the_log(facts: Facts) -> Findings:
    """13: every renewal, release, commit, break and other change that a client was told of was applied
    between its call and its answer.
    """
    looked = 0
    if not facts.effects:
        return 0
    told = facts.attribution.told
    for name in DONE:
        for call in facts.answered(name):
            if says_done(call):
                looked += 1
                if call.number not in told:
                    yield Wrong(
                        f"call {call.number} was told of a {name} that no effect made", called_key(call)
                    )
    return looked


def healed_nodes_have_everything(facts: Facts) -> Findings:
    """13: every healed node has what the log comes to at its index, and nothing acknowledged is beyond it."""
    if not facts.effects or not facts.history.complete:
        return 0
    acknowledged = _last_acknowledged(facts)
    looked = 0
    for node in facts.history.final:
        looked += 1
        if node.applied_index < acknowledged:
            yield Wrong(
                f"{node.node} has applied {node.applied_index}, and acknowledged was entry {acknowledged}"
            )
            continue
        n = facts.last_of_index(node.applied_index)
        for what, had, due in _compared(facts, node, n):
            if had != due:
                more, less = _only(had, due), _only(due, had)
                yield Wrong(f"{node.node} at {node.applied_index} has {what} {more}, and not {less}")
    return looked


def _last_acknowledged(facts: Facts) -> int:
    numbers = [
        n for call in facts.history.calls if call.outcome == "ok" for n in facts.attribution.made_by(call)
    ]
    return max((facts.effects[n].index for n in numbers), default=0)


def _compared(facts: Facts, node: NodeState, n: int) -> Iterator[tuple[str, list[Any], list[Any]]]:
    lives = [(named(*life.raw), life.token) for life in facts.lives if life.holds(n)]
    yield "leases", sorted(node.held), sorted(lives)
    records = []
    for key in facts.versions:
        version = facts.version_at(key, n)
        if version is not None:
            records.append((named(*key), version.token, version.value))
    yield "records", sorted(node.records), sorted(records)
    waiters = queues_at(facts, n)
    if waiters is not None:
        waiting = [(named(*key), waiter.request_id) for key, queue in waiters.items() for waiter in queue]
        yield "waiters", sorted(node.waiting), sorted(waiting)
    low = [
        (name, floor)
        for name, floor in node.floors
        for life in facts.by_name.get(name, ())
        if life.began <= n and life.token > floor
    ]
    yield "floors that are too low:", sorted(low), []


def _only(some: list[Any], others: list[Any]) -> list[Any]:
    return [item for item in some if item not in others]


def digests_are_equal(facts: Facts) -> Findings:
    """16: at one applied index all nodes have the same digest."""
    first: dict[int, tuple[str, str]] = {}
    looked = 0
    told = [(node.node, node.applied_index, node.digest) for node in facts.history.final]
    for node, index, digest in (*facts.history.digests, *told):
        looked += 1
        other, as_other = first.setdefault(index, (node, digest))
        if as_other != digest:
            yield Wrong(f"at index {index} {other} and {node} differ")
    return looked
