"""Who blocks whom: what the service says of a key's holders and waiters, and of the chain that they make."""

from collections.abc import Iterator
from typing import Any

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.queues import Queues, Waiter
from tenure_chaos.checkers.reading import NEVER, Findings, Key, Wrong, called_key
from tenure_chaos.checkers.waiting import WAITER_SILENCE_MS
from tenure_chaos.history import CallRecord, Effect

CHAIN_MAX = 32


def who_blocks_whom_is_true(facts: Facts) -> Findings:
    """14: what is told of a key's holders and waiters, and the chain from who is in its way to who waits for
    nobody, was so at one and the same moment of the read.
    """
    if not facts.effects:
        return 0
    waiting = [(window, call) for call in facts.answered("queue") if (window := _window(facts, call))]
    looked = len(waiting)
    waiting.sort(key=lambda item: item[0])
    moment = _Moment(facts)
    open_: list[tuple[int, CallRecord, str]] = []
    place = 0
    for n in range(-1, len(facts.effects)):
        if n >= 0:
            moment.apply(n, facts.effects[n])
        while place < len(waiting) and waiting[place][0][0] <= n:
            (_, last), call = waiting[place]
            open_.append((last, call, ""))
            place += 1
        left = []
        for last, call, _ in open_:
            what = moment.untrue(call)
            if what and last > n:
                left.append((last, call, what))
            elif what:
                key = called_key(call)
                yield Wrong(f"call {call.number} was told of {key[1]}: {what}, at no time of the call", key)
        open_ = left
        if place == len(waiting) and not open_:
            break
    return looked


def _window(facts: Facts, call: CallRecord) -> tuple[int, int] | None:
    """Of a stale read the moment that it names."""
    if "chain" not in call.answer:
        return None
    if call.asked.get("consistency") != "stale":
        return facts.window(call)
    index = call.answer.get("applied_index")
    at = facts.last_of_index(index) if index else None
    return (at, at) if at is not None and at <= facts.window(call)[1] else None


class _Moment:
    """The state after an effect."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._queues = Queues()
        self._polled_ms: dict[tuple[str, str, str], int] = {}
        self._n = -1

    def apply(self, n: int, effect: Effect) -> None:
        self._n = n
        if effect.events:
            self._queues.apply(n, effect)
        if effect.result == "Waiting":
            fields = effect.fields
            request = (fields["tenant"], fields["session_id"] or "", fields["request_id"])
            self._polled_ms[request] = self._facts.now_ms[n]

    def untrue(self, call: CallRecord) -> str:
        """What of the answer is not so now; empty if all of it is."""
        key, answer = called_key(call), call.answer
        if key in self._queues.unsure:
            return ""
        told = sorted(holder["token"] for holder in answer["holders"])
        held = sorted(life.token for life in self._holders(key))
        if told != held:
            return f"tokens {told} hold, and not {held}"
        owners = [waiter["owner"] for waiter in answer["waiters"]]
        return self._waiters(key, owners) or self._chain(key, answer["chain"])

    def _waiters(self, key: Key, owners: list[str]) -> str:
        """What is untrue of the waiters told. One who may count no more was told or not; of several of one
        owner that is any of them, so all numbers of told owners that can be accounted for are kept.
        """
        accounted = {0}
        for waiter in self._queues.queues.get(key, ()):
            here = {count + 1 for count in accounted if owners[count : count + 1] == [waiter.owner]}
            if not self._waits(key, waiter):
                here |= accounted
            if not here:
                return f"{waiter.owner} does not wait"
            accounted = here
        return "" if len(owners) in accounted else f"{owners[max(accounted)]} waits"

    def _holders(self, key: Key) -> list[Life]:
        facts, n = self._facts, self._n
        if key not in facts.crowded:
            life = facts.life_at(key, n)
            return [life] if life is not None and not facts.over(life, n) else []
        return [life for life in facts.by_raw[key] if life.holds(n) and not facts.over(life, n)]

    def _waits(self, key: Key, waiter: Waiter) -> bool:
        """Whether it surely still counts: it has polled, and its session lives."""
        facts, n = self._facts, self._n
        now_ms = facts.now_ms[n]
        polled_ms = self._polled_ms.get((key[0], waiter.session_id, waiter.request_id), now_ms)
        session = (key[0], waiter.session_id)
        ends_ms = facts.session_deadline_ms(session, n) if waiter.session_id else NEVER
        return now_ms - polled_ms < WAITER_SILENCE_MS and ends_ms > now_ms

    def _chain(self, key: Key, chain: list[dict[str, Any]]) -> str:
        if not chain:
            return f"nobody is in the way of {key[1]}" if self._holders(key) else ""
        keys = [(key[0], link["key"]) for link in chain]
        if any(other in self._queues.unsure for other in keys):
            return ""
        if keys[0] != key:
            return f"the chain begins at {keys[0][1]}"
        for number, link in enumerate(chain):
            following = keys[number + 1][1] if number + 1 < len(chain) else None
            what = self._link(keys[number], link, following, {other[1] for other in keys[: number + 1]})
            if what:
                return what
        return ""

    def _link(self, key: Key, link: dict[str, Any], following: str | None, seen: set[str]) -> str:
        said = f"{link['owner']} is {link['state']} at {key[1]}"
        if link["state"] == "waiting":
            if self._holders(key):
                return said
            first = [waiter for waiter in self._queues.queues.get(key, ()) if waiter.owner == link["owner"]]
            if not first or (following is not None and following not in first[0].keys):
                return f"{said}, and waits for {following}"
            return ""
        held = [life for life in self._holders(key) if life.token == link["token"]]
        held = [life for life in held if life.owner == link["owner"]]
        if not held:
            return f"{said} with token {link['token']}"
        if held[0].rests(self._n) != (link["state"] == "parked"):
            return said
        session = held[0].session_at(self._n)
        if not session:
            return ""
        wanted = dict(self._wanted(key[0], session))
        if following is not None:
            return "" if following in wanted else f"{said}, and waits for {following}"
        # Which key keeps a set waiting is not known here: another may be free for it, though it is held.
        alone = [name for name, is_set in wanted.items() if not is_set and name not in seen]
        unseen = [name for name in alone if self._holders((key[0], name))]
        return f"{said}, and waits for nobody, but it does for {unseen[0]}" if unseen else ""

    def _wanted(self, tenant: str, session_id: str) -> Iterator[tuple[str, bool]]:
        """The keys that a session surely waits for, and whether only together with others."""
        for key, queue in self._queues.queues.items():
            for waiter in queue:
                if key[0] == tenant and waiter.session_id == session_id and self._waits(key, waiter):
                    yield key[1], len(waiter.keys) > 1
