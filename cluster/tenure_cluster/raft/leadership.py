"""One office of a leader: what it sends to its followers and what their answers mean.

Every message that asks for an answer carries a number from one counter, shared by all followers and all
offices of this process. Followers that stand at the same place are sent the same message object, which is
then encoded once.
"""

from collections.abc import Callable, Iterable, Set
from typing import Final, Protocol

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.engine import Replica
from tenure_cluster.raft.replication import Mode, Progress
from tenure_cluster.raft.types import RaftOptions

ENTRY_OVERHEAD_BYTES: Final = 16
"""Around a command in a message: array, term and length."""

Emit = Callable[[str, wire.Consensus], None]
_Shared = dict[tuple[int, bool], wire.Append]


class Numbers:
    """The counter behind the numbers of a leader's messages."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last


class SnapshotSource(Protocol):
    """Who sends snapshots. Called while the consensus is entered."""

    def on_snapshot_needed(self, peer: str) -> int:
        """A follower needs compacted entries; the answer is the index of the snapshot that it will be
        sent."""

    def on_snapshot_heartbeat(self, peer: str) -> None:
        """Time to send something to a follower that is being sent a snapshot."""


class Leadership:
    """Made when the office begins, dropped when it ends."""

    def __init__(
        self,
        *,
        replica: Replica,
        peers: Iterable[str],
        voters: Iterable[str],
        linked: Set[str],
        options: RaftOptions,
        numbers: Numbers,
        emit: Emit,
        source: SnapshotSource,
        on: Set[str],
    ) -> None:
        self.commit_before = replica.commit_index
        self._replica = replica
        self._linked = linked
        self.voters = frozenset(voters)
        """Followers that count in majorities; the others are learners."""
        self._options = options
        self._entry_bytes_max = options.entry_bytes_max
        self._numbers = numbers
        self._emit = emit
        self._source = source
        self._on = on
        self.followers = {peer: self._progress() for peer in peers}

    def _progress(self) -> Progress:
        return Progress(
            self._replica.last_index + 1,
            self._options.transfer_window_bytes,
            mitigations.FLIGHT_FILTER in self._on,
        )

    def set_members(self, peers: Iterable[str], voters: Iterable[str]) -> None:
        """Other members follow from now on. Who has just become one is sent what it lacks."""
        self.voters = frozenset(voters)
        self.followers = {peer: self.followers.get(peer) or self._progress() for peer in peers}

    # -- evidence

    def answered(self) -> dict[str, int]:
        """The number of the latest message that each follower with a vote has answered."""
        return {peer: self.followers[peer].answered_number for peer in sorted(self.voters)}

    def followed_since_s(self, now_s: float) -> float:
        """The latest time at which a majority is known to have followed."""
        times = sorted((self.followers[peer].answered_sent_s for peer in self.voters), reverse=True)
        needed = (len(times) + 1) // 2
        return times[needed - 1] if needed else now_s

    # -- sending

    def replicate(self, *, heartbeat: bool, announce: bool = False) -> None:
        """Send every follower what it lacks. `heartbeat`: at least something; `announce`: at least a new
        commit index. Whoever was sent anything needs no heartbeat for another period.
        """
        shared: _Shared = {}
        all_fed = True
        for peer, follower in self.followers.items():
            if peer in self._linked and not self._feed(
                peer, follower, shared, heartbeat=heartbeat, announce=announce
            ):
                all_fed = False
        if all_fed:
            self._replica.postpone_heartbeat()

    @property
    def owes_commit_index(self) -> bool:
        """Whether a follower that could be told has not been sent the commit index."""
        commit = self._replica.commit_index
        for peer, follower in self.followers.items():
            if follower.commit_sent < commit and peer in self._linked and follower.mode is not Mode.SNAPSHOT:
                return True
        return False

    def link_up(self, peer: str) -> None:
        """Nothing is known about what went over the connection before this one."""
        follower = self.followers.get(peer)
        if follower is None:
            return  # no member, or not yet
        follower.reconnected(self._numbers.last)
        self._feed(peer, follower, {}, heartbeat=True)

    def _feed(
        self,
        peer: str,
        follower: Progress,
        shared: _Shared,
        *,
        heartbeat: bool = False,
        announce: bool = False,
    ) -> bool:
        """L12: as much as the window allows; L5: never the same thing twice in one call. Answers whether
        anything was sent that the follower's log takes part in.
        """
        if follower.mode is not Mode.SNAPSHOT and follower.next_index <= self._replica.first_index:
            follower.begin_snapshot(self._source.on_snapshot_needed(peer))
            heartbeat = True
        if follower.mode is Mode.SNAPSHOT:
            if heartbeat:
                self._source.on_snapshot_heartbeat(peer)
            return False
        now_s, last, commit = (
            self._replica.clock.monotonic(),
            self._replica.last_index,
            self._replica.commit_index,
        )
        sent = False
        while follower.mode is Mode.STREAM and follower.next_index <= last and follower.may_send:
            message = self._append(follower.next_index, shared, empty=False)
            size = sum(len(command) + ENTRY_OVERHEAD_BYTES for _, command in message.entries)
            follower.sent(message.number, size, now_s)
            follower.next_index += len(message.entries)
            self._emit(peer, message)
            sent = True
        probe = follower.mode is Mode.PROBE and follower.may_send
        late = announce and follower.commit_sent < commit
        if not sent and (heartbeat or probe or late):
            message = self._append(follower.next_index, shared, empty=True)
            follower.sent(message.number, 0, now_s)
            self._emit(peer, message)
            sent = True
        if sent:
            follower.commit_sent = commit
        return sent

    def _append(self, next_index: int, shared: _Shared, *, empty: bool) -> wire.Append:
        if (message := shared.get((next_index, empty))) is not None:
            return message
        log = self._replica.log
        position = next_index - log[0][1]
        entries: list[tuple[int, bytes]] = []
        if not empty:
            size = 0
            while position + len(entries) < len(log):
                command, _, term = log[position + len(entries)]
                size += len(command) + ENTRY_OVERHEAD_BYTES
                if entries and size > self._entry_bytes_max:
                    break
                entries.append((term, command))
        _, prev_index, prev_term = log[position - 1]
        message = wire.Append(
            self._replica.term,
            self._numbers.next(),
            prev_index,
            prev_term,
            self._replica.commit_index,
            entries,
        )
        shared[next_index, empty] = message
        return message

    def send_snapshot(
        self, peer: str, index: int, snapshot_term: int, size: int, offset: int, data: bytes
    ) -> None:
        """A piece of a snapshot's file, or a heartbeat of the transfer if there is no data."""
        number = self._numbers.next()
        message = wire.Snapshot(self._replica.term, number, index, snapshot_term, size, offset, data)
        self.followers[peer].sent(number, len(data), self._replica.clock.monotonic())
        self._emit(peer, message)

    # -- answers

    def accepts(self, peer: str, term: int, number: int) -> bool:
        """Whether this is an answer to a question of this office.

        S3: answers of the stock engine carry no term, and one of an earlier office would be counted in this
        one. Numbers alone don't tell: those of this process's life before began at the same place.
        """
        if peer not in self.followers:
            return False  # it has been removed meanwhile
        if term != self._replica.term and mitigations.TERM_TAGS in self._on:
            return False
        known = self.followers[peer].answered(number)
        return known or mitigations.TERM_TAGS not in self._on

    def tells_nothing_new(self, peer: str, message: wire.AppendReply) -> bool:
        """Whether an answer is merely evidence of being followed, and its follower lacks nothing."""
        follower = self.followers.get(peer)
        return follower is not None and (
            message.ok
            and message.term == self._replica.term
            and message.next_index <= follower.match_index + 1
            and follower.mode is Mode.STREAM
            and follower.next_index > self._replica.last_index
        )

    def append_reply(self, peer: str, message: wire.AppendReply) -> None:
        follower = self.followers[peer]
        self.note(peer, message.next_index - 1 if message.ok else None)
        if not message.ok:
            follower.refused(message.number, message.next_index, self._numbers.last)
        self._feed(peer, follower, {})

    def snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        self.note(peer, message.index if message.done else None)
        self._feed(peer, self.followers[peer], {})

    def note(self, peer: str, match_index: int | None) -> None:
        """An answer has come; `match_index` if it says up to where the follower's log is ours."""
        follower = self.followers[peer]
        matches = match_index is not None and 0 <= match_index <= self._replica.last_index
        self._replica.receive(
            peer,
            {
                "type": "next_node_idx",
                "reset": False,
                "success": matches,
                "next_node_idx": match_index + 1 if match_index is not None and matches else 1,
            },
        )
        if match_index is not None and matches:
            follower.matched(match_index)
        self._replica.heard_at(peer, follower.answered_sent_s)

    # -- the commit rule

    def count_own_copy_when_durable(self) -> None:
        """The package counts a leader's own copy at once; it may be lost until it is synced (D1).

        The commit index may go as far as the durable part of the log, and only onto an entry of this term:
        one of an earlier term is committed by one of this term that follows it, which a majority must hold.
        """
        replica, durable = self._replica, self._replica.log.durable_index
        if replica.commit_index > durable:
            own_term = durable > self.commit_before and replica.term_at(durable) == replica.term
            replica.commit_index = durable if own_term else self.commit_before
        self.commit_before = replica.commit_index
