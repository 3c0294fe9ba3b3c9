"""What a history says, put in order once for all checkers.

An effect is named by its number: its place in the log as recorded. ``Life`` is a grant from the effect that
made it to the one that ended it. After effect ``n`` the state is what effects 0 to n made of it, so a life
holds at n if ``began <= n < ended``.

A lease may be over before an effect says so: from its deadline on it counts for nothing, and whoever meets it
ends it. So what is over is asked of the deadlines that the log gave and of the log's time.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tenure_chaos.checkers.attribution import Attribution, Unexplained
from tenure_chaos.checkers.queues import Queues, Served
from tenure_chaos.checkers.reading import (
    CLAIM_WINDOW_MS,
    ENDINGS,
    NEVER,
    NOT_YET,
    Key,
    called_key,
    grants_told,
    key_of,
    text,
)
from tenure_chaos.history import CallRecord, Effect, History, named


@dataclass(slots=True, eq=False)
class Life:
    """One grant. What only an answer of the machine tells (lease_id, ttl_ms …) is empty until one did, or the
    waiter is known.
    """

    key: Key
    token: int
    owner: str
    began: int
    began_at: float
    began_ms: int
    claimed: int = NOT_YET
    """The first effect that told it as claimed."""
    ended: int = NOT_YET
    ended_at: float = NEVER
    ended_ms: int = 0
    ending: str = ""
    detail: str = ""
    lease_id: str = ""
    session_id: str = ""
    request_id: str = ""
    ttl_ms: int = 0
    grace_ms: int = 0

    @property
    def name(self) -> str:
        return f"token {self.token} of {self.key[1]}"

    def holds(self, n: int) -> bool:
        return self.began <= n < self.ended

    def holds_between(self, first: int, last: int) -> bool:
        return self.began <= last and self.ended > first


class Version(NamedTuple):
    """A record from the effect that wrote it on; ``value`` None: deleted."""

    n: int
    token: int
    value: str | None
    revision: int


class Facts:
    """See the module's docstring."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.effects = history.effects
        self.applied_at: list[float] = []
        """By effect; never falls."""
        self.now_ms: list[int] = []
        """The log's time after each effect."""
        self.lives: list[Life] = []
        self.by_key: dict[Key, list[Life]] = {}
        self._granted: dict[tuple[Key, int], Life] = {}
        self.by_lease: dict[tuple[str, str], Life] = {}
        self.deadlines: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(effect, deadline) by (tenant, session)."""
        self.versions: dict[Key, list[Version]] = {}
        self.breaks: dict[Key, list[int]] = {}
        self.accepted: dict[Key, list[tuple[int, tuple[int, int]]]] = {}
        """(effect, (token, seq)) of each commit that was accepted."""
        self.undecided: list[str] = []
        """What a check could not decide within its bounds."""
        self.accused: set[Key] = set()
        """Keys of which something wrong was found."""
        self.served: list[Served] = []
        self._queues = Queues()
        self._begun: dict[Key, list[int]] = {}
        at, now_ms = 0.0, 0
        for n, effect in enumerate(self.effects):
            at = max(at, effect.first_applied_at)
            now_ms = max(now_ms, effect.at_ms)
            self.applied_at.append(at)
            self.now_ms.append(now_ms)
            if effect.events:
                self._read_events(n, effect)
                self._read_waiters(n, effect)
            self._read_result(n, effect)

    def _read_events(self, n: int, effect: Effect) -> None:
        for event in effect.events:
            key, kind = key_of(event), event["kind"]
            if kind == "granted":
                life = Life(key, event["token"], event["owner"], n, self.applied_at[n], self.now_ms[n])
                self.lives.append(life)
                self.by_key.setdefault(key, []).append(life)
                self._begun.setdefault(key, []).append(n)
                self._granted.setdefault((key, life.token), life)
            elif kind in ENDINGS:
                ended = self.life(key, event["token"])
                if ended is not None and ended.ended == NOT_YET:
                    ended.ended, ended.ended_at, ended.ended_ms = n, self.applied_at[n], self.now_ms[n]
                    ended.ending, ended.detail = kind, event["detail"]
            elif kind == "committed":
                write = (event["token"], effect.fields["seq"] or 0)
                self.accepted.setdefault(key, []).append((n, write))
                if effect.fields["value"] is not None:
                    version = Version(n, event["token"], text(effect.fields["value"]), event["revision"])
                    self.versions.setdefault(key, []).append(version)
            elif kind == "record_deleted":
                self.versions.setdefault(key, []).append(Version(n, event["token"], None, event["revision"]))

    def _read_waiters(self, n: int, effect: Effect) -> None:
        for served in self._queues.apply(n, effect):
            self.served.append(served)
            life, waiter = self.life(served.key, served.token), served.waiter
            if life is not None and waiter is not None and served.sure:
                life.request_id, life.lease_id = waiter.request_id, waiter.lease_id
                life.session_id = waiter.session_id or waiter.lease_id
                life.ttl_ms, life.grace_ms = waiter.ttl_ms, waiter.grace_ms
                self.by_lease[(life.key[0], life.lease_id)] = life

    def _read_result(self, n: int, effect: Effect) -> None:
        if effect.result == "Broken":
            self.breaks.setdefault((effect.fields["tenant"], effect.fields["key"]), []).append(n)
        elif effect.result == "SessionIs":
            self._read_session(n, effect.result_fields["session"])
        for grant in grants_told(effect):
            lease, session = grant["lease"], grant["session"]
            self._read_session(n, session)
            life = self.life(key_of(lease), lease["token"])
            if life is None:
                continue
            if not lease["claim_deadline_ms"]:
                life.claimed = min(life.claimed, n)
            life.ttl_ms = session["ttl_ms"]
            if life.lease_id != lease["lease_id"]:
                life.lease_id, life.session_id = lease["lease_id"], lease["session_id"]
                life.request_id, life.grace_ms = lease["request_id"], lease["grace_ms"]
                self.by_lease[(lease["tenant"], life.lease_id)] = life

    def _read_session(self, n: int, session: dict[str, Any]) -> None:
        place = (session["tenant"], session["session_id"])
        self.deadlines.setdefault(place, []).append((n, session["deadline_ms"]))

    # -- where in the log

    def last_applied(self, at: float) -> int:
        """The last effect that some node had applied at that time; -1 if none."""
        return bisect_right(self.applied_at, at) - 1

    def window(self, call: CallRecord) -> tuple[int, int]:
        """First and last effect after which the call may have looked at the state."""
        return self.last_applied(call.invoked_at), self.last_applied(call.returned_at)

    def last_of_index(self, index: int) -> int:
        """The last effect of the entries up to an index."""
        return bisect_right(self._indexes, index) - 1

    @cached_property
    def _indexes(self) -> list[int]:
        return [effect.index for effect in self.effects]

    # -- what held

    def life(self, key: Key, token: int) -> Life | None:
        """The grant of the key with that token."""
        return self._granted.get((key, token))

    def life_at(self, key: Key, n: int) -> Life | None:
        """The grant that had not been ended after effect n."""
        place = bisect_right(self._begun.get(key, ()), n) - 1
        if place < 0:
            return None
        life = self.by_key[key][place]
        return life if n < life.ended else None

    def lives_between(self, key: Key, first: int, last: int) -> Iterator[Life]:
        """The grants that held at some effect from first to last."""
        lives = self.by_key.get(key, ())
        for place in range(bisect_right(self._begun.get(key, ()), last) - 1, -1, -1):
            if lives[place].ended <= first:
                return
            yield lives[place]

    def session_deadline_ms(self, session: tuple[str, str], n: int) -> float:
        """When the session of a tenant ends by itself, as the log has told it up to effect n."""
        given = self.deadlines.get(session, [])
        place = bisect_right(given, (n, NOT_YET)) - 1
        return given[place][1] if place >= 0 else NEVER

    def deadline_ms(self, life: Life, n: int) -> float:
        """When the lease ends by itself, as the log has told it up to effect n."""
        deadline_ms = self.session_deadline_ms((life.key[0], life.session_id), n)
        return deadline_ms if life.claimed <= n else min(deadline_ms, life.began_ms + CLAIM_WINDOW_MS)

    def over(self, life: Life, n: int) -> bool:
        """Whether the lease has ended after effect n, whether an effect has said so or not."""
        if n < 0 or n < life.began:
            return False
        return n >= life.ended or self.deadline_ms(life, n) <= self.now_ms[n]

    def free_between(self, key: Key, first: int, last: int) -> bool:
        """Whether nobody held the key after some effect from first to last."""
        moments = {first, last}
        for life in self.lives_between(key, first, last):
            moments |= {life.began - 1, min(life.ended, last), min(life.ended - 1, last)}
        for n in moments:
            if first <= n <= last:
                held = self.life_at(key, n)
                if held is None or self.over(held, n):
                    return True
        return False

    def version_at(self, key: Key, n: int) -> Version | None:
        """The key's record after effect n."""
        written = self.versions.get(key, [])
        place = bisect_right(written, n, key=lambda version: version.n) - 1
        return written[place] if place >= 0 and written[place].value is not None else None

    def versions_between(self, key: Key, first: int, last: int) -> list[Version | None]:
        """Every state of the key's record after an effect from first to last; None: no record."""
        inside = [version for version in self.versions.get(key, ()) if first < version.n <= last]
        return [
            self.version_at(key, first),
            *(version if version.value is not None else None for version in inside),
        ]

    # -- calls and what they did

    @cached_property
    def attribution(self) -> Attribution:
        return Attribution(self.history)

    @cached_property
    def unexplained(self) -> list[Unexplained]:
        return list(self.attribution.unexplained())

    @cached_property
    def _tenants_of(self) -> dict[tuple[str, int], set[str]]:
        tenants: dict[tuple[str, int], set[str]] = {}
        for life in self.lives:
            tenants.setdefault((life.key[1], life.token), set()).add(life.key[0])
        return tenants

    @cached_property
    def by_name(self) -> dict[str, list[Life]]:
        """Lives by the one name of their key among all tenants'."""
        return {named(*key): lives for key, lives in self.by_key.items()}

    def granted_elsewhere(self, key: Key, token: int) -> bool:
        """Whether another tenant was granted a key of that name with that token, and this one was not."""
        tenants = self._tenants_of.get((key[1], token), set())
        return bool(tenants) and key[0] not in tenants

    @cached_property
    def calls(self) -> dict[str, list[CallRecord]]:
        """By name, in the order of the history."""
        by_name: dict[str, list[CallRecord]] = {}
        for call in self.history.calls:
            by_name.setdefault(call.name, []).append(call)
        return by_name

    def answered(self, *names: str) -> Iterator[CallRecord]:
        for name in names:
            for call in self.calls.get(name, ()):
                if call.outcome == "ok":
                    yield call

    def refused(self, name: str, code: str) -> Iterator[CallRecord]:
        """Calls that were refused with a code."""
        for call in self.calls.get(name, ()):
            if call.outcome == "refused" and call.code == code:
                yield call

    @cached_property
    def granted_calls(self) -> list[tuple[CallRecord, dict[str, Any]]]:
        """Acquires that were told a lease, with the lease."""
        return [(call, lease) for call in self.answered("acquire") if (lease := call.answer.get("lease"))]

    @cached_property
    def releases(self) -> dict[tuple[Key, int], CallRecord]:
        """By key and token: the release of it that was acknowledged first."""
        first: dict[tuple[Key, int], CallRecord] = {}
        for call in self.answered("release"):
            if call.answer.get("status") == "released" and "token" in call.asked:
                place = (called_key(call), call.asked["token"])
                if place not in first or call.returned_at < first[place].returned_at:
                    first[place] = call
        return first

    def released_before(self, call: CallRecord, token: int) -> CallRecord | None:
        """The call that was told that it had released that token of the key before this call was made."""
        by = self.releases.get((called_key(call), token))
        return by if by is not None and by.returned_at < call.invoked_at else None
