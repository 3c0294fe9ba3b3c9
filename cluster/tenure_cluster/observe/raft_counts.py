"""What consensus tells while it runs: elections, syncs, snapshots. Belongs to the event loop."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from tenure_cluster.observe.series import SNAPSHOT_BOUNDS_S, SYNC_BOUNDS_S, Histogram

SnapshotNews: TypeAlias = Literal["begun", "made", "installed"]


class RaftCounts:
    """Told by hooks; read at a scrape."""

    def __init__(self, monotonic: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self.elections_started = self.elections_won = self.leader_changes = 0
        self.snapshots_made = self.snapshots_installed = 0
        self.snapshot_wall_ms = 0
        """When the newest snapshot was made or installed; 0 if none was since the start."""
        self.sync_s = Histogram(SYNC_BOUNDS_S)
        self.snapshot_s = Histogram(SNAPSHOT_BOUNDS_S)
        self._monotonic = monotonic
        self._wall_ms = wall_ms
        self._begun_s: float | None = None
        self._asked_in = self._won_in = 0
        self._leader_id: str | None = None

    def on_role(self, role: str, leader_id: str | None, term: int) -> None:
        """Role, leader or term have changed. A term counts once, however often it is told."""
        if role != "follower" and term > self._asked_in:
            self._asked_in = term
            self.elections_started += 1
        if role == "leader" and term > self._won_in:
            self._won_in = term
            self.elections_won += 1
        if leader_id is not None and leader_id != self._leader_id:
            self._leader_id = leader_id
            self.leader_changes += 1

    def on_sync(self, seconds: float) -> None:
        """A sync has ended."""
        self.sync_s.observe(seconds)

    def on_snapshot(self, news: SnapshotNews) -> None:
        """A snapshot was begun or made here, or one from the leader was installed."""
        if news == "begun":
            self._begun_s = self._monotonic()
            return
        self.snapshot_wall_ms = self._wall_ms()
        if news == "installed":
            self.snapshots_installed += 1
            return
        self.snapshots_made += 1
        if self._begun_s is not None:
            self.snapshot_s.observe(self._monotonic() - self._begun_s)
            self._begun_s = None
