"""The rounds of one member: the durability barrier and the group commit.

A round is one turn of the event loop, without waiting:

1. Deliver what has come from the peers.
2. Tick: timers, the commit index, applying what is committed.
3. If this node leads and has no entry under way: form one entry of all queued proposals, append it and send
   it.
4. Write everything that the journal took in as one batch. What promises nothing of this disk leaves at
   once; that is what a leader sends, so its followers sync while it does.
5. One sync, off the loop. Until it has ended nothing is delivered and nothing ticks, so nothing that is not
   durable here is ever counted, by this node or by another one. Then all the rest leaves: answers, votes,
   requests for votes.
6. Answer the callers whose entries were applied.

Proposals that come while a round is under way fill the next entry: throughput rises with the number of
callers, at one sync a round and node. Rounds are run when there is something to do, coalesced by the loop,
and by a timer when the consensus has something due: a heartbeat, an election, a commit index to be told.
Between them the timer only looks at the clock, so an idle node costs next to nothing.

While a sync is slow a leader still sends heartbeats, which promise nothing new, but no longer than the
maximum election timeout: a leader whose disk hangs shall be replaced. An error of a sync ends the node at
once, before anything that waited for it leaves.
"""

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable
from typing import Final, ParamSpec, Protocol

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.cluster_clock import ClusterClock
from tenure_cluster.raft.consensus import Consensus, Outbox
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.engine import RaftBroken
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.link import frame
from tenure_cluster.raft.membership import ENTRY_TYPE
from tenure_cluster.raft.orders import Orders
from tenure_cluster.raft.proposals import Proposals
from tenure_cluster.raft.read_barrier import ReadBarrier, quorum_number
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.raft.snapshots import SnapshotNews, Snapshots
from tenure_cluster.raft.transport import Transport
from tenure_cluster.raft.types import NotExecuted, NotLeader, RaftOptions, Role, Stage, StateMachine

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")

TICK_S: Final = 0.02
"""How late followers may learn of a commit index on an idle leader, and the time after which a round that
left something due is followed by another one."""

GRAIN_S: Final = 0.001
"""The timer runs out so much later than what it waits for, so that this is certain to be due then."""

LOOKS_PER_STALL: Final = 4
"""Looks at the clock, at least, in the span from which it counts as a stall that nobody looked."""

INBOUND_BYTES_MAX: Final = 16 << 20
"""Messages that wait for a round; beyond, nothing is read from any peer until the round."""

MESSAGE_OVERHEAD_BYTES: Final = 256
"""What a message in memory costs besides what it carries, roughly."""


class Listener(Protocol):
    """Who is told what happens. What these raise is logged and harms nobody."""

    on_peer_message: Callable[[str, int, bytes], None] | None
    on_link: Callable[[str, bool], None] | None
    on_heard_anew: Callable[[str, int], None] | None
    on_role: Callable[[Role, str | None, int], None] | None
    on_sync: Callable[[float], None] | None
    on_snapshot: Callable[[SnapshotNews], None] | None
    on_stage: Callable[[Stage, int], None] | None
    on_removed: Callable[[str], None] | None


class Pump:
    """The rounds of one member, from `start` on. Told of what comes by the transport and by the consensus."""

    def __init__(
        self,
        *,
        disk: Disk,
        store: SnapshotStore,
        clock: Clock,
        machine: StateMachine,
        options: RaftOptions,
        listener: Listener,
        on_fatal: Callable[[BaseException], None],
        on: frozenset[str],
    ) -> None:
        self.consensus: Consensus | None = None
        self.journal: Journal | None = None
        self.cluster_clock: ClusterClock | None = None
        self.proposals = Proposals(
            queue_max=options.queue_max,
            entry_bytes_max=options.entry_bytes_max,
            entry_commands_max=options.entry_commands_max,
        )
        self.reads = ReadBarrier()
        self.snapshots = Snapshots(
            store=store,
            disk=disk,
            machine=machine,
            options=options,
            between_rounds=self._between_rounds,
            fail=self.fail,
            news=self._on_snapshot_news,
        )
        timeout_s = options.election_timeout_max_ms / 1000
        self.orders = Orders(timeout_s, self.snapshots, self.tell, self._removed_by)
        self.removed = False
        """This node is no member any more, and has said so."""
        self.drained: asyncio.Event | None = None
        """Set when there is no proposal left to answer; somebody who waits for that puts it here."""
        self.sync_ended: asyncio.Future[None] | None = None
        """Of the sync that is under way."""
        self.closing = False
        """No new round begins."""
        self.stopped = False
        self._disk = disk
        self._clock = clock
        self._machine = machine
        self._options = options
        self._listener = listener
        self._on_fatal = on_fatal
        self._on = on
        self._timeout_max_s = options.election_timeout_max_ms / 1000
        self._look_s = options.election_timeout_min_ms / 2000 / LOOKS_PER_STALL
        self._transport: Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()
        """Rounds run in that of the start, not in that of the request that happened to ask for them."""
        self._inbound: list[tuple[str, wire.Consensus | None]] = []
        self._inbound_bytes = 0
        self._deferred: list[Callable[[], None]] = []
        self._turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        self._syncing_since_s: float | None = None
        self._held: Outbox = []
        self._heartbeat_s = 0.0
        self._observed_s = 0.0
        self._office = 0
        self._standing: object = None

    # -- life

    def begin(self, consensus: Consensus, journal: Journal, transport: Transport) -> None:
        """What rounds work on is there; messages may come."""
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        self._observed_s = self._clock.monotonic()
        self.consensus, self.journal, self._transport = consensus, journal, transport
        self.snapshots.consensus = consensus
        self.orders.begin(consensus, transport)

    def start(self) -> None:
        """Run rounds."""
        assert self._loop is not None
        self._wake_by(math.inf)
        self.kick()

    def end(self) -> None:
        """No round is run any more, and every caller is answered."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.snapshots.stop()
        self.reads.fail(NotLeader(None))
        self.orders.end(NotLeader(None))
        self.proposals.end_office(NotExecuted("shutting_down"))
        self._answer()

    def fail(self, error: BaseException) -> None:
        """This node must stop."""
        if self.stopped:
            return
        self.stopped = True
        if self._transport is not None:
            self._transport.cut()
        logger.critical("this node stops: %s", error, exc_info=error)
        self._on_fatal(error)
        self.end()

    def announce_commit(self) -> None:
        """The last words of a leader: followers then apply all that it has answered."""
        if self.consensus is not None:
            self.consensus.heartbeat(announce_only=True)
            self._send(self.consensus.take_early())

    # -- rounds

    def kick(self) -> None:
        """Run a round soon; the end of a sync runs one by itself."""
        if not self._turn_scheduled and self._syncing_since_s is None and not self.stopped:
            self._turn_scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._turn, context=self._context)

    def _between_rounds(self, work: Callable[[], None]) -> None:
        """Do this at the beginning of the next round, when no sync is under way."""
        self._deferred.append(work)
        self.kick()

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self.stopped or self.closing or self._syncing_since_s is not None:
            return
        try:
            self._round()
        except Exception as error:
            self.fail(error)

    def _round(self) -> None:
        consensus = self.consensus
        assert consensus is not None
        self._observe()
        before = consensus.last_number
        if self._deferred:
            deferred, self._deferred = self._deferred, []
            for work in deferred:
                work()
        self._deliver(consensus)
        self._note_office(consensus)
        consensus.tick()
        self._note_office(consensus)
        appended = self._append(consensus)
        appended = self.orders.advance(consensus, self._observed_s) or appended
        self.orders.settle(consensus)
        self._begin_reads(consensus, before, appended)
        self._barrier(consensus)
        if self.stopped:
            return
        if not self.reads.idle and consensus.office is not None:
            answered = quorum_number(consensus.office.answered(), consensus.voter_count)
            self.reads.advance(answered, consensus.replica.applied_index)
        self._answer()
        self.snapshots.make_if_due()
        takes = not self.proposals.appended and not self.orders.transfers.holds
        if consensus.behind or (self.proposals.queued and takes):
            self.kick()
        self._wake_by(min(consensus.due_s(), self.orders.transfers.due_s))

    def _deliver(self, consensus: Consensus) -> None:
        if not self._inbound:
            return
        inbound, self._inbound, self._inbound_bytes = self._inbound, [], 0
        for peer, message in inbound:
            if message is not None:
                consensus.deliver(peer, message)
            elif (delay_s := consensus.leader_gone(peer)) is not None:
                assert self._loop is not None
                self._loop.call_later(delay_s + 0.001, self.kick)
        assert self._transport is not None
        self._transport.pause(False)

    def _append(self, consensus: Consensus) -> bool:
        """One entry of all that is queued, unless one is under way: then the next one grows meanwhile."""
        if not self.proposals.queued or consensus.office is None or self.proposals.appended:
            return False
        if self.orders.transfers.holds:
            return False
        taken = self.proposals.take()
        if taken is None:
            return False
        command, batch = taken
        index = consensus.append(command)
        self.proposals.append(index, consensus.replica.term, batch)
        self._tell_stage("appended", index)
        return True

    def _begin_reads(self, consensus: Consensus, before: int, appended: bool) -> None:
        """Reads that wait are confirmed by the messages of this round; if it has none, by heartbeats."""
        if self.reads.wants_round and consensus.serving:
            if not appended:
                consensus.heartbeat()
            self.reads.begin_round(before + 1, consensus.replica.commit_index)

    def _barrier(self, consensus: Consensus) -> None:
        assert self.journal is not None
        ticket = self.journal.flush_batch()
        if ticket is None:
            consensus.synced()
        self._send(consensus.take_early())
        held = consensus.take_held()
        if ticket is None:
            self._send(held)
            return
        if mitigations.SYNC not in self._on:
            self._send(held)
            held = []
        self._held = held
        self._syncing_since_s = self._clock.monotonic()
        self.sync_ended = asyncio.get_running_loop().create_future()
        self._disk.run(ticket.sync, self._synced)

    def _synced(self, error: BaseException | None) -> None:
        since_s, self._syncing_since_s = self._syncing_since_s, None
        if self._listener.on_sync is not None and since_s is not None:
            self.tell(self._listener.on_sync, self._clock.monotonic() - since_s)
        ended, self.sync_ended = self.sync_ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)
        held, self._held = self._held, []
        if self.stopped:
            return
        if error is not None:
            self.fail(error)
            return
        assert self.journal is not None
        assert self.consensus is not None
        try:
            self.journal.mark_durable()
        except Exception as broken:
            self.fail(broken)
            return
        self._tell_stage("durable", self.consensus.replica.last_index)
        self.consensus.synced()
        self._send(held)
        self._send(self.consensus.take_early())
        self._turn()

    def _send(self, outbox: Outbox) -> None:
        if not outbox:
            return
        transport = self._transport
        assert transport is not None
        encoded: wire.Consensus | None = None
        data = b""
        for peer, message in outbox:
            if message is not encoded:
                encoded, data = message, frame(message)
            transport.put(peer, data)
        transport.flush()

    def _answer(self) -> None:
        for done, outcome in self.proposals.take_answers():
            self.tell(done, outcome)
        if self.drained is not None and self.proposals.idle:
            self.drained.set()

    def tell(self, callback: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """S9: what a callback raises is its own affair."""
        try:
            callback(*args, **kwargs)
        except Exception:
            logger.exception("a callback of the consensus part raised")

    def _tell_stage(self, stage: Stage, index: int) -> None:
        if self._listener.on_stage is not None:
            self.tell(self._listener.on_stage, stage, index)

    # -- timers

    def _observe(self) -> float:
        """Look at the clocks; how long nobody has."""
        now_s = self._clock.monotonic()
        gap_s, self._observed_s = now_s - self._observed_s, now_s
        if self.cluster_clock is not None:
            self.cluster_clock.observe(now_s)
        return gap_s

    def _wake_by(self, due_s: float) -> None:
        """Have the timer run out when this is due, and in time for the next look at the clock. Only what has
        just been looked at may be overdue.
        """
        if due_s >= self._timer_at_s:
            return
        now_s = self._observed_s
        at_s = min(due_s if due_s > now_s else now_s + TICK_S, now_s + self._look_s) + GRAIN_S
        if at_s < self._timer_at_s:
            assert self._loop is not None
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at_s = at_s
            self._timer = self._loop.call_later(at_s - now_s, self._on_timer, context=self._context)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_s = None, math.inf
        if self.stopped:
            return
        assert self._loop is not None
        consensus = self.consensus
        assert consensus is not None
        gap_s = self._observe()
        due_s = math.inf
        if self._syncing_since_s is not None:
            due_s = self._heartbeat_while_syncing(consensus, self._syncing_since_s)
        elif gap_s > self._options.election_timeout_min_ms / 2000:
            # L3: after a pause, read what the peers have sent meanwhile before any timer is looked at.
            self._loop.call_later(0.001, self.kick)
        elif (due_s := min(consensus.due_s(), self.orders.transfers.due_s)) < self._observed_s:
            consensus.heartbeat(announce_only=True)
            self._turn()
            due_s = math.inf
        if not self.stopped:
            self._wake_by(due_s)

    def _heartbeat_while_syncing(self, consensus: Consensus, since_s: float) -> float:
        """Answers when the next one is due."""
        now_s = self._observed_s
        if consensus.office is None or now_s - since_s >= self._timeout_max_s:
            return math.inf
        due_s = max(self._heartbeat_s, consensus.due_s())
        if due_s < now_s:
            due_s = self._heartbeat_s = now_s + self._options.heartbeat_ms / 1000
            consensus.heartbeat()
            self._send(consensus.take_early())
        return due_s

    # -- offices

    def _note_office(self, consensus: Consensus) -> None:
        """Act on a change of office, and tell about a change of role."""
        office = consensus.offices if consensus.office is not None else 0
        replica = consensus.replica
        if office != self._office:
            if self._office:
                self.cluster_clock = None
                self.proposals.end_office(NotExecuted("not_leader", replica.leader_id))
                self.reads.fail(NotLeader(replica.leader_id))
                self.snapshots.end_office()
                self.orders.end_office(replica.leader_id)
            if office:
                base_ms = max(self._machine.time_ms, self._last_stamp_ms(consensus))
                stall_after_s = self._options.election_timeout_min_ms / 2000
                self.cluster_clock = ClusterClock(base_ms, self._clock.monotonic(), stall_after_s)
                self.proposals.begin_office(base_ms)
            self._office = office
        standing = replica.standing
        if standing != self._standing:
            self._standing = standing
            self.orders.transfers.standing_changed(consensus, office_ended=not office)
            if self._listener.on_role is not None:
                self.tell(self._listener.on_role, replica.role, replica.leader_id, replica.term)

    def _last_stamp_ms(self, consensus: Consensus) -> int:
        """The greatest stamp in the log, which is the last one, since stamps never fall along it."""
        replica = consensus.replica
        for index in range(replica.last_index, replica.applied_index, -1):
            pairs = wire.decode_entry(replica.entry(index)[0])
            if pairs:
                return pairs[-1][0]
        return 0

    # -- what the consensus tells

    def on_apply(self, index: int, term: int, command: bytes) -> None:
        pairs = self.proposals.pairs(index, term)
        if pairs is None:
            pairs = wire.decode_entry(command)
        self._tell_stage("committed", index)
        results = self._machine.apply(index, pairs) if pairs else ()
        if len(results) != len(pairs):
            raise RaftBroken(f"{len(results)} results for {len(pairs)} commands at {index}")
        self._tell_stage("applied", index)
        self.proposals.applied(index, term, results)
        if command[:1] == ENTRY_TYPE:
            assert self.consensus is not None
            self.orders.applied(self.consensus, index, term)
        self.snapshots.entry_applied(len(command))

    def _on_snapshot_news(self, news: SnapshotNews) -> None:
        if news == "installed" and self.consensus is not None:
            self.orders.installed(self.consensus)
        if self._listener.on_snapshot is not None:
            self.tell(self._listener.on_snapshot, news)

    def on_snapshot_needed(self, peer: str) -> int:
        return self.snapshots.start_sending(peer)

    def on_snapshot_heartbeat(self, peer: str) -> None:
        self.snapshots.ask(peer)

    def on_snapshot(self, peer: str, message: wire.Snapshot) -> None:
        self.snapshots.received(peer, message)

    def on_snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        self.snapshots.answered(peer, message)

    # -- what the transport tells

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None:
        self._inbound.append((peer, message))
        self._inbound_bytes += size + MESSAGE_OVERHEAD_BYTES
        if self._inbound_bytes > INBOUND_BYTES_MAX:
            assert self._transport is not None
            self._transport.pause(True)
        elif self.reads.idle and self.consensus is not None and self.consensus.may_wait(peer, message):
            # The answer to a heartbeat is not worth a round: the next one, or the next heartbeat's, hears it.
            return
        self.kick()

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None:
        if self._listener.on_peer_message is not None and not self.stopped:
            self.tell(self._listener.on_peer_message, peer, epoch, body)

    def on_heard_anew(self, peer: str, epoch: int) -> None:
        if self._listener.on_heard_anew is not None and not self.stopped:
            self.tell(self._listener.on_heard_anew, peer, epoch)

    def on_removed(self, peer: str, why: str) -> None:
        """A peer will not have this node: it is no member any more, by an entry that is committed there."""
        self._removed(f"{peer} says: {why}")

    def _removed_by(self, index: int) -> None:
        self._removed(f"by entry {index}")

    def _removed(self, how: str) -> None:
        if not self.removed and not self.stopped:
            self.removed = True
            if self._listener.on_removed is not None:
                self.tell(self._listener.on_removed, how)

    def on_gone(self, peer: str) -> None:
        # In order with the messages that came before.
        self._inbound.append((peer, None))
        self.kick()

    def on_linked(self, peer: str, up: bool) -> None:
        if self.consensus is None or self.stopped:
            return
        if up:
            self.orders.transfers.link_up(peer)
            self.consensus.link_up(peer)
            self._send(self.consensus.take_early())
        else:
            self.consensus.link_down(peer)
        if self._listener.on_link is not None:
            self.tell(self._listener.on_link, peer, up)
