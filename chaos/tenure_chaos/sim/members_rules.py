"""Rules about who the members are, held against every node's log.

    one change at a time       an entry about members differs from the one before it in its leader's log by
                               one member; that one is committed, and so is an entry of the leader's own term
    majorities meet            every majority of the voters after a change has a node in common with every
                               one of those of the entry before it, and of the latest committed one
    promoted when caught up    a learner that is made a voter has what was committed, but for a few entries
    leaders are members        who takes office is a voter by its own log, and a majority of the voters of
                               that log has voted for it
    names are not given again  nobody is a member who has been removed
    only the removed           a node that is told that it has been removed has been

Who counts for a node is worked out here from the entries in its log, not asked of the node.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.membership import Membership, bootstrap, decode_members

BEHIND_MAX: Final = 64
"""Committed entries that a learner may lack when it is made a voter; as changes.py has it."""


class Seen(Protocol):
    """What the other rules know: raft_rules.RaftRules."""

    @property
    def world(self) -> "Watching": ...
    @property
    def committed(self) -> "Mapping[int, Entry]": ...


class Entry(Protocol):
    @property
    def term(self) -> int: ...
    @property
    def command(self) -> bytes: ...


class Host(Protocol):
    @property
    def durable_index(self) -> int: ...


class Watching(Protocol):
    @property
    def nodes(self) -> "Mapping[str, Host]": ...
    @property
    def hosts(self) -> "Mapping[str, Host]": ...
    def violation(self, rule: str, what: str) -> None: ...
    def note(self, text: str) -> None: ...
    def members_committed(self, membership: Membership) -> None: ...


class MembersRules:
    """Part of RaftRules."""

    def __init__(self, rules: "Seen") -> None:
        self._rules = rules
        self._entries: dict[tuple[int, int], Membership] = {}
        """(index, term) -> what a leader has added there, in the order in which they did."""
        self._first: Membership | None = None
        self._last: Membership | None = None
        """The latest that is committed."""

    @property
    def first(self) -> Membership:
        """The members before any entry."""
        return self._know_first()

    def _know_first(self) -> Membership:
        """To be done before any entry counts: the world's members are others then."""
        if self._first is None:
            self._first = bootstrap(self._rules.world.nodes)
        return self._first

    @property
    def last(self) -> Membership:
        """The members by the latest committed entry."""
        return self._last or self.first

    def of(self, consensus: Consensus) -> Membership:
        """Those that count for a node, by the entries in its log and in what snapshots cover."""
        replica = consensus.replica
        for (index, term), membership in sorted(self._entries.items(), reverse=True):
            if index > replica.last_index:
                continue
            if index < replica.first_index:
                known = self._rules.committed.get(index)
                if known is not None and known.term == term:
                    return membership
            elif replica.term_at(index) == term:
                return membership
        return self.first

    def appending(self, node: str, command: bytes, consensus: Consensus) -> None:
        """A leader is about to add an entry about members to its log."""
        membership, before = decode_members(command), self.of(consensus)
        assert membership is not None
        replica = consensus.replica
        index, term = replica.last_index + 1, replica.term
        self._entries[index, term] = membership
        told = f"members {membership.names}, voters {membership.voters}"
        self._rules.world.note(f"{node} adds entry {index}: {told}")
        if before.index and before.index not in self._rules.committed:
            self._violation("one change at a time", f"{node}: {index} while {before.index} is not committed")
        own = self._rules.committed.get(replica.no_op_index)
        if own is None or own.term != term:
            self._violation("one change at a time", f"{node}: {index} before its own no-op is committed")
        for name in sorted(
            set(membership.names) & {*before.removed, *self.last.removed, *membership.removed}
        ):
            self._violation("names are not given again", f"{node}: {name} is a member by {index}")
        differing = set(before.members) ^ set(membership.members)
        names = sorted({info.id for info in differing})
        if len(names) > 1:
            self._violation("one change at a time", f"{node}: {index} changes {names}")
        for of in (before, self.last):
            one, other = set(of.voters), set(membership.voters)
            if (len(one) // 2 + 1) + (len(other) // 2 + 1) <= len(one | other):
                self._violation("majorities meet", f"{node}: {sorted(one)} and {sorted(other)} at {index}")
        for name in sorted(set(membership.voters) - set(before.voters)):
            has = self._rules.world.hosts[name].durable_index
            if has < replica.commit_index - BEHIND_MAX:
                self._violation(
                    "promoted when caught up",
                    f"{name} has entries up to {has}, and {replica.commit_index} is committed",
                )

    def committed(self, command: bytes, index: int) -> None:
        """An entry is committed; perhaps it is one about members."""
        membership = decode_members(command)
        if membership is not None:
            self._know_first()
            self._last = membership
            self._rules.world.members_committed(membership)

    def office(self, node: str, term: int, consensus: Consensus, granted: list[str]) -> None:
        """A node leads, by the votes of these and its own, which need not be durable yet if it is alone."""
        granted = [*granted, node]
        voters = self.of(consensus).voters
        if node not in voters:
            self._violation("leaders are members", f"{node} leads in term {term}, and votes are {voters}")
        elif len(set(granted) & set(voters)) * 2 <= len(voters):
            self._violation(
                "leaders are members",
                f"{node} leads in term {term} by the votes of {sorted(granted)}, and voters are {voters}",
            )

    def _violation(self, rule: str, what: str) -> None:
        self._rules.world.violation(rule, what)
