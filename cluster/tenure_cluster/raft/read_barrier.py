"""Quorum confirmation before a linearizable read.

A leader may have been replaced without knowing. So a read first notes the leader's commit index, and waits
until a majority has answered a message that was sent after the read had begun: had there been a newer
leader by then, one of that majority would have known it, and would have answered with the higher term. When
the commit index that was noted has been applied here, the local state is at least as new as everything
completed before the read began.

Messages are numbered by one counter for all peers, so a round is a single number: it is complete as soon as
a majority (this node included) has answered that number or a later one. All reads that begin before a
round's messages leave share it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

Settle = Callable[[Exception | None], None]


class _Round(NamedTuple):
    number: int
    commit_index: int
    settles: list[Settle]


def quorum_number(answered: Mapping[str, int], voters: int) -> int:
    """The greatest number that a majority of `voters` has answered; this node, in no need of answering,
    counts too."""
    needed = voters // 2
    if needed == 0:
        return 1 << 62
    ranked = sorted(answered.values(), reverse=True)
    return ranked[needed - 1] if len(ranked) >= needed else 0


class ReadBarrier:
    """Reads that wait for a quorum, then for their index to be applied. Pure: it neither sends nor waits."""

    def __init__(self) -> None:
        self._new: list[Settle] = []
        self._rounds: deque[_Round] = deque()
        self._confirmed: deque[_Round] = deque()

    def __len__(self) -> int:
        return (
            len(self._new)
            + sum(len(r.settles) for r in self._rounds)
            + sum(len(r.settles) for r in self._confirmed)
        )

    def add(self, settle: Settle) -> None:
        """A read begins; it joins the next round. `settle` is called once: with None, or with the error."""
        self._new.append(settle)

    @property
    def idle(self) -> bool:
        return not (self._new or self._rounds or self._confirmed)

    @property
    def wants_round(self) -> bool:
        return bool(self._new)

    def begin_round(self, number: int, commit_index: int) -> None:
        """All waiting reads are confirmed by answers to messages of `number` or later, all of them not yet
        sent."""
        if self._new:
            self._rounds.append(_Round(number, commit_index, self._new))
            self._new = []

    def advance(self, answered_number: int, applied_index: int) -> None:
        """A majority has answered `answered_number`; `applied_index` has been applied."""
        while self._rounds and self._rounds[0].number <= answered_number:
            self._confirmed.append(self._rounds.popleft())
        while self._confirmed and self._confirmed[0].commit_index <= applied_index:
            for settle in self._confirmed.popleft().settles:
                settle(None)

    def fail(self, error: Exception) -> None:
        """Leadership is lost or the node stops: no waiting read can be confirmed any more."""
        settles = self._new + [s for r in (*self._rounds, *self._confirmed) for s in r.settles]
        self._new = []
        self._rounds.clear()
        self._confirmed.clear()
        for settle in settles:
            settle(error)
