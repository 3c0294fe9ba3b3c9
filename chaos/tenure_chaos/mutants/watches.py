"""Mutants of watches: what those who follow are told."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_WATCHES = "tenure_cluster.service.watch:Watches"
_LOG = "tenure_cluster.service.watch_log:EventLog"

GAP_HIDDEN = Mutant(
    "watch that hides a gap",
    "who resumes further back than a node remembers is told what there is, and not that something is missing",
    (
        Edit(
            f"{_WATCHES}.subscribe",
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

SKIPPED_AFTER_A_CHANGE = Mutant(
    "event skipped after a leader change",
    "who watches is not told of the first event under another leader",
    (
        Edit(
            f"{_WATCHES}.leader_changed",
            "self._leader = (leader, term)",
            "self._leader = (leader, term)\n    self._skips = True",
        ),
        Edit(
            f"{_WATCHES}.on_events",
            "self.log.extend(events)",
            "self.log.extend(events)\n"
            "    if self.__dict__.pop('_skips', False):\n"
            "        for tenant, audience in self._audiences.items():\n"
            "            if audience.told == self.log.head(tenant) - len(events):\n"
            "                audience.told += 1",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

MUTANTS = (
    SKIPPED_AFTER_A_CHANGE,
    GAP_HIDDEN,
    TOLD_AGAIN,
)
