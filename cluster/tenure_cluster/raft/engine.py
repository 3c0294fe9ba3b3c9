"""Raft by PySyncObj, made safe from outside. The only module that imports pysyncobj.

The package is a plain Raft with many defects, every one of which can be closed without editing it: it calls
itself through mangled private names, so a subclass can override them, and it looks its clock, randomness
and journal up in module globals. What it still does here: terms and votes, the log-matching check of a
follower, the commit rule of a leader, stepping down. What it no longer does: transport, journal,
replication, snapshots, applying, forwarding, pickling, membership (it is told whom to count). Defects are
named S1, L3 … as in DEFECTS.md; every override and every use of a private name below says which of them it
closes. Because all this depends on the text of the package, `verify_package` refuses any other text than the
one audited.

`Replica` is a translation only. What is decided about messages before the package sees them stands in
consensus.py.
"""

import functools
import hashlib
import math
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import pysyncobj.syncobj as syncobj
from pysyncobj.config import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.journal import Entry, Journal
from tenure_cluster.raft.types import RaftOptions, Role

AUDITED_VERSION: Final = "0.3.17"
AUDITED_SHA256: Final = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"

APPLY_SLICE_S: Final = 0.01
"""Applying holds the event loop no longer than this, save for the entry that it is in."""

_LEADER: Final = 2
_ROLES: Final[dict[int, Role]] = {0: "follower", 1: "candidate", _LEADER: "leader"}


class PackageNotAudited(Exception):
    """The installed pysyncobj is not the text that was audited."""


class RaftBroken(Exception):
    """An invariant of Raft does not hold on this node: it stops before it does more harm."""


@functools.cache
def verify_package(path: Path | None = None) -> None:
    """Refuse to run on any text of pysyncobj but the audited one. Raises PackageNotAudited. Once a process
    is enough, since it has imported what it runs.
    """
    path = path or Path(syncobj.__file__)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != AUDITED_SHA256:
        raise PackageNotAudited(
            f"{path} has SHA-256 {found}, but private parts of pysyncobj {AUDITED_VERSION} with SHA-256 "
            f"{AUDITED_SHA256} are overridden here; install pysyncobj=={AUDITED_VERSION} unmodified"
        )


# ---------------------------------------------------------------- the module globals of the package

_entered: "Replica | None" = None
"""The replica whose code is running. Several may live in one process; only one runs at a time."""


class _Dispatch:
    """Stands in for a module that the package uses: another one while a replica runs."""

    def __init__(self, original: Any, inside: Callable[["Replica"], Any]) -> None:
        self._original = original
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original if _entered is None else self._inside(_entered), name)


class _Unreachable:
    """Stands where a part of the package stood that nothing here may reach."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise RaftBroken(f"{self._what} of the package was reached: {name}")


class _NullPoller:
    """L8: sockets are not read inside a tick, and a tick never waits."""

    def poll(self, timeout: float) -> None:
        pass


@functools.cache
def _dispatch_globals() -> None:
    """Once per process: replace what the package looks up in its module globals.

    PIPE_NOTIFIER_ENABLED (L10) stays: it is looked at only without batches, and batches are on.
    """
    monotonic, create_journal, create_poller = (
        syncobj.monotonicTime,
        syncobj.createJournal,
        syncobj.createPoller,
    )
    # 1.4: the package takes CLOCK_MONOTONIC_RAW; several nodes and simulated time need their own.
    syncobj.monotonicTime = lambda: monotonic() if _entered is None else _entered.clock.monotonic()
    syncobj.random = _Dispatch(syncobj.random, lambda replica: replica.clock)
    # D1-D6, D8, S17: never its journals.
    syncobj.createJournal = lambda path: create_journal(path) if _entered is None else _entered.journal
    syncobj.createPoller = lambda kind: create_poller(kind) if _entered is None else _NullPoller()
    # X1: whatever path would still lead there.
    refused = _Unreachable("pickle")
    syncobj.pickle = _Dispatch(syncobj.pickle, lambda _: refused)


# ---------------------------------------------------------------- the subclass


class _Member(Node):  # type: ignore[misc]
    """A node by its id. The hash does not depend on the process, so neither does the order of a set of
    them."""

    def __init__(self, node_id: str) -> None:
        super().__init__(node_id)
        self._hash = zlib.crc32(node_id.encode())

    def __hash__(self) -> int:
        return self._hash


class _Port(Transport):  # type: ignore[misc]
    """X1-X6, L7, L8, L12: what the package takes for its transport only hands its messages over."""

    ready = True

    def __init__(self, owner: "ReplicaOwner") -> None:
        super().__init__(None, None, None)
        self._owner = owner

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self._owner.on_send(node.id, message)
        return True


class _Entered:
    """A context; a class because this is entered several times a round."""

    __slots__ = ("_outer", "_replica")

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._outer: Replica | None = None

    def __enter__(self) -> None:
        global _entered
        self._outer, _entered = _entered, self._replica

    def __exit__(self, *raised: object) -> None:
        global _entered
        _entered = self._outer


class ReplicaOwner(Protocol):
    """What a replica asks and tells while it is entered."""

    def on_send(self, peer: str, message: dict[str, Any]) -> None:
        """The package wants to send one of its messages."""

    def on_role(self, old: Role, new: Role) -> None:
        """The role is changing; called in the midst of it."""

    def may_campaign(self) -> bool:
        """The election timer has run out: may the term be raised?"""

    def replicate(self) -> None:
        """The heartbeat of a leader is due, or it has just taken office."""

    def apply_committed(self) -> None:
        """The commit index has just been computed."""


class Replica(syncobj.SyncObj):  # type: ignore[misc]
    """All that knows the private names of the package. Use its methods only inside `entered`."""

    def __init__(
        self,
        *,
        node_id: str,
        peers: Collection[str],
        journal: Journal,
        clock: Clock,
        options: RaftOptions,
        owner: ReplicaOwner,
        step_down_s: float,
    ) -> None:
        _dispatch_globals()
        self.journal = journal
        self.clock = clock
        self.term_unsynced = False
        self._owner = owner
        self._whole_tick_s = self._quorum_until_s = -math.inf
        self._nodes = {peer: _Member(peer) for peer in peers}
        conf = SyncObjConf(
            autoTick=False,
            raftMinTimeout=options.election_timeout_min_ms / 1000,
            raftMaxTimeout=options.election_timeout_max_ms / 1000,
            appendEntriesPeriod=options.heartbeat_ms / 1000,
            # L4: 30 s by default.
            leaderFallbackTimeout=step_down_s,
            connectionTimeout=options.election_timeout_max_ms / 1000,
            # L9: no entry may reach the size from which entries are pickled in parts. L10, L11: batches, no
            # notifier.
            appendEntriesBatchSizeBytes=2 * options.entry_bytes_max + (1 << 16),
            appendEntriesUseBatch=True,
            # L10: stale commands must not run late.
            commandsWaitLeader=False,
            # S8, S16. S17 (the name itself is not used). D8, D9.
            dynamicMembershipChange=False,
            journalFile="journal",
            fullDumpFile=None,
            useFork=False,
            onStateChanged=lambda old, new: owner.on_role(_ROLES[old], _ROLES[new]),
        )
        with self.entered():  # the constructor reads clock, randomness and journal from the module globals
            super().__init__(_Member(node_id), self._nodes.values(), conf, transport=_Port(owner))
        # S5, S7, D7, D9, L5.
        self._SyncObj__serializer = _Unreachable("the serializer")

    def entered(self) -> "_Entered":
        """Inside, the module globals of the package belong to this replica."""
        return _Entered(self)

    # -- overrides: called by the package

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """L3: called exactly when the election timer has run out; the place for pre-votes."""
        return self._owner.may_campaign()

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """L5 (spins), L9 (pickled parts), L12 (no flow control), L13 (resends the backlog): our own loop."""
        self._SyncObj__newAppendEntriesTime = self.clock.monotonic() + self.conf.appendEntriesPeriod
        self._owner.replicate()

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """S9, S10, L2, L6: applied once, counted before anything else can raise, nothing skipped; in
        slices."""
        self._owner.apply_committed()
        return False

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """S11, S12, L6, L10, L11: no command queue and no forwarding of the package."""

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """D8, D9, S15: snapshots and compaction are driven from outside."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        """S5, S6, S7: not reached, since no dump file is configured and no message carries a dump."""
        raise RaftBroken("the snapshot loader of the package was reached")

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """X1, L2: would unpickle; not reached, since applying is overridden as a whole."""
        raise RaftBroken("the apply of the package was reached")

    def _SyncObj__changeCluster(self, request: object) -> bool:  # noqa: N802
        """S8, S16: `set_members` instead."""
        raise RaftBroken("the membership change of the package was reached")

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802
        """D2: whoever sends what the replica says must first make this durable; the flag is for them."""
        self.term_unsynced = True
        syncobj.SyncObj._SyncObj__setCurrentTerm(self, term, voted_for)

    # -- private state

    def tick(self) -> None:
        """One tick of the package, or only the applying where the rest of it would do nothing: that is, while
        no timer has run out (L3, L4) and a leader has nothing to count. A whole tick comes every second, for
        the sake of its timer for the journal.
        """
        now_s = self.clock.monotonic()
        if self.is_leader:
            settled = now_s <= self.lead_due_s() and self.commit_index >= self.last_index
        else:
            settled = now_s <= self._SyncObj__raftElectionDeadline
        if settled and now_s < self._whole_tick_s:
            self._owner.apply_committed()
        else:
            self._whole_tick_s = now_s + 1.0
            self.doTick(0)
            self._quorum_until_s = self._followed_until_s()

    def _followed_until_s(self) -> float:
        """L4: when a leader steps down if nobody answers any more."""
        answers = self._SyncObj__lastResponseTime
        heard = sorted((answers[node] for node in self._SyncObj__otherNodes if node in answers), reverse=True)
        if not heard:
            return math.inf
        until_s: float = heard[(len(heard) - 1) // 2] + self.conf.leaderFallbackTimeout
        return until_s

    @property
    def standing(self) -> tuple[int, Node | None, int]:
        """Role, leader and term as the package has them; of use only to see that one has changed."""
        return self._SyncObj__raftState, self._SyncObj__raftLeader, self._SyncObj__raftCurrentTerm

    def _node(self, name: str) -> _Member:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Member(name)
        return node

    def set_members(self, voters: Iterable[str], learners: Iterable[str]) -> None:
        """S8, S16: who else there is, whenever an entry of the log says so or is cut off. The package counts
        the voters in its majorities; learners are to it what it calls read-only nodes, of which it keeps the
        same books and which it counts in nothing.
        """
        others, passive = ({self._node(name) for name in names} for names in (voters, learners))
        self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = others, passive
        if not self.is_leader:
            return
        now_s = self.clock.monotonic()
        for node in others | passive:
            self._SyncObj__raftNextIndex.setdefault(node, self.last_index + 1)
            self._SyncObj__raftMatchIndex.setdefault(node, 0)
            self._SyncObj__lastResponseTime.setdefault(node, now_s)
        for books in (
            self._SyncObj__raftNextIndex,
            self._SyncObj__raftMatchIndex,
            self._SyncObj__lastResponseTime,
        ):
            for node in [node for node in books if node not in others and node not in passive]:
                del books[node]
        self._quorum_until_s = self._followed_until_s()

    def receive(self, peer: str, message: dict[str, Any]) -> None:
        """Hand a message to the package. X2-X4: only from whom the transport admits, only the shapes that
        consensus.py makes. One that is no member here may be one elsewhere: this node may be behind."""
        self._SyncObj__onMessageReceived(self._node(peer), message)

    @property
    def log(self) -> Journal:
        """What the package has as its log too, since it was given this for one (createJournal)."""
        return self.journal

    @property
    def role(self) -> Role:
        return _ROLES[self._SyncObj__raftState]

    @property
    def is_leader(self) -> bool:
        return bool(self._SyncObj__raftState == _LEADER)

    @property
    def term(self) -> int:
        term: int = self._SyncObj__raftCurrentTerm
        return term

    @property
    def leader_id(self) -> str | None:
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.id

    @property
    def no_op_index(self) -> int:
        """Of this node's present office. Nothing earlier leaders committed is certain to be applied before
        (1.4)."""
        index: int | None = self._SyncObj__noopIDx
        return 0 if index is None else index

    @property
    def commit_index(self) -> int:
        index: int = self._SyncObj__raftCommitIndex
        return index

    @commit_index.setter
    def commit_index(self, index: int) -> None:
        """D3, S4: it starts at the snapshot, and a leader's own copy counts only once it is durable."""
        self._SyncObj__raftCommitIndex = index

    @property
    def applied_index(self) -> int:
        index: int = self._SyncObj__raftLastApplied
        return index

    @applied_index.setter
    def applied_index(self, index: int) -> None:
        """S9, S10: counted by us, entry by entry, before the results are handed out."""
        self._SyncObj__raftLastApplied = index

    @property
    def first_index(self) -> int:
        return self.journal[0][1]

    @property
    def last_index(self) -> int:
        return self.journal[-1][1]

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None if the log does not hold it."""
        log = self.journal
        position = index - log[0][1]
        return log[position][2] if 0 <= position < len(log) else None

    def entry(self, index: int) -> Entry:
        log = self.journal
        return log[index - log[0][1]]

    def match_index(self, peer: str) -> int:
        index: int = self._SyncObj__raftMatchIndex.get(self._node(peer), 0)
        return index

    def heard_at(self, peer: str, sent_s: float) -> None:
        """1.4: evidence of a quorum counts from when the answered question was sent, not from when an
        answer came."""
        self._SyncObj__lastResponseTime[self._node(peer)] = sent_s

    @property
    def campaign_due_s(self) -> float:
        """L3: when the election timer of a node that does not lead runs out."""
        deadline_s: float = self._SyncObj__raftElectionDeadline
        return deadline_s

    def lead_due_s(self) -> float:
        """When a leader owes a heartbeat, or (L4) may have been without a quorum for too long: not later than
        that, since answers since the last whole tick are not counted.
        """
        heartbeat_s: float = self._SyncObj__newAppendEntriesTime
        return min(heartbeat_s, self._quorum_until_s)

    def postpone_heartbeat(self) -> None:
        """L13: whoever has just been sent something needs no heartbeat before another period is over."""
        self._SyncObj__newAppendEntriesTime = self.clock.monotonic() + self.conf.appendEntriesPeriod

    def step_down(self, term: int) -> None:
        """L4: a higher term in any answer, as in Raft; the package looks at requests only."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(0)
        self._SyncObj__raftLeader = None

    def campaign_at(self, deadline_s: float) -> None:
        """Move the election timer, after the hint of a closed connection or where there is nobody to ask."""
        self._SyncObj__raftElectionDeadline = deadline_s
