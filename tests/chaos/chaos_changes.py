"""Systematic changes to a history, each of which makes it one that a property must refuse."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tenure_chaos.checkers.attribution import request_of_call, says_done
from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.history import CallRecord, Effect, History

Change = Callable[[History], None]

CHANGES: list[Change] = []


class NoPlace(Exception):
    """The history has nothing of the kind that is to be changed."""


def change(one: Change) -> Change:
    CHANGES.append(one)
    return one


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
    """A call that was told of its effect and was sent once, while no other of its request was under way."""
    for record in history.calls:
        if record.name != name or record.doubtful or not says_done(record):
            continue
        others = [other for other in history.calls if request_of_call(other) == request_of_call(record)]
        others.remove(record)
        if all(_apart(record, other) for other in others):
            return record
    raise NoPlace


def _apart(record: CallRecord, other: CallRecord) -> bool:
    in_doubt = other.doubtful or other.outcome in ("unknown", "pending")
    over_before = other.returned_at < record.invoked_at and not in_doubt
    return over_before or other.invoked_at > record.returned_at


def granted_call(history: History) -> CallRecord:
    """An acquire that was answered with a grant of its own, and was sent once."""
    for record in history.calls:
        granted = record.name == "acquire" and record.outcome == "ok" and record.answer.get("lease")
        if granted and not record.doubtful and not record.answer.get("replayed"):
            return record
    raise NoPlace


def lives(history: History, ending: str) -> Iterator[Life]:
    return (life for life in Facts(history).lives if life.ending == ending and life.claimed <= life.ended)


@change
def swap_the_tokens_of_two_grants(history: History) -> None:
    first = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    second = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 3)
    one, other = history.effects[first].events[0], history.effects[second].events[0]
    one["token"], other["token"] = other["token"], one["token"]


@change
def grant_one_token_twice(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 2)
    again = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"), 5)
    history.effects[again].events[0]["token"] = history.effects[n].events[0]["token"]


@change
def drop_a_release(history: History) -> None:
    drop(history, find(history, lambda effect: effect.command == "Release" and has(effect, "released")))


@change
def drop_an_acknowledged_renewal(history: History) -> None:
    renewal = call(history, "renew")
    told = Facts(history).attribution.told[renewal.number]
    drop(history, told)


@change
def drop_an_acknowledged_commit(history: History) -> None:
    drop(history, Facts(history).attribution.told[call(history, "commit").number])


@change
def drop_a_grant(history: History) -> None:
    drop(history, find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted")))


@change
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


@change
def let_a_lease_vanish_without_an_end(history: History) -> None:
    for life in lives(history, "expired"):
        effect = history.effects[life.ended]
        left = tuple(event for event in effect.events if event["token"] != life.token)
        edit(history, life.ended, events=left)
        return
    raise NoPlace


@change
def duplicate_a_grant(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    history.effects.insert(n + 1, copy.deepcopy(history.effects[n]))


@change
def duplicate_a_commit(history: History) -> None:
    n = find(history, lambda effect: effect.result == "Committed" and has(effect, "committed"))
    history.effects.insert(n + 1, copy.deepcopy(history.effects[n]))


@change
def grant_to_somebody_who_never_asked(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted"))
    edit(history, n, fields={**history.effects[n].fields, "request_id": "nobody-1"})


@change
def accept_a_commit_that_was_refused_as_stale(history: History) -> None:
    n = find(history, lambda effect: effect.result_fields.get("code") == "stale_token")
    event = {**history.effects[n].events[0], "kind": "committed", "detail": ""}
    edit(history, n, result="Committed", result_fields={"revision": event["revision"]}, events=(event,))


@change
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


@change
def move_a_deadline_back(history: History) -> None:
    n = find(history, lambda effect: effect.result == "Renewed", 2)
    grant = history.effects[n].result_fields["grant"]
    session = {**grant["session"], "deadline_ms": history.effects[n].at_ms - 10_000}
    edit(history, n, result_fields={"grant": {**grant, "session": session}})


@change
def tell_a_holder_of_a_token_of_before(history: History) -> None:
    for life in lives(history, "released"):
        for record in history.calls:
            held = record.name == "acquire" and record.code == "held" and record.answer.get("holder")
            if held and record.asked.get("key") == life.key[1] and record.invoked_at > life.ended_at:
                record.answer["holder"] = {"token": life.token}
                return
    raise NoPlace


@change
def call_a_grant_refused(history: History) -> None:
    record = granted_call(history)
    record.outcome, record.code, record.answer = "refused", "held", {}


@change
def call_a_commit_refused(history: History) -> None:
    record = call(history, "commit")
    record.outcome, record.code, record.answer = "refused", "stale_token", {}


@change
def call_a_renewal_not_executed(history: History) -> None:
    record = call(history, "renew")
    record.outcome, record.code, record.answer = "unavailable", "no_leader", {}


@change
def let_a_read_be_of_the_beginning(history: History) -> None:
    for record in history.calls:
        if record.name == "get" and record.outcome == "ok" and record.asked.get("consistency") != "stale":
            record.outcome, record.code, record.answer = "refused", "not_held", {}
            return
    raise NoPlace


@change
def let_a_record_be_of_before(history: History) -> None:
    for record in history.calls:
        if record.name == "record" and record.outcome == "ok" and record.asked.get("consistency") != "stale":
            record.answer["value"], record.answer["revision"] = "of before", 1
            return
    raise NoPlace


@change
def stamp_an_entry_ahead_of_time(history: History) -> None:
    n = len(history.effects) // 2
    edit(history, n, at_ms=history.effects[n].at_ms + 60_000)


@change
def stamp_an_entry_before_the_last(history: History) -> None:
    n = find(history, lambda effect: effect.at_ms > 5_000)
    edit(history, n, at_ms=history.effects[n].at_ms - 4_000)


@change
def serve_another_than_the_first_in_the_queue(history: History) -> None:
    n = find(history, lambda effect: has(effect, "released", "granted"))
    history.effects[n].events[1]["owner"] = "somebody else"


@change
def leave_a_revision_out(history: History) -> None:
    n = find(history, lambda effect: bool(effect.events), 10)
    for later in history.effects[n:]:
        for event in later.events:
            event["revision"] += 1


@change
def let_two_nodes_differ(history: History) -> None:
    node, index, digest = history.digests[0] if history.digests else ("n1", 1, "")
    history.digests += [(node, index, digest), ("another", index, digest + "x")]


@change
def let_a_node_forget_a_record(history: History) -> None:
    if not history.final or not history.final[0].records:
        raise NoPlace
    history.final[0] = dataclasses.replace(history.final[0], records=history.final[0].records[1:])


@change
def let_a_handle_believe_for_ever(history: History) -> None:
    for belief in history.beliefs:
        facts = Facts(history)
        place = (belief.tenant, belief.place or belief.key)
        own = facts.life(place, belief.token)
        later = facts.by_key[place][-1]
        if own is not None and own.ending in ("released", "expired") and later is not own:
            belief.ended_at = float("inf")
            return
    raise NoPlace


@change
def let_a_register_accept_an_old_token(history: History) -> None:
    accepted = [write for write in history.writes if write.guarded and write.accepted and write.token > 1]
    if not accepted:
        raise NoPlace
    last = accepted[-1]
    history.writes.append(dataclasses.replace(last, token=last.token - 1, found=last.value, read=last.value))


@change
def elect_two_leaders_in_a_term(history: History) -> None:
    if not history.elected:
        raise NoPlace
    history.elected.append(dataclasses.replace(history.elected[-1], node="another"))


@change
def drop_an_acknowledged_handover(history: History) -> None:
    drop(history, Facts(history).attribution.told[call(history, "handover").number])


@change
def drop_an_acknowledged_parking(history: History) -> None:
    drop(history, Facts(history).attribution.told[call(history, "park").number])


@change
def drop_an_acknowledged_taking_up(history: History) -> None:
    drop(history, Facts(history).attribution.told[call(history, "unpark").number])


@change
def park_for_another_limit(history: History) -> None:
    n = find(history, lambda effect: effect.result == "Parked")
    edit(history, n, fields={**history.effects[n].fields, "limit_ms": 123})


@change
def hand_over_to_another_session(history: History) -> None:
    n = find(history, lambda effect: effect.result == "HandedOver")
    edit(history, n, fields={**history.effects[n].fields, "to_session_id": "another"})


@change
def take_a_key_out_of_a_set(history: History) -> None:
    n = find(history, lambda effect: effect.command == "Acquire" and has(effect, "granted", "granted"))
    history.effects[n].events[1]["key"] = "another"


@change
def give_a_slot_twice(history: History) -> None:
    n = find(history, lambda effect: any(event.get("slot") for event in effect.events if is_grant(event)))
    for event in history.effects[n].events:
        event["slot"] = 0


def is_grant(event: dict[str, Any]) -> bool:
    return bool(event["kind"] == "granted")


@change
def let_a_reader_come_to_a_writer(history: History) -> None:
    for life in Facts(history).lives:
        if life.mode == "shared" and life.joined:
            for event in history.effects[life.began].events:
                if is_grant(event) and event["owner"] == life.owner:
                    event["mode"] = "exclusive"
            return
    raise NoPlace


@change
def name_another_in_a_chain(history: History) -> None:
    for record in history.calls:
        chain = record.answer.get("chain") or []
        if chain and record.asked.get("consistency") != "stale":
            chain[-1]["owner"] = "somebody else"
            return
    raise NoPlace


@change
def let_progress_be_told_never(history: History) -> None:
    for life in Facts(history).lives:
        if len(life.signs) > 2 and life.ended_ms > life.signs[0][1]:
            for n, _ in life.signs[1:]:
                left = tuple(event for event in history.effects[n].events if event["kind"] != "progress")
                edit(history, n, events=left)
            return
    raise NoPlace


@change
def drop_an_acknowledged_resize(history: History) -> None:
    told = Facts(history).attribution.told
    for record in history.calls:
        changed = record.name == "resize" and record.answer.get("before") != record.answer.get("slots")
        if changed and record.number in told and not record.doubtful:
            drop(history, told[record.number])
            return
    raise NoPlace


@change
def resize_a_pool_to_another_number(history: History) -> None:
    n = find(history, lambda effect: any(event["kind"] == "resized" for event in effect.events))
    for event in history.effects[n].events:
        if event["kind"] == "resized":
            event["detail"] = str(int(event["detail"]) + 1)


@change
def name_another_number_of_slots_in_a_conflict(history: History) -> None:
    for record in history.calls:
        if record.name == "acquire" and "present_slots" in record.answer:
            record.answer["present_slots"] += 10
            return
    raise NoPlace
