"""The queues of keys, followed along the log.

Events name only the owner of a waiter. Where two waiters of one owner stand in one queue, it may not be known
which of them left; the queue is then ``unsure`` until it is empty, and nothing is said of it.

Who waits for a set of keys stands in the queue of each. For a while it lets others pass; from then on nobody
may, who comes after it.
"""

from typing import NamedTuple

from tenure_chaos.checkers.reading import SET_PATIENCE_MS, Key, grants_told, key_of, place_of
from tenure_chaos.history import Effect


class Waiter(NamedTuple):
    """A queued acquire. ``session_id`` is empty if it has a private one, which then has the first lease's
    id.
    """

    owner: str
    request_id: str
    session_id: str
    lease_id: str
    ttl_ms: int
    grace_ms: int
    keys: tuple[str, ...] = ()
    lease_ids: tuple[str, ...] = ()
    mode: str = "exclusive"
    slots: int = 1
    joined_ms: int = 0
    progress_ms: int = 0

    def lease_of(self, key: str) -> str:
        """The id of the lease that it gets on a key."""
        return self.lease_ids[self.keys.index(key)] if key in self.keys else self.lease_id

    def steps_aside(self, now_ms: int) -> bool:
        return len(self.keys) > 1 and now_ms < self.joined_ms + SET_PATIENCE_MS


class Served(NamedTuple):
    """A grant to a waiter, or past the waiters. ``waiter`` is None if nobody of that owner waited; ``first``
    is the first in the queue whom nobody may pass, if that is not the waiter itself; ``given`` in a handover.
    """

    n: int
    key: Key
    place: Key
    token: int
    owner: str
    waiter: Waiter | None
    first: Waiter | None
    sure: bool
    direct: bool
    given: bool = False

    @property
    def in_turn(self) -> bool:
        if not self.sure or self.given:
            return True
        return self.first is None and (self.direct or self.waiter is not None)


class Queues:
    """``apply`` follows one effect and answers the grants in it."""

    def __init__(self) -> None:
        self.queues: dict[Key, list[Waiter]] = {}
        self.unsure: set[Key] = set()
        self.now_ms = 0

    def apply(self, n: int, effect: Effect) -> list[Served]:
        served = []
        self.now_ms = max(self.now_ms, effect.at_ms)
        for event in effect.events:
            key, kind = key_of(event), event["kind"]
            if kind == "queue_joined":
                self.queues.setdefault(key, []).append(_waiter(effect, self.now_ms))
            elif kind == "queue_left":
                self._left(effect, key, event["owner"])
            elif kind == "granted":
                served.append(self._granted(n, effect, event))
            elif kind == "resized":
                self._resized(key, int(event["detail"]))
        return served

    def in_the_way(self, waiter: Waiter, key: Key) -> Waiter | None:
        """The first that stands before a waiter in a queue and may not be passed."""
        queue = self.queues.get(key, [])
        before = queue[: queue.index(waiter)] if waiter in queue else queue
        return next((other for other in before if not other.steps_aside(self.now_ms)), None)

    def _resized(self, key: Key, slots: int) -> None:
        """Who waits for this pool alone waits from now on for one of that size."""
        self.queues[key] = [
            waiter._replace(slots=slots) if len(waiter.keys) < 2 else waiter
            for waiter in self.queues.get(key, ())
        ]
        self._tidy(key)

    def _left(self, effect: Effect, key: Key, owner: str) -> None:
        queue = self.queues.get(key, [])
        own = [waiter for waiter in queue if effect.command == "Abandon" and _is_of(waiter, owner, effect)]
        same = [waiter for waiter in queue if waiter.owner == owner]
        if own or same:
            queue.remove((own or same)[0])
        if not own and len(same) > 1:
            self.unsure.add(key)
        self._tidy(key)

    def _granted(self, n: int, effect: Effect, event: dict[str, object]) -> Served:
        key, owner = key_of(event), str(event["owner"])
        queue = self.queues.get(key, [])
        sure = key not in self.unsure
        told = any(
            (grant["lease"]["key"], grant["lease"]["owner"], grant["lease"]["token"])
            == (event["key"], owner, event["token"])
            for grant in grants_told(effect)
        )
        given = told and effect.command == "Handover"
        direct = told and effect.command == "Acquire"
        direct = direct and not any(_is_of(waiter, owner, effect) for waiter in queue)
        if given:
            successor = effect.fields["to_session_id"]
            waiter = next((waiter for waiter in queue if waiter.session_id == successor), None)
        elif direct:
            waiter = None
        else:
            waiter = next((waiter for waiter in queue if waiter.owner == owner), None)
        before = queue[: queue.index(waiter)] if waiter is not None else queue
        first = next((other for other in before if not other.steps_aside(self.now_ms)), None)
        if waiter is not None:
            queue.remove(waiter)
            self._tidy(key)
        token = event["token"]
        assert isinstance(token, int)
        if given:
            waiter = None  # The lease is of the handover, not of what it asked for.
        return Served(n, key, place_of(event), token, owner, waiter, first, sure, direct, given)

    def _tidy(self, key: Key) -> None:
        if not self.queues.get(key):
            self.queues.pop(key, None)
            self.unsure.discard(key)


def _waiter(effect: Effect, now_ms: int) -> Waiter:
    fields = effect.fields
    return Waiter(
        fields["owner"],
        fields["request_id"],
        fields["session_id"] or "",
        fields["lease_ids"][0],
        fields["ttl_ms"] or 0,
        fields["grace_ms"],
        tuple(fields["keys"]),
        tuple(fields["lease_ids"]),
        fields["mode"],
        fields["slots"],
        now_ms,
        fields.get("progress_ms", 0),
    )


def _is_of(waiter: Waiter, owner: str, effect: Effect) -> bool:
    fields = effect.fields
    request = (owner, fields.get("request_id"), fields.get("session_id") or "")
    return (waiter.owner, waiter.request_id, waiter.session_id) == request
