"""Handing the office of a leader over to a follower, without waiting for an election timeout.

The leader takes nothing new into its log, and so the log stands still: proposals wait in their queue. As soon
as the follower's log ends where the leader's does, and everything in it is committed and applied here, so
that every caller whose command had been appended has its answer, the follower is told to hold an election at
once. It asks for no pre-votes, and its requests for votes say that the leader itself wants this, so nobody
refuses them for the leader's sake (election.py). All of Raft's own rules hold for them as for any other.

If another node leads then, what has waited in the queue is refused as not executed, and its callers ask
there. If not, the leader gives up after an election timeout and goes on with the queue: nothing was lost but
that time. A follower that campaigns later than that is a candidate as any other, whom the others elect or
not.

No lease is shortened by it. What waits keeps the stamp of the moment in which it was asked; the new leader's
clock begins at the last stamp in the log, and so later than this one's by what was stamped and not appended.
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.leadership import Leadership
from tenure_cluster.raft.replication import Mode
from tenure_cluster.raft.types import NotLeader, RaftError

SILENT_PARTS: Final = 2
"""A follower is chosen among those that have answered something sent within so many election timeouts."""


class Transferred(msgspec.Struct, frozen=True):
    """This node's office has ended; `leader_id` leads in `term`. None: nobody has told so yet."""

    leader_id: str | None
    term: int


class TransferFailed(RaftError):
    """The office was not handed over; this node leads on."""


class NoSuchMember(TransferFailed):
    """It was to go to somebody who is not another member."""


Done: TypeAlias = Callable[[Transferred | RaftError], None]


class _Order:
    def __init__(self, target: str, until_s: float, done: Done) -> None:
        self.target = target
        self.until_s = until_s
        self.done = done
        self.told = False
        """The follower has been told, over the present connection to it."""
        self.left = False
        """The office has ended."""


class Transfers:
    """At most one order at a time. Part of the pump; it neither sends nor waits by itself."""

    def __init__(self, timeout_s: float, tell: Callable[[Done, Transferred | RaftError], None]) -> None:
        """`tell` calls the one with the other."""
        self._timeout_s = timeout_s
        self._tell = tell
        self._order: _Order | None = None

    @property
    def holds(self) -> bool:
        """Nothing may be taken into the log now."""
        return self._order is not None and not self._order.left

    @property
    def due_s(self) -> float:
        """When to give up."""
        return math.inf if self._order is None else self._order.until_s

    def begin(
        self, consensus: Consensus | None, linked: list[str], to: str | None, now_s: float, done: Done
    ) -> None:
        """Hand over to that follower, or to the one that is furthest. `done` is told once."""
        office = None if consensus is None else consensus.office
        if consensus is None or office is None:
            self._tell(done, NotLeader(None if consensus is None else consensus.replica.leader_id))
        elif self._order is not None:
            self._tell(done, TransferFailed(f"the office is being handed over to {self._order.target}"))
        elif to == consensus.node_id:
            self._tell(done, Transferred(to, consensus.replica.term))
        elif (why := _why_not(office, linked, to)) is not None:
            self._tell(done, why)
        else:
            timeout_s = self._timeout_s
            target = to or _furthest(office, linked, now_s - SILENT_PARTS * timeout_s)
            self._order = _Order(target, now_s + timeout_s, done)

    def advance(self, consensus: Consensus, now_s: float) -> None:
        """Tell the follower when it is up to date; give up when it is time. Called in every round."""
        order, office = self._order, consensus.office
        if order is None:
            return
        if now_s >= order.until_s:
            self._end(
                Transferred(consensus.replica.leader_id, consensus.replica.term)
                if order.left
                else TransferFailed(
                    f"{order.target} has not taken the office within {self._timeout_s:g} s"
                    if order.told
                    else f"{order.target} was not up to date within {self._timeout_s:g} s"
                )
            )
        elif office is not None and order.target not in office.voters:
            self._end(TransferFailed(f"{order.target} has been removed meanwhile"))
        elif office is not None and not order.told and not order.left:
            last = consensus.replica.last_index
            level = office.followers[order.target].match_index >= last
            if level and consensus.replica.applied_index >= last:
                order.told = True
                consensus.hand_over(order.target)

    def standing_changed(self, consensus: Consensus, *, office_ended: bool) -> None:
        """Role, leader or term is another."""
        order = self._order
        if order is None:
            return
        if office_ended and not order.left:
            order.left = True
            order.until_s += self._timeout_s
        if not order.left or consensus.replica.leader_id is None:
            return
        if consensus.replica.leader_id == consensus.node_id:
            self._end(TransferFailed(f"{order.target} was not elected, and {consensus.node_id} leads again"))
        else:
            self._end(Transferred(consensus.replica.leader_id, consensus.replica.term))

    def link_up(self, peer: str) -> None:
        """What was sent to this follower before may be lost."""
        if self._order is not None and self._order.target == peer:
            self._order.told = False

    def fail(self, error: RaftError) -> None:
        """This node stops."""
        if self._order is not None:
            self._end(error)

    def _end(self, outcome: Transferred | RaftError) -> None:
        order, self._order = self._order, None
        assert order is not None
        self._tell(order.done, outcome)


def _why_not(office: Leadership, linked: list[str], to: str | None) -> TransferFailed | None:
    if to is not None and to not in office.followers:
        return NoSuchMember(f"{to!r} is not another member of this cluster")
    if to is not None and to not in office.voters:
        return TransferFailed(f"{to} is a learner: it has not caught up yet")
    if to is not None and to not in linked:
        return TransferFailed(f"there is no link to {to}")
    if not any(peer in linked for peer in office.voters):
        return TransferFailed("there is no link to any follower")
    return None


def _furthest(office: Leadership, linked: list[str], since_s: float) -> str:
    """The linked follower that is likely to be up to date soonest; the first by name among equals."""

    def rank(peer: str) -> tuple[bool, bool, int]:
        follower = office.followers[peer]
        return follower.answered_sent_s >= since_s, follower.mode is Mode.STREAM, follower.match_index

    return max(sorted(peer for peer in office.voters if peer in linked), key=rank)
