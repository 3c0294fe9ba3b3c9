"""Operations that came in one frame of a stream: asked together, answered one by one as they come.

The short path: no task and no future per operation. On the leader each is proposed at once, so all of a frame
that change something stand in one entry of the log, as those of a batch do; on a follower they are one
question to the leader. Whatever ends without an answer goes on alone, as any other call does.

What the results of an entry mean for a frame is worked out together when the round of consensus is over: the
clocks are read once for all of a frame, on the way in and on the way out.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from tenure_cluster.lease.results import Waiting
from tenure_cluster.raft import Outcome as RaftOutcome
from tenure_cluster.raft import Raft
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.answers import answer
from tenure_cluster.service.asks import READS, Answer, Ask, NoAnswer, Outcome
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.office import Office
from tenure_cluster.service.polls import Polls
from tenure_cluster.service.proposals import Proposer
from tenure_cluster.service.quotas import Quotas
from tenure_cluster.service.under_way import Charge

Answered: TypeAlias = Callable[[int, Answer], None]
"""Told the place of an operation in its frame, and its answer; once for each."""


class Frame:
    """The operations of one frame that have no answer yet."""

    __slots__ = (
        "_alone",
        "_answered",
        "_forget",
        "_persist",
        "counted",
        "left",
        "number",
        "over",
        "results",
        "tasks",
    )

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
        self.results: list[tuple[Sequence[int], RaftOutcome | Problem]] = []
        """What has become of the proposals of some places in this round, not looked at yet."""
        self.counted: dict[int, Charge] = {}
        """What those are charged with that are under way, on account of a quota."""
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


class FrameOffice:
    """What a leader does with the operations of a frame; see Office for those that come alone."""

    def __init__(
        self,
        raft: Raft,
        proposer: Proposer,
        office: Office,
        polls: Polls,
        admission: Admission,
        quotas: Quotas,
    ) -> None:
        self._raft = raft
        self._proposer = proposer
        self._office = office
        self._polls = polls
        self._admission = admission
        self._quotas = quotas

    def execute(self, frame: Frame) -> None:
        """Admit, propose, answer; what only looks is read beside."""
        places: list[int] = []
        asks: list[Ask] = []
        pending, refusal_of, quotas = self._proposer.pending, self._admission.refusal, self._quotas
        bounded: dict[str, bool] = {}
        for place, ask in list(frame.left.items()):
            ask.sent = True
            tenant = ask.tenant
            if tenant not in bounded:
                bounded[tenant] = quotas.bounds(tenant)
            if ask.operation in READS:
                self._office.execute(ask, partial(frame.settle, place))
            elif (
                refusal := (bounded[tenant] and quotas.refusal(ask))
                or refusal_of(ask.operation, pending + len(asks))
            ) is not None:
                frame.settle(place, refusal)
            else:
                if bounded[tenant] and (charge := quotas.begin(ask)) is not None:
                    frame.counted[place] = charge
                places.append(place)
                asks.append(ask)
        if asks:
            self._proposer.ask_all(asks, partial(self._applied, frame, places))

    def _applied(self, frame: Frame, places: list[int], which: range, outcome: RaftOutcome | Problem) -> None:
        if not frame.results:
            asyncio.get_running_loop().call_soon(self._answer, frame)
        frame.results.append((places[which.start : which.stop], outcome))

    def _answer(self, frame: Frame) -> None:
        results, frame.results = frame.results, []
        now_ms = self._raft.now_ms()
        for places, outcome in results:
            for place, settled in zip(places, self._proposer.settled(len(places), outcome), strict=True):
                if frame.counted and (counted := frame.counted.pop(place, None)) is not None:
                    self._quotas.end(counted)
                ask = frame.left.get(place)
                if ask is None:
                    continue  # its time was over, and it goes on alone
                kind = type(settled)
                if kind is Waiting:
                    self._polls.settle(ask, settled, partial(frame.settle, place))
                elif kind is Problem or kind is NoAnswer:
                    frame.settle(place, cast("Problem | NoAnswer", settled))
                else:
                    frame.settle(place, answer(settled, ask, now_ms))
