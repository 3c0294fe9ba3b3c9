"""Who leads, as this node knows it, whether it can be asked, and waiting for that to change.

A node that is cut off still knows the leader that it last followed, and may do so for long: nobody tells it
otherwise, and with pre-vote it does not even become a candidate. So a leader counts only while there is a
link to it.
"""

import asyncio
from collections.abc import Callable

from tenure_cluster.raft import Raft, Role


class Leadership:
    """The last word of consensus on role, leader, term and links; those who wait for news are woken by it."""

    def __init__(self, raft: Raft, waiters_max: int) -> None:
        self._raft = raft
        self._waiters_max = waiters_max
        self._waiters: dict[asyncio.Future[None], None] = {}
        """In the order in which they came, which is the order in which they are woken."""
        self.listeners: list[Callable[[], None]] = []
        """Called after every change."""
        self.linked: set[str] = set()
        """Peers that this node has a link to."""
        self.role: Role = "follower"
        self.leader_id: str | None = None
        self.term = 0

    def on_role(self, role: Role, leader_id: str | None, term: int) -> None:
        if (role, leader_id, term) == (self.role, self.leader_id, self.term):
            return
        self.role, self.leader_id, self.term = role, leader_id, term
        self._wake()
        for listener in self.listeners:
            listener()

    def on_link(self, peer: str, up: bool) -> None:
        if up:
            self.linked.add(peer)
            self._wake()
        else:
            self.linked.discard(peer)

    def refresh(self) -> None:
        """Ask consensus itself, in case a change was not told."""
        status = self._raft.status()
        self.linked = set(status.connected)
        self.on_role(status.role, status.leader_id, status.term)

    @property
    def reachable(self) -> str | None:
        """The leader if it is another node and there is a link to it."""
        leader_id = self._raft.leader_id
        return leader_id if leader_id in self.linked else None

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def crowded(self) -> bool:
        """Whether as many calls wait for a leader as may."""
        return len(self._waiters) >= self._waiters_max

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change that may help, or after `timeout_s`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout_s, lambda: None if waiter.done() else waiter.set_result(None))
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)
