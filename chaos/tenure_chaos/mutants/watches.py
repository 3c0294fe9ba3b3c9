"""Mutants of watches: what those who follow are told."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_LOG = "tenure_cluster.service.watch_log:EventLog"

GAP_HIDDEN = Mutant(
    "watch that hides a gap",
    "who resumes further back than a node remembers is told what there is, and not that something is missing",
    (
        Edit(
            "tenure_cluster.service.watch:Watches.subscribe",
            "if after is not None and after < horizon:",
            "after = None if after is None else max(after, horizon)\n"
            "    if after is not None and after < horizon:",
        ),
    ),
    profiles.NODES_LEFT_BEHIND,
)

TOLD_AGAIN = Mutant(
    "watch that repeats an event",
    "who resumes after an event is told that event once more",
    (
        Edit(
            f"{_LOG}.after",
            "start = revision - history.horizon",
            "start = max(0, revision - 1 - history.horizon)",
        ),
    ),
)

MUTANTS = (
    GAP_HIDDEN,
    TOLD_AGAIN,
)
