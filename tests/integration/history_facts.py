"""What a history proves about each request, grant and session: bounds in time, never guesses.

The one clock of the harness gives each call a window [invoked, returned]; what an answer says was true at one
instant inside. From these windows follow, for each grant: an instant after which it was minted
(`born_after`), one by which it was there (`seen_by`), until when its session certainly lived (`lives_until`),
and which calls may have ended it.

Every acquire of the workload uses its request_id as its owner label, so whatever shows a holder, a waiter or
a record also shows the request it came from.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from history import Call, History

RHO: Final = 0.005
"""Assumed bound of the clocks' rate error."""

SLACK_S: Final = 0.005
"""Rounding of durations to milliseconds, on both sides."""


class Observation(msgspec.Struct):
    """One answer that shows a grant, as live at some instant of the call unless it is only a record's
    origin."""

    call: Call
    live: bool
    expires_in_s: float


class Grant(msgspec.Struct):
    """One token and everything that the history shows of it."""

    token: int
    key: str
    request_id: str
    lease_ids: set[str] = msgspec.field(default_factory=set)
    session_ids: set[str] = msgspec.field(default_factory=set)
    seen_by: float = math.inf
    observations: list[Observation] = msgspec.field(default_factory=list)
    enders: list[Call] = msgspec.field(default_factory=list)
    """Calls that may have ended it, whatever they were answered."""
    over_by: float = math.inf
    """Earliest return of an answer that says that it has ended."""
    proofs: list[tuple[float, float, str]] = msgspec.field(default_factory=list)
    """Renewals and live commits that succeeded, as (invoked, returned, what): it was live at some instant of
    each."""
    fenced: list[tuple[float, float, str]] = msgspec.field(default_factory=list)
    """Commits accepted by fencing alone, likewise: no successor had been granted at some instant of each."""


class Request(msgspec.Struct):
    """An acquire by its request_id, with all its attempts."""

    request_id: str
    key: str
    attempts: list[Call] = msgspec.field(default_factory=list)
    waiting: list[Call] = msgspec.field(default_factory=list)
    abandons: list[Call] = msgspec.field(default_factory=list)
    lost: list[Call] = msgspec.field(default_factory=list)

    @property
    def first_invoked(self) -> float:
        return min((call.invoked_s for call in self.attempts), default=math.inf)

    @property
    def born_after(self) -> float:
        """A grant of this request was minted after this: an answer that says `waiting` was true at some
        instant."""
        return max((call.invoked_s for call in self.waiting), default=self.first_invoked)

    @property
    def may_have_executed(self) -> bool:
        return any(call.outcome != "not_executed" for call in self.attempts)


class Session(msgspec.Struct):
    """A session and the answers that show how long it had to live."""

    session_id: str
    liveness: list[Observation] = msgspec.field(default_factory=list)

    @property
    def lives_until(self) -> float:
        """The session cannot have expired before this, whatever the clocks did within RHO."""
        return max(
            (seen.call.invoked_s + seen.expires_in_s * (1 - RHO) - SLACK_S for seen in self.liveness),
            default=-math.inf,
        )


class Facts:
    """The indexes over one history."""

    def __init__(self, history: History) -> None:
        self.calls = history.calls
        self.requests: dict[str, Request] = {}
        self.grants: dict[int, Grant] = {}
        self.sessions: dict[str, Session] = {}
        self.by_lease: dict[str, Grant] = {}
        self.by_request: dict[str, list[Grant]] = {}
        self.by_session: dict[str, list[Grant]] = {}
        self.commits: dict[str, list[Call]] = {}
        """All attempts of each op_id."""
        self.commits_by_key: dict[str, list[Call]] = {}
        self.closings: dict[str, list[Call]] = {}
        """By session: every attempt to close it that may have been executed."""
        self.by_key: dict[str, list[Grant]] = {}
        self.faults: list[str] = []
        """Contradictions in who a token, lease or request belongs to."""
        for call in self.calls:
            if call.op == "acquire":
                self.request(call.body["request_id"], call.body["key"]).attempts.append(call)
        for call in self.calls:
            self._read_answer(call)
        for grant in self.grants.values():
            self.by_key.setdefault(grant.key, []).append(grant)
            self.by_request.setdefault(grant.request_id, []).append(grant)
            for session_id in grant.session_ids:
                self.by_session.setdefault(session_id, []).append(grant)
        for call in self.calls:
            self._read_effects(call)
        for grants in self.by_key.values():
            grants.sort(key=lambda grant: grant.token)

    def request(self, request_id: str, key: str) -> Request:
        found = self.requests.get(request_id)
        if found is None:
            found = self.requests[request_id] = Request(request_id, key)
        return found

    def born_after(self, grant: Grant) -> float:
        request = self.requests.get(grant.request_id)
        return request.born_after if request is not None else -math.inf

    def lives_until(self, grant: Grant) -> float:
        """Until when the grant's session certainly lived, and so the grant unless a call ended it."""
        return max(
            (self.sessions[session_id].lives_until for session_id in grant.session_ids), default=-math.inf
        )

    def may_be_over(self, grant: Grant, by_s: float) -> bool:
        """Whether anything in the history could have ended the grant before this instant."""
        return self.lives_until(grant) <= by_s or any(call.invoked_s < by_s for call in grant.enders)

    # -- reading

    def _read_answer(self, call: Call) -> None:
        """Collect what the answer shows of grants and sessions."""
        if call.outcome not in ("ok", "refused"):
            return
        request = self.requests.get(call.body.get("request_id", ""))
        if call.op == "acquire" and request is not None:
            if call.answer.get("status") == "waiting":
                request.waiting.append(call)
            elif call.code == "lost":
                request.lost.append(call)
        for shown, live in shown_grants(call):
            self._show(call, shown, live)
        session = call.answer.get("session")
        if session is not None:
            self._show_session(session["session_id"], call, session["expires_in_ms"])

    def _show(self, call: Call, shown: dict[str, Any], live: bool) -> None:
        token, key, owner = shown["token"], shown["key"], shown["owner"]
        grant = self.grants.get(token)
        if grant is None:
            grant = self.grants[token] = Grant(token, key, owner)
        if (grant.key, grant.request_id) != (key, owner):
            self.faults.append(
                f"token {token} was shown for {owner} on {key} and for {grant.request_id} on {grant.key}"
            )
            return
        grant.seen_by = min(grant.seen_by, call.returned_s)
        expires_in_s = shown.get("expires_in_ms", 0) / 1000
        observation = Observation(call, live, expires_in_s)
        grant.observations.append(observation)
        if lease_id := shown.get("lease_id"):
            grant.lease_ids.add(lease_id)
            if self.by_lease.setdefault(lease_id, grant) is not grant:
                self.faults.append(
                    f"lease {lease_id} carries tokens {token} and {self.by_lease[lease_id].token}"
                )
        if session_id := shown.get("session_id"):
            grant.session_ids.add(session_id)
            if live:
                self._show_session(session_id, call, shown["expires_in_ms"])

    def _show_session(self, session_id: str, call: Call, expires_in_ms: int) -> None:
        session = self.sessions.setdefault(session_id, Session(session_id))
        session.liveness.append(Observation(call, True, expires_in_ms / 1000))

    def _read_effects(self, call: Call) -> None:
        """Collect what the call may have ended or proves to live."""
        lease = self.by_lease.get(call.body.get("lease_id", ""))
        may_have_executed = call.outcome in ("ok", "unknown")
        if call.op in ("release", "renew") and lease is not None:
            if call.op == "release" and may_have_executed:
                lease.enders.append(call)
            if call.op == "renew" and call.outcome == "ok":
                lease.proofs.append((call.invoked_s, call.returned_s, "renewed"))
            elif call.outcome == "ok" or call.code == "lost":
                lease.over_by = min(lease.over_by, call.returned_s)
        elif call.op == "commit":
            self._read_commit(call, lease)
        elif call.op == "acquire" and call.code == "lost":
            for grant in self.by_request.get(call.body["request_id"], ()):
                grant.over_by = min(grant.over_by, call.returned_s)
        elif call.op == "abandon" and may_have_executed:
            request = self.requests.get(call.body["request_id"])
            if request is not None:
                request.abandons.append(call)
            for grant in self.by_request.get(call.body["request_id"], ()):
                grant.enders.append(call)
                if call.outcome == "ok":
                    grant.over_by = min(grant.over_by, call.returned_s)
        elif call.op == "close_session" and may_have_executed:
            self.closings.setdefault(call.body["session_id"], []).append(call)
            for grant in self.by_session.get(call.body["session_id"], ()):
                grant.enders.append(call)

    def _read_commit(self, call: Call, lease: Grant | None) -> None:
        attempts = self.commits.setdefault(call.body["op_id"], [])
        attempts.append(call)
        self.commits_by_key.setdefault(call.body["key"], []).append(call)
        if call.outcome == "ok" and lease is not None:
            proofs = lease.proofs if call.body.get("require_live", True) else lease.fenced
            proofs.append((min(each.invoked_s for each in attempts), call.returned_s, "committed"))


def shown_waiters(call: Call) -> Iterator[str]:
    """Owners, and so request_ids, of every waiter that the answer shows."""
    for waiter in call.answer.get("waiters", ()) if call.op == "queue" else ():
        yield waiter["owner"]
    for ahead in call.answer.get("ahead", ()):
        if ahead["state"] == "waiting":
            yield ahead["owner"]


def shown_grants(call: Call) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every grant that the answer shows, and whether as live at some instant of the call."""
    answer = call.answer
    if "lease" in answer:
        yield answer["lease"], True
    if answer.get("holder"):
        yield answer["holder"], True
    for holder in answer.get("holders", ()):
        yield holder, True
    for lease in answer.get("leases", ()) if isinstance(answer.get("leases"), list) else ():
        yield lease, True
    if call.op == "get_lease" and "token" in answer:
        yield answer, True
    if call.op == "get_record" and "token" in answer:
        yield answer, False
