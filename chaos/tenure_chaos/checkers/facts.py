"""What a history says, put in order once for all checkers.

An effect is named by its number: its place in the log as recorded. ``Life`` is a grant from the effect that
made it to the one that ended it. After effect ``n`` the state is what effects 0 to n made of it, so a life
holds at n if ``began <= n < ended``.

A lease may be over before an effect says so: from its deadline on it counts for nothing, and whoever meets it
ends it. So what is over is asked of the deadlines that the log gave and of the log's time.

A life has a place where it is the only one: its key, its slot of a pool, or among readers the place of this
one (reading.place_of). Taking up a parked lease ends a life and begins the next, with another token and the
same lease_id.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
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
    guard_of,
    key_of,
    leases_told,
    place_of,
    refused_key,
    text,
)
from tenure_chaos.history import CallRecord, Effect, History, named


@dataclass(slots=True, eq=False)
class Life:
    """One grant. What only an answer of the machine tells (lease_id, ttl_ms …) is empty until one did, or the
    waiter is known. ``key`` is its place, ``raw`` its key.
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
    raw: Key = ("", "")
    mode: str = "exclusive"
    joined: bool = False
    """A reader that came to others and has their token."""
    progress_ms: int = 0
    """Within how long progress is demanded; 0: it is not."""
    moves: list[tuple[int, str]] = field(default_factory=list)
    """(effect, session) from which on it lived by another session."""
    signs: list[tuple[int, float]] = field(default_factory=list)
    """(effect, deadline) of its progress."""
    parked: list[int] = field(default_factory=list)
    """Effects that parked it: from the first on it does not live for commits."""

    @property
    def name(self) -> str:
        return f"token {self.token} of {self.key[1]}"

    def holds(self, n: int) -> bool:
        return self.began <= n < self.ended

    def holds_between(self, first: int, last: int) -> bool:
        return self.began <= last and self.ended > first

    def session_at(self, n: int) -> str:
        """By which session it lived after effect n."""
        place = bisect_right(self.moves, (n, chr(0x10FFFF))) - 1
        return self.moves[place][1] if place >= 0 else self.session_id

    def rests(self, n: int) -> bool:
        """Whether it is parked after effect n."""
        return bool(self.parked) and self.parked[0] <= n < self.ended


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
        """By place: one after another."""
        self.by_raw: dict[Key, list[Life]] = {}
        """By key: in the order in which they began."""
        self.by_guard: dict[Key, list[Life]] = {}
        """By whose tokens are compared."""
        self.crowded: set[Key] = set()
        """Keys that more than one held at a time, as readers or in slots."""
        self.pools: set[Key] = set()
        self._tokens: dict[tuple[Key, int], list[Life]] = {}
        self._by_lease: dict[tuple[str, str], list[Life]] = {}
        self.by_lease: dict[tuple[str, str], Life] = {}
        """By tenant and lease_id: its last life."""
        self._renamed: dict[tuple[str, str], str] = {}
        self._granted: dict[tuple[Key, int], Life] = {}
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
            kind = event["kind"]
            if kind == "granted":
                self._begin(n, effect, event)
            elif kind in ENDINGS:
                ended = self.life(place_of(event), event["token"])
                if ended is not None and ended.ended == NOT_YET:
                    self._end(n, ended, kind, event["detail"])
            elif kind == "unparked":
                self._take_up(n, event)
            elif kind == "progress":
                self._progress(n, self.life(place_of(event), event["token"]))
            elif kind == "committed":
                key = key_of(event)
                write = (event["token"], effect.fields["seq"] or 0)
                self.accepted.setdefault(self.guard_written(effect), []).append((n, write))
                if effect.fields["value"] is not None:
                    version = Version(n, event["token"], text(effect.fields["value"]), event["revision"])
                    self.versions.setdefault(key, []).append(version)
            elif kind == "record_deleted":
                key = key_of(event)
                self.versions.setdefault(key, []).append(Version(n, event["token"], None, event["revision"]))

    def _begin(self, n: int, effect: Effect, event: dict[str, Any]) -> Life:
        place, raw, token = place_of(event), key_of(event), event["token"]
        mode = event.get("mode") or "exclusive"
        life = Life(place, token, event["owner"], n, self.applied_at[n], self.now_ms[n], raw=raw, mode=mode)
        if mode != "exclusive":
            self.crowded.add(raw)
            life.joined = mode == "shared" and any(
                other.ended == NOT_YET for other in self._tokens.get((raw, token), ())
            )
            if mode == "permit":
                self.pools.add(raw)
        self.lives.append(life)
        self.by_key.setdefault(place, []).append(life)
        self.by_raw.setdefault(raw, []).append(life)
        self.by_guard.setdefault(guard_of(place), []).append(life)
        self._begun.setdefault(place, []).append(n)
        self._granted.setdefault((place, token), life)
        self._tokens.setdefault((raw, token), []).append(life)
        if effect.command == "Acquire" and effect.fields["owner"] == life.owner:
            life.progress_ms = effect.fields.get("progress_ms", 0)
        elif effect.command == "Handover":
            given = [other for other in self.by_key[place] if other.ended == n]
            life.progress_ms = given[-1].progress_ms if given else 0
        return life

    def _lease_is_known(self, life: Life) -> None:
        ref = (life.key[0], life.lease_id)
        self._by_lease.setdefault(ref, []).append(life)
        self.by_lease[ref] = life

    def _end(self, n: int, life: Life, kind: str, detail: str) -> None:
        life.ended, life.ended_at, life.ended_ms = n, self.applied_at[n], self.now_ms[n]
        life.ending, life.detail = kind, detail

    def _take_up(self, n: int, event: dict[str, Any]) -> None:
        """A parked lease goes on with another token: a life ends and the next begins."""
        lives = self.by_key.get(place_of(event), [])
        before = lives[-1] if lives and lives[-1].ended == NOT_YET else None
        if before is not None:
            self._end(n, before, "unparked", "")
        life = self._begin(n, self.effects[n], event)
        if before is not None:
            life.progress_ms, life.lease_id, life.claimed = before.progress_ms, before.lease_id, n
            life.ttl_ms, life.grace_ms = before.ttl_ms, before.grace_ms
            if before.lease_id:
                self._lease_is_known(life)
        self._progress(n, life)

    def _progress(self, n: int, life: Life | None) -> None:
        """From here on it has its whole time to tell of progress."""
        if life is not None and life.progress_ms and not life.rests(n):
            life.signs.append((n, self.now_ms[n] + life.progress_ms))

    def _read_waiters(self, n: int, effect: Effect) -> None:
        for served in self._queues.apply(n, effect):
            self.served.append(served)
            life, waiter = self.life(served.place, served.token), served.waiter
            if life is not None and waiter is not None and served.sure:
                life.request_id, life.lease_id = waiter.request_id, waiter.lease_of(served.key[1])
                life.session_id = waiter.session_id or waiter.lease_id
                life.ttl_ms, life.grace_ms = waiter.ttl_ms, waiter.grace_ms
                life.progress_ms = waiter.progress_ms
                self._lease_is_known(life)

    def _read_result(self, n: int, effect: Effect) -> None:
        if effect.result == "Broken":
            self.breaks.setdefault((effect.fields["tenant"], effect.fields["key"]), []).append(n)
        elif effect.result == "SessionIs":
            self._read_session(n, effect.result_fields["session"])
        for grant in grants_told(effect):
            lease, session = grant["lease"], grant["session"]
            ref = (lease["tenant"], session["session_id"])
            if effect.result == "Parked" or (
                effect.result == "Unparked" and session["private"] and not effect.result_fields["replayed"]
            ):
                # A private session of that id was there before, with another deadline.
                self._renamed[ref] = f"{session['session_id']} from effect {n} on"
            self._read_session(n, session)
            life = self.life(place_of(lease), lease["token"])
            if life is not None:
                self._read_grant(n, effect, life, lease, session)

    def _read_grant(
        self, n: int, effect: Effect, life: Life, lease: dict[str, Any], session: dict[str, Any]
    ) -> None:
        by = self._renamed.get((lease["tenant"], session["session_id"]), session["session_id"])
        life.ttl_ms = session["ttl_ms"]
        if life.lease_id != lease["lease_id"]:
            life.lease_id, life.session_id = lease["lease_id"], by
            life.request_id, life.grace_ms = lease["request_id"], lease["grace_ms"]
            # Of a waiter that wasn't known for sure the log says here alone what it had asked for.
            life.progress_ms = life.progress_ms or (lease.get("life") or {}).get("progress_ms", 0)
            self._lease_is_known(life)
        elif effect.result == "Unparked" and life.began == n:
            life.session_id = by
        elif effect.result == "Parked":
            life.moves.append((n, by))
        if not lease["claim_deadline_ms"] and n < life.claimed:
            life.claimed = n
            self._progress(n, life)
        if effect.result == "Parked":
            life.parked.append(n)
            life.signs.append((n, NEVER))

    def _read_session(self, n: int, session: dict[str, Any]) -> None:
        tenant, session_id = session["tenant"], session["session_id"]
        name = self._renamed.get((tenant, session_id), session_id)
        self.deadlines.setdefault((tenant, name), []).append((n, session["deadline_ms"]))

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
        """The grant of the key, or the place, with that token; of readers the first."""
        return self._granted.get((key, token)) or next(iter(self._tokens.get((key, token), ())), None)

    def lives_of(self, key: Key, token: int) -> list[Life]:
        """All grants of the key, or the place, with that token: of readers there are several."""
        life = self._granted.get((key, token))
        if life is not None and key not in self.crowded:
            return [life]
        return self._tokens.get((key, token), [] if life is None else [life])

    def lives_of_lease(self, tenant: str, lease_id: str) -> list[Life]:
        """The lives of a lease: more than one if it was parked and taken up again."""
        return self._by_lease.get((tenant, lease_id), [])

    def life_of_lease(self, tenant: str, lease_id: str, n: int) -> Life | None:
        """Its last life up to effect n, or if it had not begun yet its first."""
        lives = self.lives_of_lease(tenant, lease_id)
        begun = [life for life in lives if life.began <= n]
        return begun[-1] if begun else (lives[0] if lives else None)

    def place(self, call: CallRecord) -> Key:
        """What a call is about: the place of the lease that it names, or its key."""
        lives = self.lives_of_lease(call.tenant, call.asked.get("lease_id") or "")
        key = called_key(call)
        return lives[0].key if lives and lives[0].raw == key else key

    def guard_written(self, effect: Effect) -> Key:
        """Whose guard a commit passes."""
        key = (effect.fields["tenant"], effect.fields["key"])
        return (key[0], f"{key[1]}#{effect.fields['slot']}") if key in self.pools else key

    def life_at(self, key: Key, n: int) -> Life | None:
        """The grant that had not been ended after effect n; of several the first."""
        if key in self.crowded:
            return next((life for life in self.by_raw[key] if life.holds(n)), None)
        place = bisect_right(self._begun.get(key, ()), n) - 1
        if place < 0:
            return None
        life = self.by_key[key][place]
        return life if n < life.ended else None

    def lives_between(self, key: Key, first: int, last: int) -> Iterator[Life]:
        """The grants that held at some effect from first to last."""
        if key in self.crowded:
            yield from (life for life in self.by_raw[key] if life.holds_between(first, last))
            return
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
        deadline_ms = self.session_deadline_ms((life.key[0], life.session_at(n)), n)
        if life.signs:
            deadline_ms = min(deadline_ms, self.progress_deadline_ms(life, n))
        return deadline_ms if life.claimed <= n else min(deadline_ms, life.began_ms + CLAIM_WINDOW_MS)

    def progress_deadline_ms(self, life: Life, n: int) -> float:
        """When the lease ends if no progress is told, as it was after effect n."""
        place = bisect_right(life.signs, (n, NEVER)) - 1
        return life.signs[place][1] if place >= 0 else NEVER

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
        return any(first <= n <= last and self._free_at(key, n) for n in moments)

    def _free_at(self, key: Key, n: int) -> bool:
        if key in self.crowded:
            return all(self.over(life, n) for life in self.by_raw[key] if life.holds(n))
        held = self.life_at(key, n)
        return held is None or self.over(held, n)

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
            tenants.setdefault((life.raw[1], life.token), set()).add(life.key[0])
        return tenants

    @cached_property
    def by_name(self) -> dict[str, list[Life]]:
        """Lives by the one name of their guard among all tenants'."""
        return {named(*key): lives for key, lives in self.by_guard.items()}

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
        """Acquires that were told a lease, with the lease; of a set once for each."""
        return [(call, lease) for call in self.answered("acquire") for lease in leases_told(call)]

    @cached_property
    def releases(self) -> dict[tuple[Key, int], CallRecord]:
        """By key and token: the release of it that was acknowledged first; of readers none."""
        first: dict[tuple[Key, int], CallRecord] = {}
        for call in self.answered("release"):
            if call.answer.get("status") == "released" and "token" in call.asked:
                place = (called_key(call), call.asked["token"])
                if any(life.mode == "shared" for life in self.lives_of(*place)):
                    continue
                if place not in first or call.returned_at < first[place].returned_at:
                    first[place] = call
        return first

    def released_before(self, call: CallRecord, token: int) -> CallRecord | None:
        """The call that was told that it had released that token of the key before this call was made."""
        by = self.releases.get((refused_key(call), token))
        return by if by is not None and by.returned_at < call.invoked_at else None
