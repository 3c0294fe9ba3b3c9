"""Operations that came in one frame of a stream: asked together, answered one by one as they come.

The short path: no task and no future per operation. On the leader each is executed at once, so all of a frame
that change something stand in one entry of the log, as those of a batch do; on a follower they are one
question to the leader. Whatever ends without an answer goes on alone, as any other call does.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from tenure_cluster.service.asks import Answer, Ask, NoAnswer, Outcome

Answered: TypeAlias = Callable[[int, Answer], None]
"""Told the place of an operation in its frame, and its answer; once for each."""


class Frame:
    """The operations of one frame that have no answer yet."""

    __slots__ = ("_alone", "_answered", "_forget", "_persist", "left", "number", "over", "tasks")

    def __init__(
        self,
        asks: dict[int, Ask],
        answered: Answered,
        persist: Callable[[Ask, NoAnswer], "asyncio.Task[Answer]"],
        forget: Callable[["Frame"], None],
    ) -> None:
        """``persist`` goes on with an operation that an attempt left without an answer; ``forget`` is called
        when the first attempts are over."""
        self.left = asks
        """By their places: those whose first attempt is not over."""
        self.tasks: dict[int, asyncio.Task[Answer]] = {}
        """Those that go on alone."""
        self._alone: dict[int, Ask] = {}
        self.over = False
        """Whether nobody wants the answers any more."""
        self.number: int | None = None
        """That of the question to the leader, if it was one."""
        self._answered = answered
        self._persist = persist
        self._forget = forget

    def settle(self, place: int, outcome: Outcome) -> None:
        """An attempt is over."""
        ask = self.left.pop(place, None)
        if ask is None or self.over:
            return
        if not self.left:
            self._forget(self)
        if isinstance(outcome, NoAnswer):
            self._go_on(place, ask, outcome)
        else:
            self._answered(place, outcome)

    def waiting(self) -> list[Ask]:
        """All that have no answer yet."""
        return [*self.left.values(), *self._alone.values()]

    def settle_all(self, places: list[int], outcomes: list[Outcome]) -> None:
        for number, place in enumerate(places):
            self.settle(place, outcomes[number] if len(outcomes) == len(places) else outcomes[0])

    def _go_on(self, place: int, ask: Ask, outcome: NoAnswer) -> None:
        task = self.tasks[place] = self._persist(ask, outcome)
        self._alone[place] = ask

        def ended(task: "asyncio.Task[Answer]") -> None:
            del self.tasks[place], self._alone[place]
            if not task.cancelled() and not self.over:
                self._answered(place, task.result())

        task.add_done_callback(ended)

    # What service.deadlines.Deadlines needs of something that can be overdue.

    def done(self) -> bool:
        return not self.left

    def set_result(self, result: list[Outcome], /) -> None:
        """Time is over for the first attempts."""
        for place in list(self.left):
            self.settle(place, result[0])
