"""What each strike of a run was seen to do: to processes, to offices, and to those who asked.

Everything that is seen in the time of a strike is put down to it; strikes that overlap share it. A strike
without any effect that can be seen from outside has none in the list: a clock that runs within its bound is
not to be noticed.
"""

import signal
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tenure_chaos.history import CallRecord, History
from tenure_chaos.live.analysis import Cost, Span, costs
from tenure_chaos.live.cluster import EXIT_DAMAGED, EXIT_FATAL, EXIT_REMOVED, EXIT_START

LATER_S: Final = 3.0
"""Effects may come so long after the end of a strike, unless another one has begun."""
QUICK: Final = frozenset(("close_session", "commit", "open_session", "release", "renew", "renew_session"))
"""Calls that the log answers and that wait for nobody."""
SLOWER: Final = 2.0
SLOWER_BY_S: Final = 0.03
STILL_S: Final = 1.2
"""A process that has said nothing for longer stood still: nodes say something twice a second."""
MOST: Final = 0.7
MANY: Final = 10
SLOWEST: Final = 0.95

ENDS: Final = {
    0: "stopped in good order",
    -signal.SIGTERM: "stopped in good order",
    -signal.SIGKILL: "killed",
    EXIT_START: "refused to start",
    EXIT_DAMAGED: "refused to start: damaged",
    EXIT_REMOVED: "ended, as it was removed",
    EXIT_FATAL: "stopped itself",
}
"""What the code of a process's end says."""


@dataclass(frozen=True)
class Told:
    """A run, as far as effects are looked for."""

    history: History
    endings: Sequence[tuple[float, str, int]] = ()
    """(when, node, code)"""
    snapshots: Sequence[tuple[float, str]] = ()
    """(when, node)"""


@dataclass(frozen=True)
class Struck:
    """One strike, what it cost, and what was seen of it."""

    cost: Cost
    effects: tuple[str, ...]


def effects(told: Told) -> list[Struck]:
    """Of every strike, in the order in which they began."""
    history = told.history
    spans = _spans(history)
    seer = _Seer(told, spans)
    found = []
    for cost, span in zip(costs(history), spans, strict=True):
        on = Span(cost.fault.began_at, min(cost.fault.ended_at, history.duration_s))
        found.append(Struck(cost, tuple(seer.seen(on, span))))
    return found


def _spans(history: History) -> list[Span]:
    begins = [fault.began_at for fault in history.faults]
    found = []
    for place, fault in enumerate(history.faults):
        ended_at = min(fault.ended_at, history.duration_s)
        following = begins[place + 1] if place + 1 < len(begins) else float("inf")
        found.append(Span(fault.began_at, max(ended_at, min(ended_at + LATER_S, following))))
    return found


class _Seer:
    """Looks for effects within spans."""

    def __init__(self, told: Told, strikes: Sequence[Span]) -> None:
        self._told = told
        calls = [call for call in told.history.calls if call.returned_at <= told.history.duration_s]
        self._calls = sorted(calls, key=lambda call: call.returned_at)
        self._returned = [call.returned_at for call in self._calls]
        struck = _merged(strikes)
        self._usual_s = self._slowest([call for call in self._calls if not _meets(call, struck)])
        self._stills = [*_stills_of_nodes(told), *_stills_of_clients(self._calls)]

    def seen(self, on: Span, span: Span) -> Iterable[str]:
        """``on``: while the strike was; ``span``: with what came a little later."""
        first, last = bisect_left(self._returned, span.began_at), bisect_right(self._returned, span.ended_at)
        calls = self._calls[first:last]
        yield from self._ends(span)
        yield from self._offices(span)
        yield from self._snapshots(span)
        yield from self._still(on)
        yield from _lost(calls)
        again = sum(call.doubtful for call in calls)
        if again:
            yield f"{again} calls sent again in doubt"
        yield from self._slow(calls)

    def _ends(self, span: Span) -> Iterable[str]:
        by_end: dict[str, list[str]] = {}
        for at, node, code in self._told.endings:
            if span.began_at <= at <= span.ended_at:
                by_end.setdefault(ENDS.get(code, f"ended with {code}"), []).append(node)
        return [f"{' '.join(nodes)} {end}" for end, nodes in by_end.items()]

    def _offices(self, span: Span) -> Iterable[str]:
        elected = self._told.history.elected
        taken = [office for office in elected if span.began_at <= office.at <= span.ended_at]
        if taken:
            last = max(taken, key=lambda office: office.term)
            times = f" after {len(taken)} elections" if len(taken) > 1 else ""
            yield f"{last.node} became leader{times}"

    def _snapshots(self, span: Span) -> Iterable[str]:
        nodes = sorted({node for at, node in self._told.snapshots if span.began_at <= at <= span.ended_at})
        if nodes:
            yield f"new snapshots at {' '.join(nodes)}"

    def _still(self, on: Span) -> Iterable[str]:
        """Who said nothing for most of a strike's time; a client's programs may all wait for a while."""
        times: dict[str, float] = {}
        for who, still in self._stills:
            both = min(still.ended_at, on.ended_at) - max(still.began_at, on.began_at)
            times[who] = times.get(who, 0.0) + max(both, 0.0)
        for who, seconds in times.items():
            if seconds > max(STILL_S, MOST * on.seconds):
                yield f"{who} stood still for {seconds:.1f} s"

    def _slow(self, calls: Sequence[CallRecord]) -> Iterable[str]:
        slowest_s = self._slowest(calls)
        if slowest_s > max(SLOWER * self._usual_s, self._usual_s + SLOWER_BY_S):
            yield f"answers took up to {slowest_s:.2f} s ({self._usual_s:.2f} without a fault)"

    def _slowest(self, calls: Iterable[CallRecord]) -> float:
        """Longer than most of them took."""
        took = sorted(
            call.returned_at - call.invoked_at
            for call in calls
            if call.name in QUICK and call.outcome in ("ok", "refused")
        )
        return took[int(len(took) * SLOWEST)] if took else 0.0


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The same times without overlaps, in order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: span.began_at):
        if found and span.began_at <= found[-1].ended_at:
            found[-1] = Span(found[-1].began_at, max(found[-1].ended_at, span.ended_at))
        else:
            found.append(span)
    return found


def _meets(call: CallRecord, spans: Sequence[Span]) -> bool:
    """Whether it was under way in one of these, which are in order and don't overlap."""
    place = bisect_left(spans, call.invoked_at, key=lambda span: span.ended_at)
    return place < len(spans) and spans[place].began_at <= call.returned_at


def _lost(calls: Sequence[CallRecord]) -> Iterable[str]:
    unknown = sum(call.outcome == "unknown" for call in calls)
    if unknown:
        yield f"{unknown} calls of unknown outcome"
    codes = Counter(call.code for call in calls if call.outcome == "unavailable")
    if codes:
        why = ", ".join(f"{count} {code or 'not sent'}" for code, count in codes.most_common(3))
        yield f"{codes.total()} calls not executed ({why})"


def _stills_of_nodes(told: Told) -> list[tuple[str, Span]]:
    """When a process that ran said nothing."""
    said: dict[tuple[str, int], list[float]] = {}
    for state in told.history.raft:
        said.setdefault((state.node, state.incarnation), []).append(state.at)
    return [(node, span) for (node, _), times in said.items() for span in _gaps(times)]


def _stills_of_clients(calls: Sequence[CallRecord]) -> list[tuple[str, Span]]:
    """When nobody in a client's process had an answer, while others had many."""
    times: dict[str, list[float]] = {}
    for call in calls:
        times.setdefault(call.client.partition(".")[0], []).append(call.returned_at)
    found = []
    for client, mine in times.items():
        others = sorted(at for name, theirs in times.items() if name != client for at in theirs)
        for span in _gaps(mine):
            if bisect_left(others, span.ended_at) - bisect_right(others, span.began_at) >= MANY:
                found.append((client, span))
    return found


def _gaps(times: Sequence[float]) -> list[Span]:
    return [Span(a, b) for a, b in pairwise(times) if b - a > STILL_S]
