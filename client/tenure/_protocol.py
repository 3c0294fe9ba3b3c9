"""One call from its first attempt to its answer, without I/O: whom to ask, how long, and whether to ask
again.

Theory of operation. The driver holds a ``Call`` and does what ``next`` says: make an attempt, or pause and
come back. It then reports what became of the attempt by ``received`` or ``failed``. Time and chance are
arguments, so every path can be tested in a table. What decides is how much is known after a failed attempt:

    not sent        the connection could not be made      any call may go to the next node
    not executed    no_leader, no_quorum,                 any call may be made again; overloaded waits as long
                    shutting_down, overloaded             as the server asked
    unknown         sent and no answer, outcome_unknown,  only a repeatable call (_requests.py) is made again;
                    an answer that isn't the cluster's    another ends as OutcomeUnknown
    answered        everything else                       the call is over

A call whose every attempt is known not to have been executed ends as ClusterUnavailable; once a single
attempt is in doubt, and the call could have had an effect, it can only end by an answer or as
OutcomeUnknown. ``doubtful`` says so to the caller: an attempt may still be under way and arrive after an
answer to a later one, so whoever gives up an acquire must abandon it.

A node that knows no leader waits a while for one before it refuses. An attempt that the deadline cuts off
before such a refusal can come would make a doubt out of a certain "not executed", and gain nothing. So the
last attempt of a call that is certain up to then is the last one with time for a refusal as slow as those
before, and LAST_ATTEMPT_FACTOR times that, because no two take the same. A node that hasn't been asked yet is
asked in any case: it may know the leader.

The nodes are tried one after another at once; only after a round through all of them comes a pause, which
doubles from 50 ms to 1 s and carries jitter, so that clients don't come back in step. Retry-After isn't
followed for no_leader and no_quorum: elections end within a fraction of the whole seconds in which that
header counts.

``Answer.sent_at`` is when the very attempt that was answered was sent. Validity of a lease counts from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from tenure._endpoints import SUSPICION_S, Endpoints
from tenure._problems import CONTENT_TYPE, MSGPACK, Problem, read_problem, refusal
from tenure._requests import Request
from tenure.errors import ClusterUnavailable, OutcomeUnknown

A = TypeVar("A")

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
RETRY_AFTER_MAX_S: Final = 30.0
"""Longest Retry-After that is followed; a larger one is cut to it."""

LAST_ATTEMPT_FACTOR: Final = 1.25

LEADER_HEADER: Final = "X-Tenure-Leader"
REQUEST_ID_HEADER: Final = "X-Request-Id"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send this, now."""

    url: str
    method: str
    target: str
    body: bytes | None
    timeout_s: float
    sent_at: float
    once: bool
    """Whatever happens, it must not be sent a second time behind the back of ``Call``."""
    operation: str = ""
    """Its name on a stream; empty if it has to be asked over a connection of its own."""
    fields: Mapping[str, Any] | None = None
    """What it is asked with there."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Come back after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer(Generic[A]):
    """What the cluster answered, to the attempt that was sent at ``sent_at``."""

    value: A
    sent_at: float


class Call(Generic[A]):
    """One call. ``draw`` yields numbers in [0, 1)."""

    def __init__(
        self,
        request: Request[A],
        endpoints: Endpoints,
        *,
        now: float,
        timeout_s: float,
        attempt_timeout_s: float,
        draw: Callable[[], float],
    ) -> None:
        self.request = request
        self.doubtful = False
        self._endpoints = endpoints
        self._attempt_timeout_s = attempt_timeout_s
        self._deadline = now + timeout_s
        if request.wait_until is not None:
            self._deadline = max(self._deadline, request.wait_until + attempt_timeout_s)
        self._given_s = self._deadline - now
        self._draw = draw
        self.attempted = False
        self._rounds = 0
        self._tried: set[str] = set()
        self._pause_until = now
        self._refusal_took_s = 0.0
        """The longest that a node took to say "not executed", beyond the time it was asked to wait."""
        self._code = "unreachable"
        self._faults: dict[str, str] = {}

    def next(self, now: float) -> Attempt | Pause:
        """What to do now. Raises ClusterUnavailable or OutcomeUnknown once the time is over, or would be
        after the pause."""
        remaining_s = self._deadline - now
        pause_s = self._pause_until - now
        if self.attempted and remaining_s <= max(pause_s, 0.0):
            self._give_up()
        url = self._endpoints.choose(now, self._tried)
        if url in self._faults and remaining_s - max(pause_s, 0.0) <= self._needed_s():
            self._give_up()
        if pause_s > 0:
            return Pause(pause_s)
        if url is None:
            # The only node left was a hinted leader, and another call has found it dead meanwhile.
            self._pause(now)
            return self.next(now)
        self.attempted = True
        self._tried.add(url)
        timeout_s = remaining_s
        if self.request.repeatable:
            timeout_s = min(remaining_s, self._attempt_timeout_s + self.request.wait_s(now))
        return Attempt(
            url=url,
            method=self.request.method,
            target=self.request.target(),
            body=self.request.encode(now),
            timeout_s=max(timeout_s, 0.001),
            sent_at=now,
            once=not self.request.repeatable,
            # A poll has a connection of its own: that it breaks tells the cluster that nobody waits there.
            operation="" if self.request.wait_until is not None else self.request.operation,
            fields=self.request.named if self.request.body is None else self.request.body,
        )

    def _needed_s(self) -> float:
        """A node is asked once more only if there is more time left than this."""
        if self.request.reads or self.doubtful:
            return 0.0
        return min(self._refusal_took_s * LAST_ATTEMPT_FACTOR, self._attempt_timeout_s)

    def failed(self, attempt: Attempt, now: float, why: str, *, sent: bool) -> None:
        """No answer came. ``sent`` is false only if the request certainly did not reach the node. Raises
        OutcomeUnknown if the call must not be made again."""
        self._faults[attempt.url] = why
        self._endpoints.failed(attempt.url, now)
        if sent:
            self._in_doubt(f"{attempt.url}: {why}")
        self._again(now)

    def received(
        self, attempt: Attempt, now: float, status: int, headers: Mapping[str, str], body: bytes
    ) -> Answer[A] | None:
        """The node answered. Returns the answer, or None if the call goes on by ``next``. Raises the
        refusal."""
        self._endpoints.hint(attempt.url, headers.get(LEADER_HEADER))
        if 200 <= status < 300:
            return self._success(attempt, headers, body)
        problem = read_problem(status, headers, body)
        if problem.kind == "answered":
            self._endpoints.served(attempt.url)
            raise refusal(self.request.name, problem)
        self._code = problem.code
        self._faults[attempt.url] = problem.detail or problem.code
        if problem.kind == "unknown":
            self._in_doubt(f"{attempt.url}: {problem.detail or problem.code}", problem.request_id)
        else:
            took_s = now - attempt.sent_at - self.request.wait_s(attempt.sent_at)
            self._refusal_took_s = max(self._refusal_took_s, took_s)
        self._refused_for_now(attempt.url, now, problem)
        return None

    def _success(self, attempt: Attempt, headers: Mapping[str, str], body: bytes) -> Answer[A]:
        try:
            if headers.get(CONTENT_TYPE) == MSGPACK:
                value = msgspec.msgpack.decode(body, type=self.request.answer)
            else:
                value = msgspec.json.decode(body, type=self.request.answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            error_type = ClusterUnavailable if self.request.reads else OutcomeUnknown
            raise error_type(
                detail=f"{attempt.url} answered {self.request.name} as no Tenure node would: {error}"
            ) from error
        self._endpoints.served(attempt.url)
        return Answer(value, attempt.sent_at)

    def _refused_for_now(self, url: str, now: float, problem: Problem) -> None:
        asked_s = min(problem.retry_after_s or 0.0, RETRY_AFTER_MAX_S)
        if problem.code == "overloaded":
            # The leader does the work whichever node is asked, so going to another at once would only add
            # to its load.
            self._pause(now, at_least_s=asked_s)
            return
        self._endpoints.failed(
            url, now, max(asked_s, SUSPICION_S) if problem.code == "shutting_down" else SUSPICION_S
        )
        self._again(now)

    def _in_doubt(self, why: str, request_id: str = "") -> None:
        if self.request.reads:
            return
        self.doubtful = True
        if not self.request.repeatable:
            raise OutcomeUnknown(
                detail=f"{self.request.name} may or may not have been executed ({why})", request_id=request_id
            )

    def _again(self, now: float) -> None:
        """Plan the next attempt: at once at a node not tried in this round, else after a pause."""
        if self._endpoints.choose(now, self._tried) is None:
            self._pause(now)

    def _pause(self, now: float, *, at_least_s: float = 0.0) -> None:
        backoff_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(self._rounds, 16))
        jittered_s = backoff_s * (1 + self._draw()) / 2
        self._rounds += 1
        self._tried.clear()
        self._pause_until = now + at_least_s + jittered_s

    def _give_up(self) -> NoReturn:
        urls: dict[str, list[str]] = {}
        for url, why in self._faults.items():
            urls.setdefault(why, []).append(url)
        faults = "; ".join(f"{', '.join(same)}: {why}" for why, same in urls.items())
        within = f"{self._given_s:.3g} s"
        if self.doubtful:
            detail = f"{self.request.name} may or may not have been executed, within {within} ({faults})"
            raise OutcomeUnknown(detail=detail)
        detail = f"no node could execute {self.request.name} within {within} ({faults})"
        raise ClusterUnavailable(code=self._code, detail=detail)
