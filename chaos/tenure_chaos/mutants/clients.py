"""Mutants of the client: what it believes, repeats, and says of what it does not know."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

DEADLINE_FROM_THE_RECEIPT = Mutant(
    "deadline counted from the receipt in the client",
    "a client counts what remains of its lease from when the answer came, not from when it asked",
    (
        Edit(
            "tenure._protocol:Call.received",
            "return self._success(attempt, headers, body)",
            "return Answer(self._success(attempt, headers, body).value, now)",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
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
    profiles.NO_LEADER,
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
    profiles.COMMITS_REPEATED,
)


RATE_BOUND_IGNORED = Mutant(
    "rate bound ignored by the client",
    "a handle is believed in as if no clock could be slower or faster than another",
    (
        Edit(
            "tenure._validity:Validity.extended",
            "remaining_s * (1 - self.rho) / (1 + self.rho) - self.margin_s",
            "remaining_s - self.margin_s",
        ),
    ),
    profiles.CLOCKS_APART,
)

MUTANTS = (
    DEADLINE_FROM_THE_RECEIPT,
    DOUBT_FORGOTTEN_BY_THE_CLIENT,
    REPEATED_WHAT_MUST_NOT_BE,
    RATE_BOUND_IGNORED,
)
