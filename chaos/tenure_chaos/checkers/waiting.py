"""Who waits for a key is served, and in order."""

from collections.abc import Iterator
from typing import Final

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.queues import Queues, Served, Waiter
from tenure_chaos.checkers.reading import ENDINGS, NEVER, Findings, Key, Wrong, key_of, place_of
from tenure_chaos.history import Effect

WAITER_SILENCE_MS: Final = 50_000
"""A waiter that has not polled for two slices of 25 s leaves the queue."""

Request = tuple[str, str, str]
"""(tenant, session or empty, request_id)"""


def waiters_are_served_in_order(facts: Facts) -> Findings:
    """20: a key goes to who has waited for it longest, and past nobody who waits: no writer starves while
    readers come. Only a set of keys is passed, and only for its first ten seconds: then it does not starve
    either.
    """
    looked = 0
    for served in facts.served:
        looked += not served.direct
        if not served.in_turn:
            first = f"{served.first.owner} is first" if served.first is not None else "nobody waits"
            yield Wrong(
                f"effect {served.n} grants {served.key[1]} to {served.owner}, but {first}", served.key
            )
    return looked


def only_waiters_that_live_are_served(facts: Facts) -> Findings:
    """20: a waiter is granted a key only while it lives: it has polled, and its session has not expired."""
    looked = 0
    polled_ms: dict[Request, int] = {}
    served: dict[int, list[Served]] = {}
    for one in facts.served:
        served.setdefault(one.n, []).append(one)
    for n, effect in enumerate(facts.effects):
        if effect.result == "Waiting":
            fields = effect.fields
            polled_ms[fields["tenant"], fields["session_id"] or "", fields["request_id"]] = facts.now_ms[n]
        for one in served.get(n, ()):
            waiter, now_ms = one.waiter, facts.now_ms[n]
            if waiter is None or not one.sure:
                continue
            looked += 1
            session = (one.key[0], waiter.session_id)
            silent_since = polled_ms.get((*session, waiter.request_id), now_ms)
            ends_ms = facts.session_deadline_ms(session, n) if waiter.session_id else NEVER
            if now_ms - silent_since >= WAITER_SILENCE_MS:
                yield Wrong(
                    f"effect {n} grants {one.key[1]} to {waiter.request_id}, silent since {silent_since}",
                    one.key,
                )
            elif ends_ms <= now_ms:
                yield Wrong(
                    f"effect {n} at {now_ms} grants {one.key[1]} to {waiter.request_id} of a session that "
                    f"had expired at {ends_ms}",
                    one.key,
                )
    return looked


def nobody_waits_for_a_free_key(facts: Facts) -> Findings:
    """20: no waiter is stuck. When what it waits for comes free, and there is room beside the holders, who
    waits is granted it in the same entry, unless a grace period runs or somebody is first; and nobody joins a
    queue for what is free.
    """
    queues, held = Queues(), _Held()
    looked = 0
    in_grace: set[Key] = set()
    for n, effect in enumerate(facts.effects):
        if not effect.events:
            continue
        queues.apply(n, effect)
        held.apply(effect)
        if effect.command != "Handover":
            in_grace -= {key_of(event) for event in effect.events if event["kind"] == "granted"}
        in_grace |= {ended.raw for ended in _ended_by(facts, effect) if ended.grace_ms}
        candidates: dict[Waiter, Key] = {}
        for key in _touched(effect):
            for waiter in queues.queues.get(key, ()):
                candidates.setdefault(waiter, key)
        for waiter, key in candidates.items():
            looked += 1
            keys = [(key[0], name) for name in waiter.keys or (key[1],)]
            if (
                queues.unsure.isdisjoint(keys)
                and in_grace.isdisjoint(keys)
                and _may_have(queues, held, waiter, keys)
            ):
                free = ", ".join(name for _, name in keys)
                yield Wrong(
                    f"after effect {n} {free} is free, and {waiter.owner} waits ({waiter.request_id})", key
                )
    return looked + sum(not served.direct for served in facts.served)


def _may_have(queues: Queues, held: "_Held", waiter: Waiter, keys: list[Key]) -> bool:
    """Whether nothing is in a waiter's way. Of a session that would pass a set nothing is said: it must not
    if it waits for something else as well.
    """
    for key in keys:
        queue = queues.queues.get(key, [])
        passes = waiter not in queue or queue.index(waiter) > 0
        if passes and (waiter.session_id or queues.in_the_way(waiter, key) is not None):
            return False
        if not held.room(key, waiter.mode, waiter.slots):
            return False
    return True


class _Held:
    """Who holds what along the log, by the events alone."""

    def __init__(self) -> None:
        self._modes: dict[Key, dict[Key, str]] = {}
        """By key and place: the mode."""

    def apply(self, effect: Effect) -> None:
        for event in effect.events:
            if event["kind"] == "granted":
                held = self._modes.setdefault(key_of(event), {})
                held[place_of(event)] = event.get("mode") or "exclusive"
            elif event["kind"] in ENDINGS:
                self._modes.get(key_of(event), {}).pop(place_of(event), None)

    def room(self, key: Key, mode: str, slots: int) -> bool:
        held = self._modes.get(key)
        if not held:
            return True
        if mode == "exclusive" or any(other != mode for other in held.values()):
            return False
        return mode == "shared" or len(held) < slots


def _touched(effect: Effect) -> Iterator[Key]:
    kinds = ENDINGS | {"queue_joined", "queue_left", "granted", "resized"}
    yield from dict.fromkeys(key_of(event) for event in effect.events if event["kind"] in kinds)


def _ended_by(facts: Facts, effect: Effect) -> Iterator[Life]:
    for event in effect.events:
        if event["kind"] in ("expired", "broken"):
            life = facts.life(place_of(event), event["token"])
            if life is not None:
                yield life


def queues_at(facts: Facts, n: int) -> dict[Key, list[Waiter]] | None:
    """The queues after effect n; None if it is not known who waits."""
    queues = Queues()
    for number, effect in enumerate(facts.effects[: n + 1]):
        if effect.events:
            queues.apply(number, effect)
    return None if queues.unsure else queues.queues
