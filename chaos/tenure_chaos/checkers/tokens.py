"""Fencing tokens: each is of one grant, and they rise."""

from typing import Any

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.reading import Findings, Key, Wrong, called_key, place_of
from tenure_chaos.history import CallRecord


def tokens_are_unique(facts: Facts) -> Findings:
    """2: no two grants carry the same token, save for readers of one phase. Along the log no other token of a
    tenant is granted twice.
    """
    granted: dict[tuple[str, int], Life] = {}
    for life in facts.lives:
        if life.joined:
            continue
        first = granted.setdefault((life.key[0], life.token), life)
        if first is not life:
            yield Wrong(
                f"effects {first.began} and {life.began} both grant token {life.token}, of "
                f"{first.key[1]} and {life.key[1]}",
                life.key,
            )
    return len(facts.lives)


def a_replay_is_the_same_grant(facts: Facts) -> Findings:
    """2: every answer to a request tells the same grant, and no request of another holder is told it. Only
    taking it up after it was parked gives a lease another token.
    """
    told: dict[tuple[str, ...], tuple[CallRecord, tuple[object, ...]]] = {}
    holders: dict[tuple[Key, int], tuple[CallRecord, tuple[str, str]]] = {}
    for call, lease in facts.granted_calls:
        place = (lease["key"], _first_token(facts, call, lease), lease.get("lease_id"))
        session, request_id = call.asked.get("session_id") or "", call.asked.get("request_id") or ""
        if request_id:
            request = (call.tenant, session, request_id, lease["key"])
            first, as_told = told.setdefault(request, (call, place))
            if as_told != place:
                yield Wrong(
                    f"calls {first.number} and {call.number} of {request_id} were told {as_told} and {place}",
                    called_key(call),
                )
        holder = (session, "" if session else request_id or str(call.number))
        first, by = holders.setdefault((place_of(lease, call.tenant), lease["token"]), (call, holder))
        if by != holder:
            yield Wrong(
                f"calls {first.number} and {call.number} of two holders were told token {lease['token']}",
                called_key(call),
            )
    return len(facts.granted_calls)


def _first_token(facts: Facts, call: CallRecord, lease: dict[str, Any]) -> int:
    lives = facts.lives_of_lease(call.tenant, lease.get("lease_id") or "")
    known = any(life.token == lease["token"] for life in lives)
    return lives[0].token if known else int(lease["token"])


def tokens_rise_along_the_log(facts: Facts) -> Findings:
    """3: along the log the tokens of a tenant rise, whatever happened to keys, leaders and snapshots. A
    successor's is above that of who handed over, and who takes up a parked lease gets a new one.
    """
    last: dict[str, int] = {}
    for life in facts.lives:
        if life.joined:
            continue
        before = last.get(life.key[0], 0)
        if life.token < before:
            yield Wrong(f"effect {life.began} grants {life.name} after token {before}", life.key)
        last[life.key[0]] = max(before, life.token)
    return len(facts.lives)


def tokens_follow_real_time(facts: Facts) -> Findings:
    """3: a grant that was answered before another of the key was asked for has no greater token."""
    told: dict[Key, list[tuple[CallRecord, int]]] = {}
    for call, lease in facts.granted_calls:
        told.setdefault(place_of(lease, call.tenant), []).append((call, lease["token"]))
    for key, calls in told.items():
        returned = sorted(calls, key=lambda item: item[0].returned_at)
        done, greatest = 0, (0, -1)
        for call, token in sorted(calls, key=lambda item: item[0].invoked_at):
            while returned[done][0].returned_at < call.invoked_at:
                greatest = max(greatest, (returned[done][1], returned[done][0].number))
                done += 1
            if token < greatest[0]:
                yield Wrong(
                    f"call {call.number} got token {token} after call {greatest[1]} had got {greatest[0]}",
                    key,
                )
    return len(facts.granted_calls)
