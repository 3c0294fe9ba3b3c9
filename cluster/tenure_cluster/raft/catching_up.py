"""Whether a process has come as far as the cluster was when it began to take part.

A node that starts, with all that it had or with nothing, hears from its leader long before it has what the
leader has. Until it has applied what was committed when it first heard so, it is not as good a node as the
others: what it is asked at its own replica is old, and a second one that is stopped meanwhile may be missed.
"""


class CatchingUp:
    """Of one process; once it has caught up, that stays."""

    def __init__(self) -> None:
        self.goal: int | None = None
        """The commit index that a leader told first."""
        self._done = False

    def heard(self, commit_index: int) -> None:
        """A leader has told how far the cluster is."""
        if self.goal is None:
            self.goal = commit_index

    def done(self, applied_index: int, *, serving: bool) -> bool:
        """`serving`: this node leads, and so has everything."""
        if not self._done:
            self._done = serving or (self.goal is not None and applied_index >= self.goal)
        return self._done
