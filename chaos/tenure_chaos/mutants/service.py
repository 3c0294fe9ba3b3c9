"""Mutants of the service: reads, retries, and what a caller is told."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

READ_WITHOUT_BARRIER = Mutant(
    "stale read without a barrier",
    "a node that takes itself for the leader answers reads without asking a majority",
    (
        Edit(
            "tenure_cluster.service.reader:Reader._barrier",
            "await self._raft.read_barrier()",
            "if not self._raft.serving():\n            return NoAnswer.NOT_EXECUTED",
        ),
    ),
    profiles.LEADERS_LEFT_BEHIND,
)

DOUBT_FORGOTTEN_BY_THE_SERVICE = Mutant(
    "doubt forgotten by the service",
    "a call whose first attempt may have been executed is refused as not executed",
    (
        Edit(
            "tenure_cluster.service.attempts:Attempts.persist",
            "call.unsure = call.unsure or ask.operation not in READS",
            "pass",
        ),
    ),
    profiles.NO_LEADER,
)

ANSWERED_BEFORE_THE_CLAIM = Mutant(
    "waiter told before the claim",
    "a waiter whose turn has come is told so before its claim is in the log",
    (
        Edit(
            "tenure_cluster.service.polls:Polls._look",
            "poll.claiming = True",
            "from tenure_cluster.lease.results import Granted\n"
            "        self.settle(poll.ask, Granted(grants, False, True),"
            " lambda outcome: self._finish(poll, outcome))\n"
            "        return",
        ),
    ),
)

MUTANTS = (
    READ_WITHOUT_BARRIER,
    DOUBT_FORGOTTEN_BY_THE_SERVICE,
    ANSWERED_BEFORE_THE_CLAIM,
)
