"""Checks over a history of real calls: each finds the answers that no honest cluster could have given.

Tokens are minted in the order of the log, so they put the grants of a run into their true order, and
linearizability needs no search: every rule below is a comparison of time windows and tokens. A check reports
only what is impossible under every order of events that the windows allow, with clocks within RHO; it never
reports what merely looks odd.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

from history import Call, History
from history_facts import RHO, SLACK_S, Facts, Grant, Request, shown_waiters

MEMORY_S = 55.0
"""For this long after its end a lease's fate must be known to the cluster (it promises 60 s)."""

SILENCE_S = 45.0
"""A waiter that was silent for this long may have lost its place (the cluster promises 50 s)."""


def no_impossible_answers(facts: Facts) -> Iterator[str]:
    """Only the statuses of the table of errors, and none that accuses the workload of a bad request."""
    for call in facts.calls:
        if call.outcome == "broken":
            yield f"{brief(call)} was answered {call.status} {call.answer}"
    yield from facts.faults


def one_token_a_request(facts: Facts) -> Iterator[str]:
    """A request_id has at most one effect, whatever the retries and changes of leader."""
    for request_id, grants in facts.by_request.items():
        if len(grants) > 1:
            yield f"request {request_id} was granted tokens {[grant.token for grant in grants]}"
        request = facts.requests.get(request_id)
        if request is None:
            yield f"{name(grants[0])} belongs to a request that nobody made"
        elif not request.may_have_executed:
            yield f"{name(grants[0])} was granted, but every attempt was answered: not executed"
    for call in facts.calls:
        for owner in shown_waiters(call):
            request = facts.requests.get(owner)
            if request is None or not request.may_have_executed:
                yield f"{brief(call)} shows the waiter {owner}, whom nobody enqueued"


def tokens_rise(facts: Facts) -> Iterator[str]:
    """A grant minted after another was seen carries a higher token, whatever their keys."""
    seen = sorted(facts.grants.values(), key=lambda grant: grant.seen_by)
    highest, at = 0, 0
    for grant in sorted(facts.grants.values(), key=facts.born_after):
        born_after = facts.born_after(grant)
        while at < len(seen) and seen[at].seen_by < born_after:
            highest = max(highest, seen[at].token)
            at += 1
        if grant.token <= highest:
            yield f"token {grant.token} ({grant.request_id}) was minted after token {highest} had been seen"


def one_holder_at_a_time(facts: Facts) -> Iterator[str]:
    """A grant is followed on its key only after something could have ended it, and never lives on
    afterwards."""
    for grants in facts.by_key.values():
        for before, after in pairwise(grants):
            if not facts.may_be_over(before, after.seen_by):
                yield (
                    f"{name(after)} was granted by {after.seen_by:.3f} while {name(before)} lived until "
                    f"{facts.lives_until(before):.3f} and nothing had ended it"
                )
        next_seen = math.inf
        for grant in reversed(grants):
            for invoked_s, _, what in grant.proofs + grant.fenced:
                if invoked_s > next_seen:
                    yield f"{name(grant)} was {what} at {invoked_s:.3f}, its successor by {next_seen:.3f}"
            for seen in grant.observations:
                if seen.live and seen.call.invoked_s > next_seen:
                    yield f"{name(grant)} is in {brief(seen.call)}, its successor by {next_seen:.3f}"
            next_seen = min(next_seen, grant.seen_by)


def the_ended_stay_ended(facts: Facts) -> Iterator[str]:
    """After an answer that says a lease is over, nothing shows it as live, renews it or commits under it."""
    for grant in facts.grants.values():
        if grant.over_by == math.inf:
            continue
        for seen in grant.observations:
            if seen.live and seen.call.invoked_s > grant.over_by:
                yield f"{name(grant)} is in {brief(seen.call)}, over by {grant.over_by:.3f}"
        for invoked_s, _, what in grant.proofs:
            if invoked_s > grant.over_by:
                yield f"{name(grant)} was {what} at {invoked_s:.3f}, over by {grant.over_by:.3f}"


def losses_are_true(facts: Facts) -> Iterator[str]:
    """`lost` names a reason that can have come about before the answer."""
    for call in facts.calls:
        if call.code == "lost":
            grants = _grants_meant(facts, call)
            if grants:
                yield from _loss(facts, call, grants[0])
            elif call.op == "acquire":
                yield from _loss_of_unseen(facts, call)
        elif call.code in ("session_expired", "no_session") and (session_id := call.body.get("session_id")):
            session = facts.sessions.get(session_id)
            if (
                session is not None
                and session.lives_until > call.returned_s
                and not _closed(facts, session_id, call)
            ):
                yield f"{brief(call)} says {call.code}; the session lives until {session.lives_until:.3f}"


def _grants_meant(facts: Facts, call: Call) -> list[Grant]:
    if lease_id := call.body.get("lease_id"):
        return [facts.by_lease[lease_id]] if lease_id in facts.by_lease else []
    return facts.by_request.get(call.body.get("request_id", ""), [])


def _closed(facts: Facts, session_id: str, by: Call) -> bool:
    return any(closing.invoked_s < by.returned_s for closing in facts.closings.get(session_id, ()))


def _loss(facts: Facts, call: Call, grant: Grant) -> Iterator[str]:
    reason = call.answer.get("reason")
    by = [ender for ender in grant.enders if ender.invoked_s < call.returned_s]
    operation = {"released": "release", "abandoned": "abandon", "session_closed": "close_session"}.get(
        str(reason)
    )
    if reason == "expired":
        if facts.lives_until(grant) > call.returned_s:
            yield (
                f"{brief(call)} says that {name(grant)} expired, but lives to {facts.lives_until(grant):.3f}"
            )
    elif reason == "unknown":
        ended_after = min([facts.lives_until(grant), *(ender.invoked_s for ender in grant.enders)])
        if ended_after + MEMORY_S > call.returned_s:
            yield f"{brief(call)} says that {name(grant)} is unknown; it cannot have been forgotten yet"
    elif operation is None or not any(ender.op == operation for ender in by):
        yield f"{brief(call)} says that {name(grant)} was {reason}, which nobody did"


def _loss_of_unseen(facts: Facts, call: Call) -> Iterator[str]:
    """A grant that no answer ever showed can have been abandoned, or have run out unclaimed or unrenewed."""
    request = facts.requests[call.body["request_id"]]
    reason = call.answer.get("reason")
    if reason == "abandoned" and not any(asked.invoked_s < call.returned_s for asked in request.abandons):
        yield f"{brief(call)} says that the request was abandoned, which nobody did"
    if reason not in ("abandoned", "expired", "session_closed"):
        yield f"{brief(call)} says {reason} of a grant that nobody has been told of"
    if reason == "expired":
        earliest = request.born_after + min(5.0, call.body.get("ttl_ms", 5_000) / 1000) * (1 - RHO) - SLACK_S
        session = facts.sessions.get(call.body.get("session_id", ""))
        if session is not None:
            earliest = min(earliest, session.lives_until)
        if call.returned_s < earliest:
            yield f"{brief(call)} says that a grant of it has expired, which takes until {earliest:.3f}"


def renewals_last(facts: Facts) -> Iterator[str]:
    """What an answer says remains is never less than an earlier answer promised."""
    for session in facts.sessions.values():
        by_return = sorted(session.liveness, key=lambda seen: seen.call.returned_s)
        promised, at = -math.inf, 0
        for seen in sorted(session.liveness, key=lambda seen: seen.call.invoked_s):
            while at < len(by_return) and by_return[at].call.returned_s < seen.call.invoked_s:
                earlier = by_return[at]
                promised = max(promised, earlier.call.invoked_s + earlier.expires_in_s * (1 - RHO))
                at += 1
            if seen.call.returned_s + seen.expires_in_s * (1 + RHO) + SLACK_S < promised:
                yield f"{brief(seen.call)} leaves less than was promised to session {session.session_id}"


def refusals_are_true(facts: Facts) -> Iterator[str]:
    """`held` names a holder that can have held then; `not_held` comes only when nobody certainly held all the
    while."""
    for call in facts.calls:
        if call.code == "held":
            holder = call.answer.get("holder")
            if holder and not _can_have_held(facts, facts.grants[holder["token"]], call):
                yield f"{brief(call)} names {holder}, which cannot have held the key then"
            if not holder:
                yield from _held_throughout(facts, call, "a refusal without a holder")
        elif call.code == "not_held":
            yield from _held_throughout(facts, call, "not_held")


def _can_have_held(facts: Facts, grant: Grant, call: Call) -> bool:
    return grant.key == call.body["key"] and facts.born_after(grant) < call.returned_s


def _held_throughout(facts: Facts, call: Call, what: str) -> Iterator[str]:
    for grant in facts.by_key.get(call.body["key"], ()):
        if grant.seen_by < call.invoked_s and not facts.may_be_over(grant, call.returned_s):
            yield f"{brief(call)} was answered {what} although {name(grant)} lived all the while"


def queues_keep_their_order(facts: Facts) -> Iterator[str]:
    """Nobody who asked after a waiter had been told its place is granted before it, and no place gets
    worse."""
    by_key: dict[str, list[Request]] = {}
    for request in facts.requests.values():
        by_key.setdefault(request.key, []).append(request)
    for key, requests in by_key.items():
        requests.sort(key=lambda request: request.first_invoked)
        for waiter in requests:
            if waiter.waiting and not waiter.abandons and not waiter.lost and not _was_silent(waiter):
                yield from _overtaken(facts, key, waiter)
                yield from _fell_back(waiter)


def _was_silent(waiter: Request) -> bool:
    calls = sorted(waiter.attempts, key=lambda call: call.invoked_s)
    return any(after.invoked_s - before.invoked_s > SILENCE_S for before, after in pairwise(calls)) or any(
        "expired" in call.code for call in calls
    )


def _overtaken(facts: Facts, key: str, waiter: Request) -> Iterator[str]:
    queued_by = min(call.returned_s for call in waiter.waiting)
    still_waiting_at = waiter.born_after
    own = facts.by_request.get(waiter.request_id)
    for grant in facts.by_key.get(key, ()):
        if grant.request_id == waiter.request_id:
            continue
        later = facts.requests.get(grant.request_id)
        if later is None or later.first_invoked <= queued_by:
            continue
        overtook = grant.token < own[0].token if own else grant.seen_by < still_waiting_at
        if overtook:
            yield f"{name(grant)} asked after {waiter.request_id} had its place, and was granted first"


def _fell_back(waiter: Request) -> Iterator[str]:
    best, best_call = math.inf, None
    for call in sorted(waiter.waiting, key=lambda call: call.returned_s):
        if best_call is not None and call.invoked_s > best_call.returned_s and call.answer["position"] > best:
            yield f"{brief(call)} says position {call.answer['position']}; an earlier answer said {best}"
        if call.answer["position"] <= best:
            best, best_call = call.answer["position"], call


def guards_hold(facts: Facts) -> Iterator[str]:
    """Accepted commits of a key rise as its guard demands, in the order of their revisions; each op_id has
    one answer."""
    accepted: dict[str, list[tuple[int, Call]]] = {}
    revisions: dict[int, str] = {}
    for op_id, attempts in facts.commits.items():
        answers = {
            (call.status, call.code, call.answer.get("revision"))
            for call in attempts
            if call.outcome in ("ok", "refused")
        }
        if len(answers) > 1:
            yield f"commit {op_id} has several answers: {sorted(map(str, answers))}"
        done = [call for call in attempts if call.outcome == "ok"]
        if done:
            revision = done[0].answer["revision"]
            if revisions.setdefault(revision, op_id) != op_id:
                yield f"commits {op_id} and {revisions[revision]} both have revision {revision}"
            accepted.setdefault(done[0].body["key"], []).append((revision, done[0]))
        yield from _commit_refusals(facts, attempts)
    for commits in accepted.values():
        commits.sort(key=lambda item: item[0])
        for (_, before), (_, after) in pairwise(commits):
            yield from _guarded_order(facts, before, after)


def _guarded_order(facts: Facts, before: Call, after: Call) -> Iterator[str]:
    pair = f"{brief(before)} {before.answer}, then {brief(after)} {after.answer}"
    first_asked = min(call.invoked_s for call in facts.commits[before.body["op_id"]])
    if after.returned_s < first_asked:
        yield f"revisions against the order of time: {pair}"
    old, new = before.body["token"], after.body["token"]
    if new < old:
        yield f"a lower token was accepted later: {pair}"
    elif new == old and after.body["mode"] == "once":
        yield f"a token was used twice: {pair}"
    elif new == old and after.body["mode"] == "sequence" and after.body["seq"] <= before.body["seq"]:
        yield f"a sequence number did not rise: {pair}"


def _commit_refusals(facts: Facts, attempts: list[Call]) -> Iterator[str]:
    """A refused commit names a cause that can have been true at an instant of one of its attempts."""
    for call in attempts:
        grant = facts.by_lease.get(call.body["lease_id"])
        if call.outcome != "refused" or grant is None:
            continue
        if call.code == "not_live" and not facts.may_be_over(grant, call.returned_s):
            yield f"{brief(call)} was refused as not live although {name(grant)} lived all the while"
        elif call.code == "stale_token":
            floor = call.answer.get("floor", 0)
            successor = facts.grants.get(floor)
            if floor <= call.body["token"] or (successor is not None and successor.key != call.body["key"]):
                yield f"{brief(call)} was refused as stale by floor {floor}"
            if not facts.may_be_over(grant, call.returned_s):
                yield f"{brief(call)} was refused as stale although {name(grant)} lived all the while"
        elif call.code in ("token_used", "seq_replayed"):
            used = any(
                other.body["op_id"] != call.body["op_id"]
                and other.body["token"] >= call.body["token"]
                and other.outcome in ("ok", "unknown")
                and other.invoked_s < call.returned_s
                for other in facts.commits_by_key[call.body["key"]]
            )
            if not used:
                yield f"{brief(call)} was refused as {call.code}, but nobody else committed under that token"


def records_are_kept(facts: Facts) -> Iterator[str]:
    """A read shows the value of the last accepted commit, or of one whose outcome is unknown; never an older
    one."""
    written: dict[str, list[tuple[int, float, str]]] = {}
    maybe: set[tuple[str, str]] = set()
    for attempts in facts.commits.values():
        for call in attempts:
            value = call.body.get("value")
            if value is None:
                continue
            if call.outcome == "ok":
                written.setdefault(call.body["key"], []).append(
                    (call.answer["revision"], call.returned_s, value)
                )
            if call.outcome != "not_executed":
                maybe.add((call.body["key"], value))
    for call in facts.calls:
        if call.op != "get_record" or call.outcome not in ("ok", "refused"):
            continue
        key = call.body["key"]
        known = [item for item in written.get(key, ()) if item[1] < call.invoked_s]
        if call.code == "no_record":
            if known:
                yield f"{brief(call)} finds no record although revision {max(known)[0]} was accepted"
            continue
        revision, value = call.answer["revision"], call.answer["value"]
        if known and revision < max(known)[0]:
            yield f"{brief(call)} shows revision {revision}; {max(known)[0]} was accepted before"
        if (key, value) not in maybe:
            yield f"{brief(call)} shows a value that nobody committed, or was told is not executed"
        if any(item[0] == revision and item[2] != value for item in written.get(key, ())):
            yield f"{brief(call)} shows another value for revision {revision} than was accepted"


CHECKS: tuple[Callable[[Facts], Iterator[str]], ...] = (
    no_impossible_answers,
    one_token_a_request,
    tokens_rise,
    one_holder_at_a_time,
    the_ended_stay_ended,
    losses_are_true,
    renewals_last,
    refusals_are_true,
    queues_keep_their_order,
    guards_hold,
    records_are_kept,
)


def check_history(history: History) -> list[str]:
    """Everything in the history that no honest cluster could have answered; empty if all is well."""
    facts = Facts(history)
    return [f"{check.__name__}: {violation}" for check in CHECKS for violation in check(facts)]


def name(grant: Grant) -> str:
    return f"token {grant.token} ({grant.request_id} on {grant.key})"


def brief(call: Call) -> str:
    """The call in one line: who, what, when."""
    asked = {key: value for key, value in call.body.items() if key not in ("metadata", "value")}
    return f"[{call.invoked_s:.3f}-{call.returned_s:.3f}] {call.process} {call.op} {asked} at {call.node}"
