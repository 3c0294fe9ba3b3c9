"""What a leader does with an operation, its own callers' or one that a follower handed on.

Driven by callbacks: a proposal is made before `execute` returns, so that operations enter the log in the
order in which they were asked, and an abandon can't overtake its acquire.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tenure_cluster.raft import Raft
from tenure_cluster.service.admission import Admission
from tenure_cluster.service.answers import answer
from tenure_cluster.service.asks import READS, Ask, Done, NoAnswer, Outcome
from tenure_cluster.service.changing_members import change_members
from tenure_cluster.service.cluster_requests import CLUSTER_OPERATIONS
from tenure_cluster.service.credential_requests import CREDENTIAL_OPERATIONS
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.handing_over import transfer
from tenure_cluster.service.polls import Polls
from tenure_cluster.service.proposals import Proposer, Settled
from tenure_cluster.service.quotas import Quotas
from tenure_cluster.service.reader import Reader


class Office:
    """The leader's side of every operation."""

    def __init__(
        self,
        raft: Raft,
        proposer: Proposer,
        reader: Reader,
        polls: Polls,
        admission: Admission,
        quotas: Quotas,
        forbids: Callable[[Ask], Problem | None] = lambda ask: None,
    ) -> None:
        """`forbids` says of an operation on credentials or members why it must not be, by what this leader
        knows beside the log."""
        self._raft = raft
        self._forbids = forbids
        self._proposer = proposer
        self._reader = reader
        self._polls = polls
        self._admission = admission
        self._quotas = quotas

    def execute(self, ask: Ask, done: Done) -> None:
        """Admit, propose, answer. `done` is called once."""
        operation = ask.operation
        if operation in CLUSTER_OPERATIONS:
            if (forbidden := self._forbids(ask)) is not None:
                done(forbidden)
                return
            (transfer if operation == "transfer" else change_members)(self._raft, ask, done)
            return
        if (exceeded := self._quotas.refusal(ask)) is not None:
            done(exceeded)
            return
        if operation in READS:
            refusal = self._admission.refusal(operation, self._reader.waiting)
            if refusal is None:
                self._reader.read(ask, done)
            else:
                done(refusal)
            return
        refusal = self._admission.refusal(operation, self._proposer.pending)
        if refusal is None and operation in CREDENTIAL_OPERATIONS:
            refusal = self._forbids(ask)
        if refusal is not None:
            done(refusal)
        elif operation != "acquire":
            self._propose(ask, lambda settled: self._answer(ask, settled, done))
        elif ask.wait_ms > 0:
            self._polls.start(ask, done, self._propose)
        else:
            self._propose(ask, lambda settled: self._polls.settle(ask, settled, done))

    def _propose(self, ask: Ask, then: Callable[[Settled], None]) -> None:
        quotas = self._quotas
        charge = quotas.begin(ask)
        if charge is None:
            self._proposer.ask(ask, then)
            return

        def settled(outcome: Settled) -> None:
            quotas.end(charge)
            then(outcome)

        self._proposer.ask(ask, settled)

    def _answer(self, ask: Ask, settled: Settled, done: Done) -> None:
        if isinstance(settled, Problem | NoAnswer):
            done(settled)
        else:
            done(answer(settled, ask, self._raft.now_ms()))

    def execute_all(self, asks: Sequence[Ask], done: Callable[[list[Outcome]], None]) -> None:
        """A batch: proposed together in order, answered together in order.

        What only looks is read when everything else of the batch has been answered, so it sees the batch's
        effects.
        """
        outcomes: list[Outcome] = [NoAnswer.NOT_EXECUTED] * len(asks)
        looks = [position for position, ask in enumerate(asks) if ask.operation in READS]
        changes = [position for position, ask in enumerate(asks) if ask.operation not in READS]

        def execute(positions: list[int], then: Callable[[], None]) -> None:
            missing = len(positions)
            if not missing:
                then()

            def settle(position: int, outcome: Outcome) -> None:
                nonlocal missing
                outcomes[position] = outcome
                missing -= 1
                if missing == 0:
                    then()

            for position in positions:
                self.execute(asks[position], partial(settle, position))

        execute(changes, lambda: execute(looks, lambda: done(outcomes)))
