"""What a run's history says about effects: who led when, how much was answered, and what each fault cost."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tenure_chaos.history import CallRecord, Fault, History

SILENCE_S: Final = 1.0
"""A stretch without any answer from the log that is longer than this counts as unavailable."""

THROUGH_THE_LOG: Final = frozenset(
    (
        "abandon",
        "acquire",
        "batch",
        "close_session",
        "commit",
        "open_session",
        "release",
        "renew",
        "renew_session",
    )
)

AFTERMATH_S: Final = 10.0
"""Silence that begins so long after a fault has ended, or while another one is on, is not put down to it."""


@dataclass(frozen=True)
class Span:
    """From when to when, in seconds of the run."""

    began_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        return self.ended_at - self.began_at


@dataclass(frozen=True)
class Cost:
    """What one strike did."""

    fault: Fault
    silent_s: float
    """How long nothing was answered from its beginning until the work went on after its end."""
    recovered_s: float | None
    """From its end to the next answer; None if none came any more."""


def answered_by_the_log(call: CallRecord) -> bool:
    """It was answered by a cluster that works: with what was asked, or with a refusal that has reasons."""
    return call.name in THROUGH_THE_LOG and call.outcome in ("ok", "refused")


def answers(history: History) -> list[float]:
    """When the log answered, in order."""
    return sorted(call.returned_at for call in history.calls if answered_by_the_log(call))


def silences(history: History) -> list[Span]:
    """Stretches without an answer, while there was work."""
    if not history.calls:
        return []
    first = min(call.invoked_at for call in history.calls)
    last = min(history.healed_at, history.duration_s)
    times = [first, *(at for at in answers(history) if first < at < last), last]
    pairs = pairwise(times)
    return [Span(a, b) for a, b in pairs if b - a > SILENCE_S]


def costs(history: History) -> list[Cost]:
    """Of every fault, in the order in which they began. Faults that overlap share what they cost."""
    silent, times = silences(history), answers(history)
    of_none = [span for span in silent if not any(_is_on(fault, span) for fault in history.faults)]
    found = []
    for fault in history.faults:
        ended_at = min(fault.ended_at, history.duration_s)
        mine = [span for span in silent if _is_on(fault, span)]
        mine += [span for span in of_none if 0 <= span.began_at - fault.ended_at < AFTERMATH_S]
        silent_s = sum((span.ended_at - max(span.began_at, fault.began_at) for span in mine), 0.0)
        place = bisect_right(times, ended_at)
        recovered_s = times[place] - ended_at if place < len(times) else None
        found.append(Cost(fault, silent_s, recovered_s))
    return found


def _is_on(fault: Fault, span: Span) -> bool:
    """At some moment of it."""
    return fault.began_at < span.ended_at and span.began_at < fault.ended_at


@dataclass(frozen=True)
class Sum:
    """What all strikes of one kind came to."""

    name: str
    strikes: int
    on_s: float
    silent_s: float
    worst_recovery_s: float | None


def sums(costs_of_all: Sequence[Cost], duration_s: float) -> list[Sum]:
    """By kind of fault, by name."""
    kinds: dict[str, list[Cost]] = {}
    for cost in costs_of_all:
        kinds.setdefault(cost.fault.name, []).append(cost)
    found = []
    for name, group in sorted(kinds.items()):
        recoveries = [cost.recovered_s for cost in group]
        worst = None if None in recoveries else max(value for value in recoveries if value is not None)
        on_s = sum(min(cost.fault.ended_at, duration_s) - cost.fault.began_at for cost in group)
        found.append(Sum(name, len(group), on_s, sum(cost.silent_s for cost in group), worst))
    return found


def outcomes(history: History) -> Counter[str]:
    """How many calls ended how."""
    return Counter(call.outcome for call in history.calls)


def leader_changes(history: History) -> int:
    """How many times another node took office than the first."""
    return max(0, len({(elected.node, elected.term) for elected in history.elected}) - 1)


def rates(history: History, step_s: float) -> list[tuple[int, int, int]]:
    """In each step of time: calls that ended ok, refused, and otherwise."""
    steps = [[0, 0, 0] for _ in range(int(history.duration_s / step_s) + 1)]
    for call in history.calls:
        if call.returned_at <= history.duration_s:
            kind = {"ok": 0, "refused": 1}.get(call.outcome, 2)
            steps[int(call.returned_at / step_s)][kind] += 1
    return [(ok, refused, other) for ok, refused, other in steps]


def role_spans(
    roles: Sequence[tuple[float, str, str, int]], downs: Sequence[tuple[float, str, bool]], until: float
) -> dict[str, list[tuple[Span, str, int]]]:
    """Of each node: when it was leader, follower, candidate or down. ``roles``: (when, node, role, term) of
    every change; ``downs``: (when, node, whether it runs from then on).
    """
    moments: dict[str, list[tuple[float, str, int]]] = {}
    for at, node, role, term in roles:
        moments.setdefault(node, []).append((at, role, term))
    for at, node, runs in downs:
        moments.setdefault(node, []).append((at, "starting" if runs else "down", 0))
    spans: dict[str, list[tuple[Span, str, int]]] = {}
    for node, changes in sorted(moments.items()):
        changes.sort()
        ends = [at for at, _, _ in changes[1:]] + [until]
        spans[node] = [
            (Span(at, end), role, term)
            for (at, role, term), end in zip(changes, ends, strict=True)
            if end > at
        ]
    return spans
