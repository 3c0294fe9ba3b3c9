"""Real histories are accepted, and refused once they are changed: each systematic change by some property.

The histories are those of simulated seeds. A change that a history has no place for is tried on the next;
each has its place in at least one.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest

from tenure_chaos.checkers import rules
from tenure_chaos.checkers.attribution import says_done
from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.history import CallRecord, Effect, History
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed

SEEDS = (2, 6, 8)


class NoPlace(Exception):
    """The history has nothing of the kind that is to be changed."""


@lru_cache
def recorded(seed: int) -> History:
    return run_seed(seed, Options.for_seed(seed, {"safety_s": "30"})).history


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_recorded_is_accepted(seed: int) -> None:
    verdicts = rules.judge(recorded(seed))
    assert [verdict for verdict in verdicts if verdict.wrongs] == []
    assert [verdict for verdict in verdicts if verdict.undecided] == []


# -- the means of change


def find(history: History, fits: Callable[[Effect], bool], which: int = 0) -> int:
    numbers = [n for n, effect in enumerate(history.effects) if fits(effect)]
    if len(numbers) <= which:
        raise NoPlace
    return numbers[which]


def edit(history: History, n: int, **changes: Any) -> None:
    history.effects[n] = dataclasses.replace(history.effects[n], **changes)


def drop(history: History, n: int) -> None:
    """Out of the log, with its revisions, as if it had never been."""
    gone = history.effects.pop(n)
    for event in gone.events:
        for later in history.effects[n:]:
            for other in later.events:
                other["revision"] -= other["tenant"] == event["tenant"]


def has(effect: Effect, *kinds: str) -> bool:
    return [event["kind"] for event in effect.events] == list(kinds)


def call(history: History, name: str) -> CallRecord:
    """A call that was answered, had its effect then, and was sent once."""
    for record in history.calls:
        if record.name == name and record.outcome == "ok" and not record.doubtful and says_done(record):
            return record
    raise NoPlace


def granted_call(history: History) -> CallRecord:
    """An acquire that was answered with a grant of its own, and was sent once."""
    for record in history.calls:
        granted = record.name == "acquire" and record.outcome == "ok" and record.answer.get("lease")
        if granted and not record.doubtful and not record.answer.get("replayed"):
            return record
    raise NoPlace


def lives(history: History, ending: str) -> Iterator[Life]:
    return (life for life in Facts(history).lives if life.ending == ending and life.claimed <= life.ended)


# -- the changes


def swap_the_tokens_of_two_grants(history: History) -> None:
    first = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    second = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 3)
    one, other = history.effects[first].events[0], history.effects[second].events[0]
    one["token"], other["token"] = other["token"], one["token"]


def grant_one_token_twice(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 2)
    again = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 5)
    history.effects[again].events[0]["token"] = history.effects[n].events[0]["token"]


def drop_a_release(history: History) -> None:
    drop(history, find(history, lambda effect: effect.command == "Release" and has(effect, "released")))


def drop_an_acknowledged_renewal(history: History) -> None:
    renewal = call(history, "renew")
    told = Facts(history).attribution.told[renewal.number]
    drop(history, told)


def drop_an_acknowledged_commit(history: History) -> None:
    drop(history, Facts(history).attribution.told[call(history, "commit").number])


def drop_a_grant(history: History) -> None:
    drop(history, find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted")))


def expire_a_lease_a_second_early(history: History) -> None:
    for life in lives(history, "expired"):
        for n in range(life.ended - 1, life.began, -1):
            earlier = history.effects[n]
            if earlier.command == "Tick" and earlier.at_ms < life.ended_ms - 100:
                expired = history.effects[life.ended]
                edit(history, n, command=expired.command, fields=expired.fields, events=expired.events)
                edit(history, life.ended, command="Tick", fields={"wall_ms": 0}, events=())
                return
    raise NoPlace


def let_a_lease_vanish_without_an_end(history: History) -> None:
    for life in lives(history, "expired"):
        effect = history.effects[life.ended]
        left = tuple(event for event in effect.events if event["token"] != life.token)
        edit(history, life.ended, events=left)
        return
    raise NoPlace


def duplicate_a_grant(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    history.effects.insert(n + 1, copy.deepcopy(history.effects[n]))


def duplicate_a_commit(history: History) -> None:
    n = find(history, lambda effect: effect.result == "Committed" and has(effect, "committed"))
    history.effects.insert(n + 1, copy.deepcopy(history.effects[n]))


def grant_to_somebody_who_never_asked(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    edit(history, n, fields={**history.effects[n].fields, "request_id": "nobody-1"})


def accept_a_commit_that_was_refused_as_stale(history: History) -> None:
    n = find(history, lambda effect: effect.result_fields.get("code") == "stale_token")
    event = {**history.effects[n].events[0], "kind": "committed", "detail": ""}
    edit(history, n, result="Committed", result_fields={"revision": event["revision"]}, events=(event,))


def renew_what_was_lost(history: History) -> None:
    renewed = find(history, lambda effect: effect.result == "Renewed")
    grant = history.effects[renewed].result_fields["grant"]
    lost = find(
        history,
        lambda effect: (
            effect.command == "Renew" and effect.result == "Lost" and bool(effect.fields["lease_id"])
        ),
    )
    life = Facts(history).by_lease.get(("default", history.effects[lost].fields["lease_id"]))
    if life is None:
        raise NoPlace
    lease = {**grant["lease"], "key": life.key[1], "token": life.token, "lease_id": life.lease_id}
    edit(history, lost, result="Renewed", result_fields={"grant": {**grant, "lease": lease}})


def move_a_deadline_back(history: History) -> None:
    n = find(history, lambda effect: effect.result == "Renewed", 2)
    grant = history.effects[n].result_fields["grant"]
    session = {**grant["session"], "deadline_ms": history.effects[n].at_ms - 10_000}
    edit(history, n, result_fields={"grant": {**grant, "session": session}})


def tell_a_holder_of_a_token_of_before(history: History) -> None:
    for life in lives(history, "released"):
        for record in history.calls:
            held = record.name == "acquire" and record.code == "held" and record.answer.get("holder")
            if held and record.asked["key"] == life.key[1] and record.invoked_at > life.ended_at:
                record.answer["holder"] = {"token": life.token}
                return
    raise NoPlace


def call_a_grant_refused(history: History) -> None:
    record = granted_call(history)
    record.outcome, record.code, record.answer = "refused", "held", {}


def call_a_commit_refused(history: History) -> None:
    record = call(history, "commit")
    record.outcome, record.code, record.answer = "refused", "stale_token", {}


def call_a_renewal_not_executed(history: History) -> None:
    record = call(history, "renew")
    record.outcome, record.code, record.answer = "unavailable", "no_leader", {}


def let_a_read_be_of_the_beginning(history: History) -> None:
    for record in history.calls:
        if record.name == "get" and record.outcome == "ok" and record.asked.get("consistency") != "stale":
            record.outcome, record.code, record.answer = "refused", "not_held", {}
            return
    raise NoPlace


def let_a_record_be_of_before(history: History) -> None:
    for record in history.calls:
        if record.name == "record" and record.outcome == "ok" and record.asked.get("consistency") != "stale":
            record.answer["value"], record.answer["revision"] = "of before", 1
            return
    raise NoPlace


def stamp_an_entry_ahead_of_time(history: History) -> None:
    n = len(history.effects) // 2
    edit(history, n, at_ms=history.effects[n].at_ms + 60_000)


def stamp_an_entry_before_the_last(history: History) -> None:
    n = find(history, lambda effect: effect.at_ms > 5_000)
    edit(history, n, at_ms=history.effects[n].at_ms - 4_000)


def serve_another_than_the_first_in_the_queue(history: History) -> None:
    n = find(history, lambda effect: has(effect, "released", "granted"))
    history.effects[n].events[1]["owner"] = "somebody else"


def leave_a_revision_out(history: History) -> None:
    n = find(history, lambda effect: bool(effect.events), 10)
    for later in history.effects[n:]:
        for event in later.events:
            event["revision"] += 1


def let_two_nodes_differ(history: History) -> None:
    node, index, digest = history.digests[0] if history.digests else ("n1", 1, "")
    history.digests += [(node, index, digest), ("another", index, digest + "x")]


def let_a_node_forget_a_record(history: History) -> None:
    if not history.final or not history.final[0].records:
        raise NoPlace
    history.final[0] = dataclasses.replace(history.final[0], records=history.final[0].records[1:])


def let_a_handle_believe_for_ever(history: History) -> None:
    for belief in history.beliefs:
        facts = Facts(history)
        own = facts.life((belief.tenant, belief.key), belief.token)
        later = facts.by_key[belief.tenant, belief.key][-1]
        if own is not None and own.ending in ("released", "expired") and later is not own:
            belief.ended_at = float("inf")
            return
    raise NoPlace


def let_a_register_accept_an_old_token(history: History) -> None:
    accepted = [write for write in history.writes if write.guarded and write.accepted and write.token > 1]
    if not accepted:
        raise NoPlace
    last = accepted[-1]
    history.writes.append(dataclasses.replace(last, token=last.token - 1, found=last.value, read=last.value))


def elect_two_leaders_in_a_term(history: History) -> None:
    if not history.elected:
        raise NoPlace
    history.elected.append(dataclasses.replace(history.elected[-1], node="another"))


CHANGES: tuple[Callable[[History], None], ...] = tuple(
    change
    for name, change in list(globals().items())
    if callable(change)
    and getattr(change, "__module__", "") == __name__
    and not name.startswith("test_")
    and name not in ("NoPlace", "find", "edit", "drop", "has", "call", "granted_call", "lives", "recorded")
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_history_is_refused(change: Callable[[History], None]) -> None:
    tried = 0
    for seed in SEEDS:
        history = copy.deepcopy(recorded(seed))
        try:
            change(history)
        except NoPlace:
            continue
        tried += 1
        assert list(rules.check(history)) != [], f"seed {seed}"
    assert tried > 0
