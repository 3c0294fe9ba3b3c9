"""Mutants of the service and of the client: reads, retries, and what a caller is told."""

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
)

DEADLINE_FROM_THE_RECEIPT = Mutant(
    "deadline counted from the receipt in the client",
    "a client counts what remains of its lease from when the answer came, not from when it asked",
    (
        Edit(
            "tenure._protocol:Call.received",
            "return self._success(attempt, body)",
            "return Answer(self._success(attempt, body).value, now)",
        ),
    ),
)

DOUBT_FORGOTTEN_BY_THE_SERVICE = Mutant(
    "doubt forgotten by the service",
    "a call whose first attempt may have been executed is refused as not executed",
    (
        Edit(
            "tenure_cluster.service.lease_service:LeaseService._persist",
            "call.unsure = call.unsure or ask.operation not in READS",
            "pass",
        ),
    ),
)

DOUBT_FORGOTTEN_BY_THE_CLIENT = Mutant(
    "doubt forgotten by the client",
    "a client that gives up says that nothing was executed, though one of its attempts may have been",
    (
        Edit(
            "tenure._protocol:Call._give_up",
            "if self.doubtful:",
            "if False:",
        ),
    ),
)

REPEATED_WHAT_MUST_NOT_BE = Mutant(
    "repetition of what must not be repeated",
    "a client sends a commit without op_id again when its outcome is unknown",
    (
        Edit(
            "tenure._protocol:Call._in_doubt",
            "if not self.request.repeatable:",
            "if False:",
        ),
    ),
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
    DEADLINE_FROM_THE_RECEIPT,
    DOUBT_FORGOTTEN_BY_THE_SERVICE,
    DOUBT_FORGOTTEN_BY_THE_CLIENT,
    REPEATED_WHAT_MUST_NOT_BE,
    ANSWERED_BEFORE_THE_CLAIM,
)
