"""One member's Raft without I/O: what is decided about every message before and after the engine sees it.

Entered by `deliver`, `tick` and `append`. What it wants to send is fetched with `take_outbox` by whoever
knows when it may leave (pump.py); what it has committed comes out through `ConsensusUser.on_apply`.
"""

import logging
import math
from collections.abc import Callable, Collection
from typing import Any, Protocol

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.append_rules import is_well_formed, refusal_hint, trim
from tenure_cluster.raft.catching_up import CatchingUp
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.election import Election, Move
from tenure_cluster.raft.engine import APPLY_SLICE_S, RaftBroken, Replica
from tenure_cluster.raft.journal import Entry, Journal
from tenure_cluster.raft.leadership import Leadership, Numbers, SnapshotSource
from tenure_cluster.raft.membership import Members, Membership, bootstrap
from tenure_cluster.raft.types import RaftOptions, Role

logger = logging.getLogger(__name__)

Outbox = list[tuple[str, wire.Consensus]]


class ConsensusUser(SnapshotSource, Protocol):
    """What a consensus tells while it is entered. None of these may enter it again."""

    def on_apply(self, index: int, term: int, command: bytes) -> None:
        """A committed entry, each exactly once and in order; also no-ops."""

    def on_snapshot(self, peer: str, message: wire.Snapshot) -> None:
        """A piece of a snapshot, of the leader of this term."""

    def on_snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        """An answer to a piece that was sent in this office."""


class Consensus:
    """`members`: those along the journal's log; without them all `peers` are voters beside this node, for
    ever unless an entry says otherwise. `boundary`: the last two entries of the snapshot that the state
    machine was restored from, if any."""

    def __init__(
        self,
        *,
        node_id: str,
        journal: Journal,
        clock: Clock,
        options: RaftOptions,
        user: ConsensusUser,
        peers: Collection[str] = (),
        members: Members | None = None,
        boundary: tuple[Entry, Entry] | None = None,
        on: frozenset[str] = mitigations.ALL,
    ) -> None:
        self.node_id = node_id
        self.members = members or Members(node_id, bootstrap([node_id, *peers]))
        if members is None:
            self.members.replay(journal[:])
        journal.members = self.members
        self._members_seen = self.members.version
        self.journal = journal
        self.offices = 0
        self.behind = False
        """There is more to apply than the last tick took."""
        self.catching_up = CatchingUp()
        self._clock = clock
        self._options = options
        self._user = user
        self._on = on
        self._own_sync = mitigations.OWN_SYNC in on
        self._early: Outbox = []
        self._held: Outbox = []
        self._linked: set[str] = set()
        self._numbers = Numbers()
        self._office: Leadership | None = None
        self._answering: wire.Append | None = None
        self._matched_index: int | None = None
        self._election = Election(
            peers=self.members.other_voters,
            timeout_min_s=options.election_timeout_min_ms / 1000,
            now_s=clock.monotonic(),
            random=clock.random,
            pre_vote=mitigations.PRE_VOTE in on,
            sticky=mitigations.STICKY in on,
            silent_start=mitigations.SILENT_START in on,
            vote_once=mitigations.VOTE_ONCE in on,
        )
        self._handlers: dict[type[Any], Callable[[str, Any], None]] = {
            wire.Append: self._on_append,
            wire.AppendReply: self._on_append_reply,
            wire.Snapshot: self._on_snapshot,
            wire.SnapshotReply: self._on_snapshot_reply,
            wire.VoteRequest: self._on_vote_request,
            wire.Vote: self._on_vote,
            wire.PreVoteRequest: self._on_pre_vote_request,
            wire.PreVote: self._on_pre_vote,
            wire.HigherTerm: self._on_higher_term,
            wire.TimeoutNow: self._on_timeout_now,
        }
        quick = mitigations.QUICK_STEP_DOWN in on
        self.replica = Replica(
            node_id=node_id,
            peers=self.members.other_voters,
            journal=journal,
            clock=clock,
            options=options,
            owner=self,
            step_down_s=options.election_timeout_max_ms / 1000 if quick else 30.0,
        )
        if boundary is not None:
            self.replica.commit_index = self.replica.applied_index = boundary[1][1]
        self.replica.set_members(self.members.other_voters, self.members.other_learners)
        if self.is_alone:
            self.replica.campaign_at(0.0)

    # -- members

    @property
    def is_alone(self) -> bool:
        """The only voter."""
        return self.members.votes and not self.members.other_voters

    @property
    def voter_count(self) -> int:
        """For majorities of a leader, which is a voter."""
        return len(self.members.other_voters) + 1

    def _note_members(self) -> None:
        """The log may say now that the members are others: from here on all rules count those."""
        members = self.members
        if members.version == self._members_seen:
            return
        self._members_seen = members.version
        voters = members.other_voters
        self.replica.set_members(voters, members.other_learners)
        self._election.set_voters(voters)
        if self._office is not None:
            self._office.set_members(members.others, voters)

    # -- views

    @property
    def office(self) -> Leadership | None:
        """Of a leader."""
        return self._office

    @property
    def serving(self) -> bool:
        """Leader, and all that earlier leaders committed is applied: the own no-op is."""
        return self._office is not None and self.replica.applied_index >= self.replica.no_op_index

    def due_s(self) -> float:
        """When a tick would do something of its own accord; until then only messages and syncs give it
        work. In the past if something is overdue.
        """
        office, replica = self._office, self.replica
        if office is None:
            if not self.members.votes:
                return math.inf
            deadline_s = replica.campaign_due_s
            if self._election.is_asking:
                return max(deadline_s, self._election.waits_until_s(replica.term))
            return deadline_s
        return -math.inf if office.owes_commit_index else replica.lead_due_s()

    @property
    def last_number(self) -> int:
        """Of the messages that this node has sent as a leader; the next is greater."""
        return self._numbers.last

    def has(self, index: int, term: int) -> bool:
        """Whether a snapshot at (index, term) would bring nothing new."""
        if mitigations.SNAPSHOT_GUARD not in self._on:
            return False
        return index <= self.replica.commit_index or self.replica.term_at(index) == term

    # -- entries

    def deliver(self, peer: str, message: wire.Consensus) -> None:
        """A message of `peer` has come. Raises RaftBroken; what a peer may merely get wrong is ignored."""
        with self.replica.entered():
            self._handlers[type(message)](peer, message)

    def tick(self) -> None:
        """Let timers run out, the commit index advance and committed entries be applied."""
        with self.replica.entered():
            self.replica.tick()

    def append(self, command: bytes) -> int:
        """As leader: add an entry to the log and send it; the answer is its index. It is not durable yet."""
        if self._office is None:
            raise RaftBroken("append on a node that does not lead")
        with self.replica.entered():
            index = self.replica.last_index + 1
            self.replica.log.add(command, index, self.replica.term)
            self._note_members()
            self._office.replicate(heartbeat=False)
        return index

    def heartbeat(self, *, announce_only: bool = False) -> None:
        """As leader: send something to every follower, or only to those that have not been sent the commit
        index."""
        if self._office is not None:
            with self.replica.entered():
                self._office.replicate(heartbeat=not announce_only, announce=announce_only)

    def hand_over(self, peer: str) -> None:
        """As leader: have a follower whose log is this node's hold an election at once."""
        self._early.append((peer, wire.TimeoutNow(self.replica.term)))

    def link_up(self, peer: str) -> None:
        """A new connection to `peer` is open."""
        self._linked.add(peer)
        if self._office is not None:
            with self.replica.entered():
                self._office.link_up(peer)

    def is_linked(self, peer: str) -> bool:
        """Whether there is a connection to it."""
        return peer in self._linked

    def link_down(self, peer: str) -> None:
        self._linked.discard(peer)

    def leader_gone(self, peer: str) -> float | None:
        """The connection from `peer` has closed. If it led: the delay after which to tick, else None."""
        if self._office is not None or peer != self.replica.leader_id:
            return None
        now_s = self._clock.monotonic()
        delay_s = self._election.hint_delay_s(self.node_id, peer)
        self._election.hint(now_s)
        self.replica.campaign_at(now_s + delay_s)
        return delay_s

    def may_wait(self, peer: str, message: wire.Consensus) -> bool:
        """Whether it makes no difference if this message is delivered later, before the next tick."""
        return (
            type(message) is wire.AppendReply
            and self._office is not None
            and self._office.tells_nothing_new(peer, message)
        )

    def take_early(self) -> Outbox:
        """What promises nothing of this node's disk and may leave at once: a leader's own messages, as long
        as its term is durable. It may send entries that it has not synced, since it does not count itself
        until it has."""
        if self.replica.term_unsynced:
            return []
        early, self._early = self._early, []
        return early

    def take_held(self) -> Outbox:
        """What must wait until all that has been done to the journal is durable: answers, votes, requests for
        votes."""
        held, self._held = self._held, []
        return held

    def synced(self) -> None:
        """All that was done to the journal is durable."""
        self.replica.term_unsynced = False

    # -- what the replica asks and tells

    def on_send(self, peer: str, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "next_node_idx":
            self._held.append((peer, self._append_reply(message)))
        elif kind == "request_vote":
            term, ordered = message["term"], self._election.is_ordered(message["term"])
            request = wire.VoteRequest(term, message["last_log_index"], message["last_log_term"], ordered)
            self._held.append((peer, request))
        elif kind == "response_vote":
            self._held.append((peer, wire.Vote(message["term"])))
        else:
            raise RaftBroken(f"the package sends {kind!r}")

    def _append_reply(self, message: dict[str, Any]) -> wire.AppendReply:
        replica, asked, ok = self.replica, self._answering, bool(message["success"])
        if asked is None:
            raise RaftBroken("the package answers what was not delivered")
        if not ok:
            next_index = refusal_hint(replica.log, replica.commit_index, asked.prev_index)
        elif self._matched_index is not None:
            next_index = self._matched_index + 1
        else:
            next_index = message["next_node_idx"]
        return wire.AppendReply(replica.term, asked.number, ok, next_index)

    def on_role(self, old: Role, new: Role) -> None:
        self._office = None
        if new == "leader":
            self.offices += 1
            self._office = Leadership(
                replica=self.replica,
                peers=self.members.others,
                voters=self.members.other_voters,
                linked=self._linked,
                options=self._options,
                numbers=self._numbers,
                emit=lambda peer, message: self._early.append((peer, message)),
                source=self._user,
                on=self._on,
            )

    def may_campaign(self) -> bool:
        if not self.members.votes:
            return False
        move = self._election.next_move(self._clock.monotonic(), self.replica.term)
        if move is Move.ASK:
            _, index, term = self.replica.log[-1]
            request = wire.PreVoteRequest(self.replica.term, index, term)
            self._held.extend((peer, request) for peer in self.members.other_voters)
        return move is Move.CAMPAIGN

    def replicate(self) -> None:
        if self._office is not None:
            self._office.replicate(heartbeat=True)

    def apply_committed(self) -> None:
        replica = self.replica
        if self._office is not None and self._own_sync:
            self._office.count_own_copy_when_durable()
        limit = self._apply_limit()
        self.behind = replica.applied_index < limit
        if not self.behind:
            return
        until_s = self._clock.monotonic() + APPLY_SLICE_S
        while replica.applied_index < limit:
            command, index, term = replica.entry(replica.applied_index + 1)
            replica.applied_index = index
            self._user.on_apply(index, term, command)
            if self._clock.monotonic() >= until_s:
                break
        self.behind = replica.applied_index < limit

    def _apply_limit(self) -> int:
        """Committed, and durable here, so that a restart never takes back what could be read."""
        commit, durable = self.replica.commit_index, self.journal.durable_index
        return durable if durable < commit and self._own_sync else commit

    # -- elections

    @property
    def heard_leader_s(self) -> float:
        """When a leader last spoke to this node."""
        return self._election.heard_s

    def _followed_since_s(self) -> float | None:
        return None if self._office is None else self._office.followed_since_s(self._clock.monotonic())

    def _adopt(self, term: int) -> None:
        if term > self.replica.term:
            self.replica.step_down(term)

    def _on_vote_request(self, peer: str, message: wire.VoteRequest) -> None:
        # L3: stickiness holds for votes too, or a node that skips pre-votes could still depose a healthy
        # leader.
        # A leader that hands its office over wants no such loyalty.
        if message.handed_over or not self._election.is_sticky(
            self._clock.monotonic(), self._followed_since_s()
        ):
            request = {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            }
            self.replica.receive(peer, request)

    def _on_vote(self, peer: str, message: wire.Vote) -> None:
        # S13: the package counts votes, not voters.
        if message.term == self.replica.term and self._election.counts_vote(peer, message.term):
            self.replica.receive(peer, {"type": "response_vote", "term": message.term})

    def _on_pre_vote_request(self, peer: str, message: wire.PreVoteRequest) -> None:
        _, index, term = self.replica.log[-1]
        granted = message.term >= self.replica.term and self._election.grants_pre_vote(
            (message.last_term, message.last_index),
            (term, index),
            self._clock.monotonic(),
            self._followed_since_s(),
        )
        self._held.append((peer, wire.PreVote(message.term, granted, self.replica.term)))

    def _on_pre_vote(self, peer: str, message: wire.PreVote) -> None:
        if message.granted:
            self._election.pre_vote_granted(peer, message.asked_term)
        self._adopt(message.term)

    def _on_higher_term(self, peer: str, message: wire.HigherTerm) -> None:
        self._adopt(message.term)

    def _on_timeout_now(self, peer: str, message: wire.TimeoutNow) -> None:
        if self.members.votes and (message.term, peer) == (self.replica.term, self.replica.leader_id):
            self._election.order(message.term)
            self.replica.campaign_at(-math.inf)
            self.replica.tick()

    # -- a follower's side of replication

    def _heard_leader(self, peer: str, term: int) -> bool:
        """Whether a message of the leader of `term` may be heeded; if so, its sender is the leader."""
        if term < self.replica.term:
            # L4: the package does not answer, and a deposed leader learns nothing for 30 s.
            if mitigations.HIGHER_TERM in self._on:
                self._held.append((peer, wire.HigherTerm(self.replica.term)))
            return False
        if term == self.replica.term and self._office is not None:
            raise RaftBroken(f"{peer} leads in term {term}, and so does this node")
        self._election.heard(self._clock.monotonic())
        return True

    def _on_append(self, peer: str, message: wire.Append) -> None:
        # L9, S8, X1: only no-ops and opaque commands, below the size from which the package would pickle.
        fits = not message.entries or all(
            wire.is_entry(c) and len(c) <= self._options.entry_bytes_max for _, c in message.entries
        )
        if not fits or not is_well_formed(message.prev_term, message.term, message.entries):
            logger.error("append of %s ignored: an entry is of unknown type, too large or out of order", peer)
            return
        if not self._heard_leader(peer, message.term):
            return
        self.catching_up.heard(message.commit_index)
        replica, prev, prev_term = self.replica, message.prev_index, message.prev_term
        entries = [(command, prev + 1 + n, term) for n, (term, command) in enumerate(message.entries)]
        leader_commit = message.commit_index
        if mitigations.APPEND_TRIM in self._on:
            trimmed = trim(replica.log, replica.commit_index, prev, prev_term, entries, leader_commit)
            prev, prev_term, entries, leader_commit, self._matched_index = trimmed
        self._answering = message
        plain = {
            "type": "append_entries",
            "term": message.term,
            "commit_index": leader_commit,
            "entries": entries,
            "prevLogIdx": prev,
            "prevLogTerm": prev_term,
        }
        try:
            replica.receive(peer, plain)
        finally:
            self._answering = self._matched_index = None
        self._note_members()

    def _on_snapshot(self, peer: str, message: wire.Snapshot) -> None:
        if self._heard_leader(peer, message.term):
            # S4: only the bookkeeping of a heartbeat; the package would take a commit index without
            # matching the log.
            plain = {
                "type": "append_entries",
                "term": message.term,
                "commit_index": self.replica.commit_index,
            }
            self.replica.receive(peer, plain)
            self._user.on_snapshot(peer, message)

    def reply_snapshot(self, peer: str, message: wire.Snapshot, offset: int, done: bool) -> None:
        """Answer a piece of a snapshot; leaves after the next sync."""
        reply = wire.SnapshotReply(self.replica.term, message.number, message.index, offset, done)
        self._held.append((peer, reply))

    # -- a leader's side

    def _on_append_reply(self, peer: str, message: wire.AppendReply) -> None:
        self._adopt(message.term)
        if self._office is not None and self._office.accepts(peer, message.term, message.number):
            self._office.append_reply(peer, message)

    def _on_snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        self._adopt(message.term)
        if self._office is not None and self._office.accepts(peer, message.term, message.number):
            self._office.snapshot_reply(peer, message)
            self._user.on_snapshot_reply(peer, message)

    # -- snapshots

    def compact(self, index: int) -> None:
        """Forget entries before `index`; a durable snapshot must cover `index` and the one after it."""
        position = index - self.replica.first_index
        if position > 0:
            self.replica.log.deleteEntriesTo(position)
            self.members.forget(index)

    def install(self, boundary: tuple[Entry, Entry], base: Membership | None = None) -> None:
        """The log is now the last two entries that a durable snapshot covers, and its state is the
        machine's. `base`: the members that the snapshot has, if it has any."""
        index = boundary[1][1]
        if index <= self.replica.commit_index and mitigations.SNAPSHOT_GUARD in self._on:
            raise RaftBroken(f"a snapshot at {index} would undo commits up to {self.replica.commit_index}")
        self.replica.log.rebase(boundary)
        self.members.restart(base or self.members.base)
        self._note_members()
        self.replica.commit_index = self.replica.applied_index = index
