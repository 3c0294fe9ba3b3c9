"""A leader changes who the members are, one member at a time (membership.py says why).

A change is refused while another one is not committed, until the leader has committed an entry of its own
term, and if a majority of the voters that there would be then is not known to be alive: after such a change
nothing could be committed any more, the next change included. It is answered when its entry is applied here.

A new member is a learner. The leader makes it a voter, by an entry of its own, once it has caught up: its log
ends within a few entries of the leader's, it streams, and it has answered a moment ago. Promoted earlier, it
would count in majorities and hold every commit up until it has everything.
"""

from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

import msgspec

from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.leadership import Leadership
from tenure_cluster.raft.membership import (
    MEMBERS_MAX,
    Add,
    Change,
    Membership,
    Promote,
    Readdress,
    Remove,
    changed,
    encode_members,
)
from tenure_cluster.raft.replication import Mode
from tenure_cluster.raft.types import NotLeader, RaftError

CAUGHT_UP_ENTRIES: Final = 64
"""How many entries a learner may lack to be made a voter: what comes in while it answers, and no more."""

Code: TypeAlias = Literal["no_member", "member_exists", "change_refused"]


class Changed(msgspec.Struct, frozen=True):
    """The change is committed; these are the members from its entry on."""

    membership: Membership


class ChangeRefused(RaftError):
    """Nothing has been changed, and nothing will be by this order."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class ChangeUnknown(RaftError):
    """The office was lost before the entry was seen committed: it may yet be."""


Done: TypeAlias = Callable[[Changed | RaftError], None]


class _Order:
    def __init__(self, change: Change, done: Done) -> None:
        self.change = change
        self.done = done
        self.at: tuple[int, int] | None = None
        """Index and term of its entry, once it is in the log."""


class Changes:
    """Part of the pump: at most one order at a time, and promotions of the leader's own."""

    def __init__(self, timeout_s: float, tell: Callable[[Done, Changed | RaftError], None]) -> None:
        """`timeout_s`: a member that has answered nothing sent since then is taken for dead."""
        self._timeout_s = timeout_s
        self._tell = tell
        self._order: _Order | None = None

    def begin(self, consensus: Consensus | None, change: Change, done: Done) -> None:
        """Change the members. `done` is told once, perhaps before this returns."""
        if consensus is None or consensus.office is None:
            self._tell(done, NotLeader(None if consensus is None else consensus.replica.leader_id))
        elif self._order is not None:
            self._tell(done, ChangeRefused("change_refused", "another change of members is under way"))
        else:
            self._order = _Order(change, done)

    @property
    def waits(self) -> bool:
        """An order is to be looked at in the next round."""
        return self._order is not None and self._order.at is None

    def advance(self, consensus: Consensus, now_s: float, outdated: Collection[str], *, held: bool) -> bool:
        """Add the entry of an order, or of a promotion that is due, to the log, or refuse. `outdated`:
        members whose version does not know such entries. `held`: nothing may be taken into the log now.
        Called in every round; answers whether an entry was added."""
        office = consensus.office
        if office is None or held:
            return False
        alive = self._alive(consensus, office, now_s)
        order = self._order
        if order is not None and order.at is None:
            before = consensus.members.current
            if _is_so(before, order.change):
                if before.index <= consensus.replica.commit_index:
                    self._end(Changed(before))
                return False  # by an earlier leader's entry, which may still be cut off
            why = refusal(consensus, order.change, alive, outdated)
            if why is not None:
                self._end(why)
                return False
            order.at = self._append(consensus, order.change)
            return True
        for name in consensus.members.other_learners:
            if name in alive and has_caught_up(consensus, office, name):
                promote = Promote(name)
                if refusal(consensus, promote, alive, outdated) is None:
                    self._append(consensus, promote)
                    return True
        return False

    def applied(self, consensus: Consensus, index: int, term: int) -> None:
        """An entry of this kind has been applied."""
        order = self._order
        if order is not None and order.at is not None and order.at[0] == index:
            ours = order.at == (index, term)
            self._end(Changed(consensus.members.at(index)) if ours else ChangeUnknown("another leader came"))

    def end_office(self, leader_id: str | None) -> None:
        """This node does not lead any more, or stops."""
        order = self._order
        if order is not None:
            self._end(NotLeader(leader_id) if order.at is None else ChangeUnknown("the office was lost"))

    def _alive(self, consensus: Consensus, office: Leadership, now_s: float) -> set[str]:
        since_s = now_s - self._timeout_s
        answering = {
            name
            for name, follower in office.followers.items()
            if follower.answered_sent_s >= since_s and consensus.is_linked(name)
        }
        return answering | {consensus.node_id}

    def _append(self, consensus: Consensus, change: Change) -> tuple[int, int]:
        index = consensus.replica.last_index + 1
        membership = changed(consensus.members.current, change, index)
        consensus.append(encode_members(membership))
        return index, consensus.replica.term

    def _end(self, outcome: Changed | RaftError) -> None:
        order, self._order = self._order, None
        assert order is not None
        self._tell(order.done, outcome)


def has_caught_up(consensus: Consensus, office: Leadership, name: str) -> bool:
    """Whether a learner's log is nearly the leader's, and says that it is a member."""
    follower = office.followers[name]
    lacks = consensus.replica.last_index - follower.match_index
    knows = follower.match_index >= consensus.members.current.index
    return follower.mode is Mode.STREAM and knows and lacks <= CAUGHT_UP_ENTRIES


def _is_so(before: Membership, change: Change) -> bool:
    """Whether it was asked for before, and has come about."""
    if isinstance(change, Remove):
        return change.id in before.removed
    member = before.get(change.id)
    if member is None or isinstance(change, Promote):
        return False
    return (member.peer, member.http) == (change.peer, change.http)


def refusal(
    consensus: Consensus, change: Change, alive: Collection[str], outdated: Collection[str]
) -> ChangeRefused | None:
    """Why this change is not to be made now, by this leader; None if it is."""
    before = consensus.members.current
    return (
        _not_now(consensus, before)
        or _not_this(consensus, before, change)
        or _not_with_these(before, change, alive, outdated)
    )


def _not_now(consensus: Consensus, before: Membership) -> ChangeRefused | None:
    if before.index > consensus.replica.commit_index:
        return ChangeRefused("change_refused", "the change of members before this one is not committed yet")
    if not consensus.serving:
        return ChangeRefused("change_refused", "the leader has not committed an entry of its own term yet")
    return None


def _not_this(consensus: Consensus, before: Membership, change: Change) -> ChangeRefused | None:
    member = before.get(change.id)
    if isinstance(change, Add):
        if member is not None:
            return ChangeRefused("member_exists", f"{change.id} is a member already")
        if change.id in before.removed:
            return ChangeRefused(
                "member_exists",
                f"{change.id} has been removed, and names are not given again: take another one",
            )
        if len(before.members) >= MEMBERS_MAX:
            return ChangeRefused("change_refused", f"{len(before.members)} members are the most there can be")
    elif member is None:
        return ChangeRefused("no_member", f"{change.id!r} is not a member of this cluster")
    if isinstance(change, Remove) and change.id == consensus.node_id:
        return ChangeRefused("change_refused", f"{change.id} leads: another node must lead first")
    if isinstance(change, Add | Readdress):
        taken = [other.id for other in before.members if other.id != change.id and other.peer == change.peer]
        if taken:
            return ChangeRefused("member_exists", f"{taken[0]} has the peer address {change.peer}")
    return None


def _not_with_these(
    before: Membership, change: Change, alive: Collection[str], outdated: Collection[str]
) -> ChangeRefused | None:
    if outdated:
        return ChangeRefused(
            "change_refused",
            f"{', '.join(sorted(outdated))} must be upgraded first: its version has no changes",
        )
    voters = set(before.voters)
    if isinstance(change, Promote):
        voters.add(change.id)
    elif isinstance(change, Remove) and change.id in voters:
        voters.discard(change.id)
    elif not isinstance(change, Readdress) or voters <= {change.id}:
        return None
    living = sorted(voters & set(alive))
    if isinstance(change, Readdress):
        # Where it is to be reached then nobody has reached it yet.
        living = [name for name in living if name != change.id]
    needed = len(voters) // 2 + 1
    if len(living) < needed:
        return ChangeRefused(
            "change_refused",
            f"of the {len(voters)} voters that there would be only {', '.join(living) or 'none'} can be "
            f"counted on, and {needed} are needed: add members or bring some back first",
        )
    return None
