"""Raft's own rules, held against every node whenever something of it changes.

The rules look from outside at what no single node can see: the logs, terms, votes and offices of all of
them, across deaths and restarts.

    election safety        one leader a term; one vote a node and term, in what is sent and in what is kept
    log matching           one entry for an index and term, with one entry before it
    leader completeness    who takes office has every entry that was committed in its term or before
    committed is final     one entry an index, on the durable logs of a majority when it is first committed,
                           applied in order, each once
    members                see members_rules.py
    nothing falls          term, commit index and applied index of a process; term and vote of a node, and
                           what of its log was durable, whatever ended its process

They hook into the consensus part of each process where its state changes: the end of a round, the end of a
sync, an entry applied, a snapshot installed, a message sent, a change of role.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tenure_chaos.history import AppliedEntry, Elected, History, RaftState
from tenure_chaos.sim.effects import content_name
from tenure_chaos.sim.members_rules import MembersRules
from tenure_chaos.sim.node import SimNode
from tenure_cluster.raft import Raft, messages
from tenure_cluster.raft.consensus import Consensus, Outbox
from tenure_cluster.raft.journal import Entry, Journal, SyncTicket
from tenure_cluster.raft.membership import ENTRY_TYPE, Membership

COMPLETENESS_ENTRIES = 2_000
"""A new leader is held to have this many of the last committed entries; those before are in every log or
snapshot by then."""

TELL_EVERY = 50
"""How often a node's state is written into the history: after every change of its term or vote, and after so
many commits."""


class Kept(NamedTuple):
    """What a node's disk has of its log."""

    term: int
    voted_for: str | None
    last_index: int
    last_term: int

    @classmethod
    def of(cls, journal: Journal) -> "Kept":
        """As of the last batch that was written."""
        term, voted_for, last_index, last_term = journal._written
        return cls(term, voted_for, last_index or 0, last_term)


class Committed(NamedTuple):
    """One committed entry as whoever committed it first had it."""

    term: int
    command: bytes
    in_term: int
    """In which it was committed: that of the leader who said so, not of the one who made the entry."""


class Observer(Protocol):
    """Who is told."""

    nodes: dict[str, SimNode]
    hosts: dict[str, SimNode]
    history: History

    def members_committed(self, membership: Membership) -> None: ...

    def violation(self, rule: str, what: str) -> None: ...
    def note(self, text: str) -> None: ...
    def count(self, what: str, by: int = 1) -> None: ...
    def now(self) -> float: ...


class RaftRules:
    """What is known of all nodes together."""

    def __init__(self, world: Observer) -> None:
        self.world = world
        self.committed: dict[int, Committed] = {}
        self.last_committed = 0
        self._leaders: dict[int, str] = {}
        self._last_leader = ""
        self._votes: dict[tuple[str, int], str] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        """(index, term) -> (command, term of the entry before)"""
        self._contents: dict[int, str] = {}
        self.members = MembersRules(self)
        self.disks: dict[str, Kept] = {}
        """By node: what was durable for certain."""
        self.writing: dict[str, Kept] = {}
        """By node: what will be durable when the batch that is being synced is."""

    def attach(self, node: SimNode, raft: Raft) -> None:
        """Watch a process from before its start."""
        pump = raft._pump
        begin: Callable[..., None] = pump.begin

        def begun(consensus: Consensus, journal: Journal, transport: Any) -> None:
            _Watch(self, node, raft, consensus, journal)
            begin(consensus, journal, transport)

        setattr(pump, "begin", begun)  # noqa: B010 -- an instance is wrapped, its class stays as it is

    # -- what watches report

    def vote(self, node: str, term: int, candidate: str, how: str) -> None:
        first = self._votes.setdefault((node, term), candidate)
        if first != candidate:
            self.world.violation(
                "one vote a term", f"{node} {how} {candidate} in term {term}, and {first} before"
            )

    def entry(self, node: str, entry: Entry, term_before: int | None) -> None:
        command, index, term = entry
        known = self._entries.get((index, term))
        if known is None:
            if term_before is not None:
                self._entries[index, term] = (command, term_before)
        elif known[0] != command or term_before not in (known[1], None):
            self.world.violation(
                "log matching", f"{node} has another entry, or another before it, at {index} of term {term}"
            )

    def commit(self, node: str, index: int, entry: Entry, in_term: int, voters: list[str]) -> None:
        """A node, by whose log those vote, takes an entry for committed, in the term it is in."""
        command, _, term = entry
        known = self.committed.get(index)
        if known is None:
            if index <= self.last_committed:
                self.world.violation("committed is final", f"{node} has {index}, which was not there")
            self.committed[index] = Committed(term, command, in_term)
            self.last_committed = max(self.last_committed, index)
            self._on_quorum(node, index, term, voters)
            self.members.committed(command, index)
        elif known[:2] != (term, command):
            self.world.violation(
                "committed is final",
                f"{node} takes entry {index} of term {term} for committed, and it was of term {known.term}",
            )

    def _on_quorum(self, node: str, index: int, term: int, voters: list[str]) -> None:
        holders = [name for name in voters if self.world.hosts[name].has_durably(index, term)]
        if len(holders) * 2 <= len(voters):
            self.world.violation(
                "durable on a quorum",
                f"{node} commits entry {index} of term {term}, durable on {holders} of {voters} only",
            )

    def applied(self, node: str, index: int, term: int, in_term: int) -> None:
        """A node has applied what is committed at this index, in the term it is in."""
        content = self._contents.get(index)
        if content is None:
            content = self._contents[index] = content_name(self.committed[index].command)
            self.world.note(f"{node} applied {index} term {term} {content}")
        self.world.history.applied.append(AppliedEntry(node, index, term, content, in_term))

    def office(self, node: str, term: int, consensus: Consensus) -> None:
        """A node leads."""
        first = self._leaders.setdefault(term, node)
        if first != node:
            self.world.violation("one leader a term", f"{first} and {node} in term {term}")
        self.world.count("leader elected")
        if self._last_leader not in ("", node):
            self.world.count("leader changed")
        self._last_leader = node
        granted = [voter for (voter, at), whom in self._votes.items() if at == term and whom == node]
        self.members.office(node, term, consensus, granted)
        replica = consensus.replica
        self.world.history.elected.append(Elected(node, term, self.world.now(), replica.last_index))
        begin = max(replica.first_index, self.last_committed - COMPLETENESS_ENTRIES)
        for index in range(begin, self.last_committed + 1):
            known = self.committed.get(index)
            # A candidate of an earlier term may win late, after others have committed without it.
            if known is not None and known.in_term < term and replica.term_at(index) != known.term:
                self.world.violation(
                    "leaders are complete", f"{node} leads in term {term} without entry {index}"
                )
                return

    def recovered(self, node: str, found: Kept, snapshot_index: int) -> None:
        """A process has read its disk. A batch is there as a whole or not at all; one that was durable is
        there. A snapshot that the log does not reach has taken its place."""
        durable, writing = self.disks.get(node), self.writing.get(node)
        possible = [kept for kept in (durable, writing) if kept is not None]
        if not possible:
            return
        same_vote = any(found[:2] == kept[:2] for kept in possible)
        same_log = any(found[2:] == kept[2:] for kept in possible) or found.last_index == snapshot_index
        if not same_vote or not same_log:
            self.world.violation(
                "what was durable stays", f"{node} has recovered {found}, and had {durable}, then {writing}"
            )


class _Watch:
    """One process of a node, from when it has read its disk."""

    def __init__(
        self, rules: RaftRules, node: SimNode, raft: Raft, consensus: Consensus, journal: Journal
    ) -> None:
        self.rules, self.node, self.name = rules, node, node.name
        self.raft, self.consensus, self.journal = raft, consensus, journal
        replica = consensus.replica
        self.term = replica.term
        self.commit = self.applied = replica.applied_index
        """Beginning with the snapshot that it has started from."""
        self.checked = 0
        """Up to where its durable log has been compared."""
        self.told: tuple[int, str | None] = (-1, None)
        self.tell_at = 0
        self._recovered()
        self._wrap(raft._pump, "_answer", self._round_ended)
        self._wrap(raft._pump, "_send", self._sent)
        self._wrap(raft._pump, "on_apply", self._applied, after=True)
        self._wrap(journal, "mark_durable", self._durable, after=True)
        self._wrap(journal, "_lower_durable", self._cut)
        self._wrap(consensus, "install", self._installed)
        self._wrap(raft, "on_role", self._role)
        self._wrap(consensus, "append", self._appending)
        self._wrap_flush()

    def _wrap(self, owner: Any, name: str, look: Callable[..., None], *, after: bool = False) -> None:
        inner = getattr(owner, name)

        def before_it(*args: Any) -> Any:
            look(*args)
            return inner(*args)

        def after_it(*args: Any) -> Any:
            result = inner(*args)
            look(*args)
            return result

        setattr(owner, name, after_it if after else before_it)

    def _wrap_flush(self) -> None:
        journal = self.journal
        inner = journal.flush_batch

        def flush_batch() -> SyncTicket | None:
            ticket = inner()
            if ticket is not None:
                self.rules.writing[self.name] = Kept.of(journal)
            return ticket

        setattr(journal, "flush_batch", flush_batch)  # noqa: B010

    def _violation(self, rule: str, what: str) -> None:
        self.rules.world.violation(rule, f"{self.name}: {what}")

    # -- what a process has of its disk

    def _recovered(self) -> None:
        found = Kept.of(self.journal)
        self.rules.recovered(self.name, found, self.consensus.replica.applied_index)
        if self.journal.repair is not None:
            self.rules.world.count("torn tail repaired")
        self._note_durable(found)

    def _durable(self) -> None:
        kept = Kept.of(self.journal)
        before = self.rules.disks.get(self.name)
        if before is not None and kept.term < before.term:
            self._violation("nothing falls", f"term {kept.term} is durable after {before.term}")
        self._note_durable(kept)

    def _note_durable(self, kept: Kept) -> None:
        rules, replica = self.rules, self.consensus.replica
        rules.disks[self.name] = rules.writing[self.name] = kept
        if kept.voted_for is not None:
            rules.vote(self.name, kept.term, kept.voted_for, "keeps its vote for")
        last = self.journal.durable_index
        index = max(self.checked + 1, replica.first_index)
        term_before = replica.term_at(index - 1)
        while index <= last:
            entry = replica.entry(index)
            rules.entry(self.name, entry, term_before)
            term_before = entry[2]
            index += 1
        self.checked = last
        if kept[:2] != self.told or replica.commit_index >= self.tell_at:
            self.told, self.tell_at = kept[:2], replica.commit_index + TELL_EVERY
            state = RaftState(
                node=self.name,
                incarnation=self.node.process.incarnation,
                at=rules.world.now(),
                term=kept.term,
                voted_for=kept.voted_for or "",
                commit_index=replica.commit_index,
                applied_index=self.applied,
            )
            rules.world.history.raft.append(state)

    def _cut(self, index: int) -> None:
        self.checked = min(self.checked, index)
        if index and index < self.commit:
            self._violation(
                "committed is final", f"cuts its log back to {index}, committed up to {self.commit}"
            )

    # -- rounds

    def _round_ended(self) -> None:
        replica = self.consensus.replica
        term, commit = replica.term, replica.commit_index
        if term != self.term:
            if term < self.term:
                self._violation("nothing falls", f"term {term} after {self.term}")
            self.term = term
        if commit != self.commit:
            self._committed(commit)

    def _committed(self, commit: int) -> None:
        replica = self.consensus.replica
        if commit < self.commit:
            self._violation("nothing falls", f"commit index {commit} after {self.commit}")
        if commit > replica.last_index:
            self._violation(
                "committed is final", f"commit index {commit} past the log's {replica.last_index}"
            )
        for index in range(max(self.commit + 1, replica.first_index), min(commit, replica.last_index) + 1):
            voters = self.rules.members.of(self.consensus).voters
            self.rules.commit(self.name, index, replica.entry(index), replica.term, voters)
        self.commit = max(commit, self.commit)

    def _applied(self, index: int, term: int, command: bytes) -> None:
        if index != self.applied + 1:
            self._violation("committed is final", f"applies entry {index} after {self.applied}")
        self.applied = index
        if index > self.commit:
            self._committed(self.consensus.replica.commit_index)
        known = self.rules.committed.get(index)
        if known is None or known[:2] != (term, command):
            self._violation("committed is final", f"applies at {index} what was not committed there")
        else:
            self.rules.applied(self.name, index, term, self.consensus.replica.term)

    def _installed(self, boundary: tuple[Entry, Entry], base: Membership | None = None) -> None:
        rules, (_, last) = self.rules, boundary
        index = last[1]
        if index <= self.applied:
            self._violation("nothing falls", f"a snapshot at {index} is installed after entry {self.applied}")
        known = rules.committed.get(index)
        if known is None or known.term != last[2]:
            self._violation("committed is final", f"a snapshot ends with {index} of term {last[2]}")
        self.applied = self.commit = index
        rules.world.count("snapshot installed")

    # -- messages and offices

    def _appending(self, command: bytes) -> None:
        if command[:1] == ENTRY_TYPE:
            self.rules.members.appending(self.name, command, self.consensus)

    def _sent(self, outbox: Outbox) -> None:
        for peer, message in outbox:
            kind = type(message)
            if kind is messages.Vote:
                self.rules.vote(self.name, message.term, peer, "votes for")
            elif kind is messages.VoteRequest:
                self.rules.vote(self.name, message.term, self.name, "asks for votes as")

    def _role(self, role: str, leader: str | None, term: int) -> None:
        self.rules.world.note(f"{self.name} is {role} in term {term}, leader {leader}")
        if role == "leader":
            self.rules.office(self.name, term, self.consensus)
