"""The queues of keys, followed along the log.

Events name only the owner of a waiter. Where two waiters of one owner stand in one queue, it may not be known
which of them left; the queue is then ``unsure`` until it is empty, and nothing is said of it.
"""

from typing import NamedTuple

from tenure_chaos.checkers.reading import Key, grants_told, key_of
from tenure_chaos.history import Effect


class Waiter(NamedTuple):
    """A queued acquire. ``session_id`` is empty if it has a private one, which then has the lease's id."""

    owner: str
    request_id: str
    session_id: str
    lease_id: str
    ttl_ms: int
    grace_ms: int


class Served(NamedTuple):
    """A grant to a waiter, or past the waiters. ``waiter`` is None if nobody of that owner waited; ``first``
    is who was first in the queue.
    """

    n: int
    key: Key
    token: int
    owner: str
    waiter: Waiter | None
    first: Waiter | None
    sure: bool
    direct: bool

    @property
    def in_turn(self) -> bool:
        if not self.sure:
            return True
        return self.first is None if self.direct else self.waiter is not None and self.waiter == self.first


class Queues:
    """``apply`` follows one effect and answers the grants in it."""

    def __init__(self) -> None:
        self.queues: dict[Key, list[Waiter]] = {}
        self.unsure: set[Key] = set()

    def apply(self, n: int, effect: Effect) -> list[Served]:
        served = []
        for event in effect.events:
            key, kind = key_of(event), event["kind"]
            if kind == "queue_joined":
                self.queues.setdefault(key, []).append(_waiter(effect))
            elif kind == "queue_left":
                self._left(effect, key, event["owner"])
            elif kind == "granted":
                served.append(self._granted(n, effect, key, event["owner"], event["token"]))
        return served

    def _left(self, effect: Effect, key: Key, owner: str) -> None:
        queue = self.queues.get(key, [])
        own = [waiter for waiter in queue if effect.command == "Abandon" and _is_of(waiter, owner, effect)]
        same = [waiter for waiter in queue if waiter.owner == owner]
        if own or same:
            queue.remove((own or same)[0])
        if not own and len(same) > 1:
            self.unsure.add(key)
        self._tidy(key)

    def _granted(self, n: int, effect: Effect, key: Key, owner: str, token: int) -> Served:
        queue = self.queues.get(key, [])
        first = queue[0] if queue else None
        sure = key not in self.unsure
        told = any(grant["lease"]["token"] == token for grant in grants_told(effect))
        direct = effect.command == "Acquire" and told
        direct = direct and not any(_is_of(waiter, owner, effect) for waiter in queue)
        waiter = None if direct else next((waiter for waiter in queue if waiter.owner == owner), None)
        if waiter is not None:
            queue.remove(waiter)
            self._tidy(key)
        return Served(n, key, token, owner, waiter, first, sure, direct)

    def _tidy(self, key: Key) -> None:
        if not self.queues.get(key):
            self.queues.pop(key, None)
            self.unsure.discard(key)


def _waiter(effect: Effect) -> Waiter:
    fields = effect.fields
    return Waiter(
        fields["owner"],
        fields["request_id"],
        fields["session_id"] or "",
        fields["lease_ids"][0],
        fields["ttl_ms"] or 0,
        fields["grace_ms"],
    )


def _is_of(waiter: Waiter, owner: str, effect: Effect) -> bool:
    fields = effect.fields
    request = (owner, fields.get("request_id"), fields.get("session_id") or "")
    return (waiter.owner, waiter.request_id, waiter.session_id) == request
