"""Watching: events from this node's replica to those who asked for them, on whichever node they did.

The event log (watch_log.py) holds what happened; a subscription is a place in it:

    behind   its place lies before what has been told to all; it is brought forward slice by slice, as fast as
             its connection takes it
    live     it has been told everything, and is told of new events together with all others
    ahead    it was told more elsewhere than this node has applied; it waits for that

New events are told at most once in a span, all that have come meanwhile. Of each event only the prefixes
that somebody watches are looked up, not the watchers, and what is told to the watchers of one prefix is
encoded once. Many watchers are written to in turns of the loop, and the more time that takes, the longer is
the span: watching has its share of the node and no more.

Nobody waits for a watcher. What its connection does not take stays in the log, and the watcher falls behind;
once the horizon of the log has overtaken it, it is told of the gap and ends. So a slow watcher costs what its
connection buffers, and the log costs the same whoever reads it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tenure_cluster.lease.events import TOLD_TO_ALL, Event
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.watch_log import EventLog
from tenure_cluster.service.watch_messages import ALIVE, Encoder, Notice

SPAN_S: Final = 0.01
"""New events are told at most once in this time."""

REST: Final = 4
"""Telling rests for at least so many times as long as it took."""

SLICE: Final = 256
"""Most events that are looked at in one go, for all or for one that is behind."""

BEAT_S: Final = 5.0
"""Period in which a watcher hears something, if only how far it is or that the node is alive."""

AHEAD_S: Final = 10.0
"""How long a node waits to reach the place of a watcher that was told more elsewhere."""

WATCHERS_PER_TURN: Final = 250
"""Most watchers that are written to in one go."""


class Subscription:
    """One watcher's place in the log. ``write`` takes what the encoder made and says whether the connection
    takes more; it is called on after it said no only to end. ``ended`` is called once, after the last write,
    unless the watcher closes first."""

    __slots__ = (
        "_turn",
        "ahead_since",
        "blocked",
        "due",
        "encoder",
        "ended",
        "heard",
        "live",
        "marked",
        "over",
        "place",
        "prefix",
        "tenant",
        "watches",
        "write",
    )

    def __init__(
        self,
        watches: "Watches",
        tenant: str,
        prefix: str,
        place: int,
        encoder: Encoder,
        write: Callable[[Any], bool],
        ended: Callable[[], None],
    ) -> None:
        self.watches = watches
        self.tenant = tenant
        self.prefix = prefix
        self.place = place
        """Revision up to which it has been told everything; while it is live, that of all who are."""
        self.encoder = encoder
        self.write = write
        self.ended = ended
        self.live = False
        self.blocked = False
        self.over = False
        self.ahead_since: float | None = None
        self.due: tuple[Any, int] | None = None
        """What it will be written in one of the next turns, and the revision up to which it is told then."""
        self.marked = -1
        """Greatest revision that it has heard of."""
        self.heard = True
        """Whether it has heard anything since the last beat."""
        self._turn: asyncio.Handle | None = None

    def tell(self, encoded: Any) -> bool:
        """Write; false if its connection takes no more."""
        self.heard = True
        if not self.write(encoded):
            self.blocked = True
        return not self.blocked

    def resume(self) -> None:
        """Its connection takes more again."""
        if self.blocked and not self.over:
            self.blocked = False
            if not self.live and self.ahead_since is None:
                self.soon()

    def soon(self) -> None:
        """Bring it forward, soon."""
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if not (self.over or self.live or self.blocked):
            self.watches.advance(self)

    def close(self) -> None:
        """It does not listen any more. Harmless if it has ended."""
        if not self.over:
            self.over = True
            if self._turn is not None:
                self._turn.cancel()
            self.watches.forget(self)


class _Audience:
    """Those who watch one tenant."""

    __slots__ = ("ahead", "lengths", "members", "prefixes", "told")

    def __init__(self, told: int) -> None:
        self.told = told
        """Revision up to which all who are live have been told everything."""
        self.members = 0
        self.prefixes: dict[str, dict[Subscription, None]] = {}
        """Those who are live, by what they watch."""
        self.lengths: dict[int, int] = {}
        """Lengths of these prefixes, and how many have each."""
        self.ahead: dict[Subscription, None] = {}

    def join(self, subscription: Subscription) -> None:
        group = self.prefixes.get(subscription.prefix)
        if group is None:
            group = self.prefixes[subscription.prefix] = {}
            length = len(subscription.prefix)
            self.lengths[length] = self.lengths.get(length, 0) + 1
        group[subscription] = None
        subscription.live = True

    def leave(self, subscription: Subscription) -> None:
        group = self.prefixes[subscription.prefix]
        del group[subscription]
        subscription.live = False
        if not group:
            del self.prefixes[subscription.prefix]
            length = len(subscription.prefix)
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]

    def live(self) -> list[Subscription]:
        return [subscription for group in self.prefixes.values() for subscription in group]

    def matched(self, events: Sequence[Event]) -> dict[str, list[Event]]:
        """The events by the prefixes that are watched."""
        prefixes, lengths = self.prefixes, tuple(self.lengths)
        matched: dict[str, list[Event]] = {}
        for event in events:
            if event.kind in TOLD_TO_ALL:
                for prefix in prefixes:
                    matched.setdefault(prefix, []).append(event)
                continue
            key = event.key
            for length in lengths:
                prefix = key[:length]
                if prefix in prefixes and len(prefix) == length:
                    matched.setdefault(prefix, []).append(event)
        return matched


class Watches:
    """All subscriptions of this node."""

    def __init__(self, log: EventLog, watchers_max: int, nodes: Callable[[], Sequence[str]]) -> None:
        """``nodes`` gives the URLs at which a watcher can go on when this node stops."""
        self.log = log
        self._watchers_max = watchers_max
        self._nodes = nodes
        self._audiences: dict[str, _Audience] = {}
        self._all: dict[Subscription, None] = {}
        self._flush: asyncio.Handle | None = None
        self._flush_from = 0.0
        """When the next flush may begin."""
        self._busy_s = 0.0
        """How long telling has taken since the last one."""
        self._due: deque[Subscription] = deque()
        """Those with something due, in the order in which they are written to."""
        self._beat: asyncio.TimerHandle | None = None
        self._leader: tuple[str, int] | None = None
        self.closing = False
        self.gaps = 0
        """How many watchers have been told of a gap."""

    def __len__(self) -> int:
        return len(self._all)

    def of(self, tenant: str) -> int:
        """How many watches of the tenant are open."""
        audience = self._audiences.get(tenant)
        return audience.members if audience is not None else 0

    def subscribe(
        self,
        tenant: str,
        prefix: str,
        after: int | None,
        encoder: Encoder,
        write: Callable[[Any], bool],
        ended: Callable[[], None],
    ) -> Subscription | Problem:
        """Tell of every event whose key begins with ``prefix``, after a revision or from now on. The first
        write comes later than this returns.

        Refused are a revision that lies below the horizon, and more watchers than the node takes.
        """
        if self.closing:
            return Problem("shutting_down", "this node is shutting down", {}, RETRY_S)
        if len(self._all) >= self._watchers_max:
            return Problem(
                "overloaded",
                f"{len(self._all)} watches are open on this node, the most it takes",
                {},
                5 * RETRY_S,
            )
        horizon, head = self.log.horizon(tenant), self.log.head(tenant)
        if after is not None and after < horizon:
            return Problem(
                "compacted",
                f"this node remembers what happened after revision {horizon}, not after {after}: list the "
                "leases, and watch from the revision of that list",
                {"revision": horizon},
            )
        place = head if after is None else after
        subscription = Subscription(self, tenant, prefix, place, encoder, write, ended)
        audience = self._audiences.get(tenant)
        if audience is None:
            audience = self._audiences[tenant] = _Audience(head)
        audience.members += 1
        self._all[subscription] = None
        if after is not None:
            subscription.marked = after
        subscription.soon()
        if self._beat is None:
            self._beat = asyncio.get_running_loop().call_later(BEAT_S, self._take_beat)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """A subscription is over."""
        del self._all[subscription]
        audience = self._audiences[subscription.tenant]
        if subscription.live:
            audience.leave(subscription)
        audience.ahead.pop(subscription, None)
        audience.members -= 1
        if not audience.members:
            del self._audiences[subscription.tenant]

    # What happens

    def on_events(self, events: Sequence[Event]) -> None:
        """An entry was applied. Takes notes alone."""
        self.log.extend(events)
        if self._audiences:
            self._flush_soon()

    def on_restored(self, revisions: Mapping[str, int]) -> None:
        """The replica's state was replaced by a snapshot, in which the tenants have these revisions."""
        self.log.restored(revisions)
        if self._audiences:
            self._flush_soon()

    def leader_changed(self, leader: str | None, term: int, url: str | None) -> None:
        """This node follows another leader, leads itself, or knows of none."""
        if leader is None or (leader, term) == self._leader:
            return
        self._leader = (leader, term)
        notice = Notice("leader_changed", None, {"leader": leader, "leader_url": url, "term": term})
        encoded: dict[Encoder, Any] = {}

        def tell(subscription: Subscription) -> None:
            if not subscription.blocked:
                self._tell(subscription, notice, encoded)

        self._in_turns(tell)

    def close(self) -> None:
        """End every watch: its client is told where to go on."""
        self.closing = True
        for handle in (self._flush, self._beat):
            if handle is not None:
                handle.cancel()
        for audience in list(self._audiences.values()):
            for subscription in audience.live():
                subscription.place = audience.told
                self._pay(audience, subscription)
        members = {"nodes": list(self._nodes())}
        for subscription in list(self._all):
            self._end(subscription, Notice("shutting_down", subscription.place, members))

    # Telling all who are live

    def _flush_soon(self) -> None:
        if self._flush is None:
            loop = asyncio.get_running_loop()
            self._flush = (
                loop.call_soon(self._take_flush)
                if self._flush_from <= loop.time()
                else loop.call_at(self._flush_from, self._take_flush)
            )

    def _take_flush(self) -> None:
        """Tell a slice of what is new to all, so many a turn."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if not self._due:
            for tenant, audience in list(self._audiences.items()):
                self._prepare(tenant, audience)
        for _ in range(min(WATCHERS_PER_TURN, len(self._due))):
            subscription = self._due.popleft()
            if subscription.due is not None and not subscription.over:
                self._pay(self._audiences[subscription.tenant], subscription)
        self._flush = None
        self._busy_s += loop.time() - began_s
        if self._due:
            self._flush = loop.call_soon(self._take_flush)
            return
        more = any(audience.told < self.log.head(tenant) for tenant, audience in self._audiences.items())
        self._flush_from = loop.time() + max(0.0 if more else SPAN_S, REST * self._busy_s)
        self._busy_s = 0.0
        if more:
            self._flush_soon()

    def _prepare(self, tenant: str, audience: _Audience) -> None:
        """Make what is new due to those whom it concerns."""
        if audience.told < (horizon := self.log.horizon(tenant)):
            for subscription in audience.live():
                subscription.place = audience.told
                self._gap(subscription, horizon)
            audience.told = horizon
        elif audience.told > self.log.head(tenant):
            # Revisions went back, which a log can't do: the cluster was put back to an earlier state.
            for subscription in audience.live():
                subscription.place = audience.told
                self._gap(subscription, self.log.head(tenant))
            audience.told = self.log.head(tenant)
        events = self.log.after(tenant, audience.told, SLICE)
        audience.told += len(events)
        for prefix, matched in audience.matched(events).items():
            encoded: dict[Encoder, Any] = {}
            for subscription in list(audience.prefixes[prefix]):
                data = encoded.get(subscription.encoder)
                if data is None:
                    data = encoded[subscription.encoder] = subscription.encoder.events(matched)
                subscription.due = (data, audience.told)
                subscription.marked = matched[-1].revision
                self._due.append(subscription)
        for subscription in list(audience.ahead):
            if subscription.place <= audience.told:
                del audience.ahead[subscription]
                subscription.ahead_since = None
                subscription.soon()

    def _pay(self, audience: _Audience, subscription: Subscription) -> None:
        """Write what is due."""
        if subscription.due is None:
            return
        (data, told), subscription.due = subscription.due, None
        if not subscription.tell(data):
            audience.leave(subscription)
            subscription.place = told

    # Bringing one forward

    def advance(self, subscription: Subscription) -> None:
        """Bring one that is behind forward by a slice."""
        tenant = subscription.tenant
        audience = self._audiences[tenant]
        if subscription.marked < 0:
            subscription.marked = subscription.place
            if not self._tell(subscription, Notice("bookmark", subscription.place), {}):
                return
        if subscription.ahead_since is not None:
            return
        if subscription.place > audience.told:
            self._wait(audience, subscription)
            return
        if subscription.place < (horizon := self.log.horizon(tenant)):
            self._gap(subscription, horizon)
            return
        events = self.log.after(tenant, subscription.place, min(SLICE, audience.told - subscription.place))
        subscription.place += len(events)
        prefix = subscription.prefix
        matched = [e for e in events if e.key.startswith(prefix) or e.kind in TOLD_TO_ALL]
        if matched:
            subscription.marked = matched[-1].revision
            if not subscription.tell(subscription.encoder.events(matched)):
                return
        if subscription.place < audience.told:
            subscription.soon()
            return
        if subscription.marked < subscription.place:
            subscription.marked = subscription.place
            if not self._tell(subscription, Notice("bookmark", subscription.place), {}):
                return
        audience.join(subscription)

    def _wait(self, audience: _Audience, subscription: Subscription) -> None:
        """The watcher knows more than this node has told anybody yet."""
        subscription.ahead_since = asyncio.get_running_loop().time()
        audience.ahead[subscription] = None
        self._flush_soon()

    # Everything else

    def _gap(self, subscription: Subscription, revision: int) -> None:
        self.gaps += 1
        self._end(subscription, Notice("gap", revision, {"last": subscription.place}))

    def _end(self, subscription: Subscription, notice: Notice) -> None:
        subscription.tell(subscription.encoder.notice(notice))
        subscription.close()
        subscription.ended()

    def _take_beat(self) -> None:
        """Tell everybody how far it is, or that the node is alive."""
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(BEAT_S, self._take_beat) if self._all else None
        too_long_s = loop.time() - AHEAD_S
        marks: dict[int, dict[Encoder, Any]] = {}
        signs: dict[Encoder, Any] = {}

        def tell(subscription: Subscription) -> None:
            heard, subscription.heard = subscription.heard, False
            if subscription.ahead_since is not None and subscription.ahead_since <= too_long_s:
                self._gap(subscription, self.log.head(subscription.tenant))
                return
            if subscription.blocked:
                return
            told = self._audiences[subscription.tenant].told
            if subscription.live and subscription.marked < told:
                subscription.marked = told
                self._tell(subscription, Notice("bookmark", told), marks.setdefault(told, {}))
            elif not heard:
                self._tell(subscription, ALIVE, signs)

        self._in_turns(tell)

    def _tell(self, subscription: Subscription, notice: Notice, encoded: dict[Encoder, Any]) -> bool:
        """Tell a notice, encoded once for all who are told it. False if the watcher takes no more."""
        self._pay(self._audiences[subscription.tenant], subscription)
        if subscription.blocked:
            return False
        data = encoded.get(subscription.encoder)
        if data is None:
            data = encoded[subscription.encoder] = subscription.encoder.notice(notice)
        taken = subscription.tell(data)
        if not taken and subscription.live:
            audience = self._audiences[subscription.tenant]
            audience.leave(subscription)
            subscription.place = audience.told
        return taken

    def _in_turns(self, act: Callable[[Subscription], None]) -> None:
        """Do something for every subscription, so many a turn of the loop."""
        waiting = list(self._all)
        loop = asyncio.get_running_loop()

        def turn() -> None:
            for subscription in waiting[-WATCHERS_PER_TURN:]:
                if not subscription.over:
                    act(subscription)
            del waiting[-WATCHERS_PER_TURN:]
            if waiting and not self.closing:
                loop.call_soon(turn)

        turn()
