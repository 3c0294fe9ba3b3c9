"""The queues of keys, followed along the log.

Events name only the owner of a waiter. Where two waiters of one owner stand in one queue, it may not be known
which of them left; the queue is then ``unsure`` until it is empty, and nothing is said of it.
"""

from collections.abc import Iterator

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.reading import ENDINGS, Findings, Key, Wrong, grants_told, key_of
from tenure_chaos.history import Effect

Waiter = tuple[str, str]
"""(owner, request_id)"""


class Queues:
    """``served`` counts the grants to waiters."""

    def __init__(self) -> None:
        self.queues: dict[Key, list[Waiter]] = {}
        self.unsure: set[Key] = set()
        self.served = 0
        self.out_of_order: list[Wrong] = []

    def apply(self, n: int, effect: Effect) -> None:
        """Follow one effect."""
        for event in effect.events:
            key, kind = key_of(event), event["kind"]
            if kind == "queue_joined":
                waiter = (event["owner"], effect.fields["request_id"])
                self.queues.setdefault(key, []).append(waiter)
            elif kind == "queue_left":
                self._left(effect, key, event["owner"])
            elif kind == "granted":
                self._granted(n, effect, key, event["owner"], event["token"])

    def _left(self, effect: Effect, key: Key, owner: str) -> None:
        queue = self.queues.get(key, [])
        own = (owner, effect.fields.get("request_id", ""))
        same = [waiter for waiter in queue if waiter[0] == owner]
        if effect.command == "Abandon" and own in queue:
            queue.remove(own)
        elif same:
            queue.remove(same[0])
            if len(same) > 1:
                self.unsure.add(key)
        self._tidy(key)

    def _granted(self, n: int, effect: Effect, key: Key, owner: str, token: int) -> None:
        queue = self.queues.get(key, [])
        told = [grant["lease"] for grant in grants_told(effect) if grant["lease"]["token"] == token]
        own = (owner, effect.fields.get("request_id", ""))
        direct = effect.command == "Acquire" and bool(told) and own not in queue
        if direct and queue and key not in self.unsure:
            self.out_of_order.append(
                Wrong(f"effect {n} grants {key[1]} to {owner}, while {queue[0][0]} waits for it", key)
            )
        if direct:
            return
        self.served += 1
        at = next((place for place, waiter in enumerate(queue) if waiter[0] == owner), None)
        if at != 0 and key not in self.unsure:
            first = f"{queue[0][0]} is first" if queue else "nobody waits"
            self.out_of_order.append(Wrong(f"effect {n} grants {key[1]} to {owner}, but {first}", key))
        if at is not None:
            del queue[at]
        self._tidy(key)

    def _tidy(self, key: Key) -> None:
        if not self.queues.get(key):
            self.queues.pop(key, None)
            self.unsure.discard(key)


def waiters_are_served_in_order(facts: Facts) -> Findings:
    """20: a key goes to who has waited for it longest, and past nobody who waits."""
    queues = Queues()
    for n, effect in enumerate(facts.effects):
        if effect.events:
            queues.apply(n, effect)
    yield from queues.out_of_order
    return queues.served


def nobody_waits_for_a_free_key(facts: Facts) -> Findings:
    """20: no waiter is stuck. When a key comes free, who waits for it is granted it in the same entry, unless
    a grace period runs; and nobody joins a queue for a free key.
    """
    queues = Queues()
    looked = 0
    in_grace: set[Key] = set()
    for n, effect in enumerate(facts.effects):
        if not effect.events:
            continue
        queues.apply(n, effect)
        for key in _touched(effect):
            life = facts.life_at(key, n)
            if life is not None:
                in_grace.discard(key)
                continue
            in_grace |= {key for ended in _ended_by(facts, effect) if ended.key == key and ended.grace_ms}
            if key in queues.queues and key not in queues.unsure and key not in in_grace:
                looked += 1
                first = queues.queues[key][0]
                yield Wrong(f"after effect {n} {key[1]} is free, and {first[0]} waits ({first[1]})", key)
            elif key in queues.queues:
                looked += 1
    return looked + queues.served


def _touched(effect: Effect) -> Iterator[Key]:
    kinds = ENDINGS | {"queue_joined", "granted"}
    yield from dict.fromkeys(key_of(event) for event in effect.events if event["kind"] in kinds)


def _ended_by(facts: Facts, effect: Effect) -> Iterator[Life]:
    for event in effect.events:
        if event["kind"] in ("expired", "broken"):
            life = facts.life(key_of(event), event["token"])
            if life is not None:
                yield life


def queues_at(facts: Facts, n: int) -> dict[Key, list[Waiter]] | None:
    """The queues after effect n; None if it is not known who waits."""
    queues = Queues()
    for number, effect in enumerate(facts.effects[: n + 1]):
        if effect.events:
            queues.apply(number, effect)
    return None if queues.unsure else queues.queues
