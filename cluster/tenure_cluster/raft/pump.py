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
and on a timer.

While a sync is slow a leader still sends heartbeats, which promise nothing new, but no longer than the
maximum election timeout: a leader whose disk hangs shall be replaced. An error of a sync ends the node at
once, before anything that waited for it leaves.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.cluster_clock import ClusterClock
from tenure_cluster.raft.consensus import Consensus, Outbox
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.engine import RaftBroken, verify_package
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.proposals import Done, Proposals
from tenure_cluster.raft.read_barrier import ReadBarrier, quorum_number
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.raft.snapshots import Snapshots
from tenure_cluster.raft.transport import Transport, frame
from tenure_cluster.raft.types import (
    NoQuorum,
    NotExecuted,
    NotLeader,
    RaftOptions,
    RaftStatus,
    RefusalReason,
    Role,
    StateMachine,
)

logger = logging.getLogger(__name__)

TICK_S: Final = 0.02
"""Period of the timer: how late an election timer, a heartbeat or a commit index may be on an idle node."""

_P = ParamSpec("_P")

INBOUND_BYTES_MAX: Final = 16 << 20
"""Messages that wait for a round; beyond, nothing is read from any peer until the round."""


MESSAGE_OVERHEAD_BYTES: Final = 256
"""What a message in memory costs besides what it carries, roughly."""


class Raft:
    """One member of the cluster. All methods belong to the thread of the event loop that ran `start`.

    `on`: the mitigations (mitigations.py); only tests leave some out. `on_fatal` is called once if this
    node must stop: a sync failed, the state machine raised, or an invariant of Raft does not hold. Nothing
    leaves the node after that.
    """

    def __init__(
        self,
        *,
        node_id: str,
        cluster_id: str,
        members: Mapping[str, str],
        listen: str,
        disk: Disk,
        clock: Clock,
        machine: StateMachine,
        options: RaftOptions,
        on_fatal: Callable[[BaseException], None],
        on: frozenset[str] = mitigations.ALL,
    ) -> None:
        if node_id not in members:
            raise ValueError(f"node {node_id!r} is not among the members {sorted(members)}")
        self.on_peer_message: Callable[[str, int, bytes], None] | None = None
        self.on_link: Callable[[str, bool], None] | None = None
        self.on_role: Callable[[Role, str | None, int], None] | None = None
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._peers = {peer: address for peer, address in members.items() if peer != node_id}
        self._disk = disk
        self._clock = clock
        self._machine = machine
        self._options = options
        self._on_fatal = on_fatal
        self._on = on
        self._timeout_max_s = options.election_timeout_max_ms / 1000
        self._proposals = Proposals(
            queue_max=options.queue_max,
            entry_bytes_max=options.entry_bytes_max,
            entry_commands_max=options.entry_commands_max,
        )
        self._reads = ReadBarrier()
        self._store = SnapshotStore(disk, cluster_id)
        self._snapshots = Snapshots(
            store=self._store,
            disk=disk,
            machine=machine,
            options=options,
            between_rounds=self._between_rounds,
            fail=self._fail,
        )
        self._transport = Transport(
            node_id=node_id,
            cluster_id=cluster_id,
            peers=self._peers,
            listen=listen,
            clock=clock,
            frame_bytes_max=options.frame_bytes_max,
            outbox_bytes_max=2 * options.transfer_window_bytes + 2 * options.frame_bytes_max,
            user=self,
        )
        self._consensus: Consensus | None = None
        self._journal: Journal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbound: list[tuple[str, wire.Consensus | None]] = []
        self._inbound_bytes = 0
        self._deferred: list[Callable[[], None]] = []
        self._turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._syncing_since_s: float | None = None
        self._sync_ended: asyncio.Future[None] | None = None
        self._held: Outbox = []
        self._heartbeat_s = 0.0
        self._observed_s = 0.0
        self._office = 0
        self._cluster_clock: ClusterClock | None = None
        self._told: tuple[Role, str | None, int] = ("follower", None, 0)
        self._drained: asyncio.Event | None = None
        self._stopping = False
        self._closing = False
        self._stopped = False

    # -- life

    async def start(self) -> None:
        """Recover from the disk, listen, dial.

        Raises PackageNotAudited, JournalDamaged, SnapshotDamaged, OSError: nothing was started then.
        """
        verify_package()
        self._loop = asyncio.get_running_loop()
        info = self._store.latest()
        self._journal = Journal.open(
            self._disk,
            self._clock,
            cluster_id=self._cluster_id,
            node_id=self._node_id,
            segment_bytes=self._options.journal_segment_bytes,
            snapshot=None if info is None else info.boundary,
        )
        if info is not None:
            self._machine.restore(self._store.chunks(info))
        self._consensus = Consensus(
            node_id=self._node_id,
            peers=self._peers,
            journal=self._journal,
            clock=self._clock,
            options=self._options,
            user=self,
            boundary=None if info is None else info.boundary,
            on=self._on,
        )
        self._journal.sync_now()
        self._consensus.synced()
        self._snapshots.consensus = self._consensus
        try:
            await self._transport.start()
        except BaseException:
            self._stopped = True
            self._journal.close()
            raise
        self._observed_s = self._clock.monotonic()
        self._timer = self._loop.call_later(TICK_S, self._on_timer)
        self._kick()

    async def stop(self) -> None:
        """Stop in good order: answer what is under way if that is quick, hand the office over, close
        everything.

        Every proposal has been answered when it returns. Idempotent.
        """
        self._stopping = True
        if self._consensus is None or self._stopped:
            return
        if not self._proposals.idle:
            self._drained = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.election_timeout_min_ms / 1000):
                    await self._drained.wait()
        self._closing = True
        if self._sync_ended is not None:
            await self._sync_ended
        if self._stopped:
            return
        self._consensus.heartbeat(announce_only=True)
        self._send(self._consensus.take_early())
        self._end(NotExecuted("shutting_down"))
        await self._transport.stop()
        assert self._journal is not None
        self._journal.close()

    async def abandon(self) -> None:
        """Stop as if the process had been killed: nothing more is sent, written or synced. Idempotent."""
        self._transport.cut()
        if not self._stopped:
            self._end(NotExecuted("shutting_down"))
        if self._sync_ended is not None:
            await self._sync_ended
        await self._transport.abandon()
        if self._journal is not None:
            self._journal.close()

    def _end(self, refusal: NotExecuted) -> None:
        """No round is run any more."""
        self._stopping = self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._snapshots.stop()
        self._reads.fail(NotLeader(None))
        self._proposals.end_office(refusal)
        self._answer()

    def _fail(self, error: BaseException) -> None:
        """This node must stop."""
        if self._stopped:
            return
        self._stopped = True
        self._transport.cut()
        logger.critical("this node stops: %s", error, exc_info=error)
        self._on_fatal(error)
        self._end(NotExecuted("shutting_down"))

    # -- proposals

    def propose(self, at_ms: int, command: bytes, done: Done) -> None:
        """Queue a command for the next entry. Never raises; `done` is called exactly once, on the loop,
        later."""
        reason: RefusalReason
        if self._stopping:
            reason = "shutting_down"
        elif self._consensus is None or self._consensus.office is None:
            reason = "not_leader"
        elif len(command) > self._proposals.command_bytes_max:
            reason = "too_large"
        elif self._proposals.is_full():
            reason = "queue_full"
        else:
            self._proposals.add(at_ms, command, done)
            self._kick()
            return
        loop = self._loop or asyncio.get_running_loop()
        loop.call_soon(self._tell, done, NotExecuted(reason, self.leader_id))

    def now_ms(self) -> int:
        """Cluster time: of this office on the leader, else the greatest stamp applied here."""
        if self._cluster_clock is None:
            return self._machine.time_ms
        return self._cluster_clock.now_ms(self._clock.monotonic())

    # -- reads

    async def read_barrier(self) -> None:
        """When it returns, the state applied here is at least as new as everything completed before the call.

        Raises NotLeader or NoQuorum; nothing has happened then.
        """
        consensus = self._consensus
        if consensus is None or consensus.office is None or self._stopping:
            raise NotLeader(self.leader_id)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        clock = self._cluster_clock
        stalls = 0 if clock is None else clock.stalls
        self._reads.add(settle)
        self._kick()
        try:
            async with asyncio.timeout(self._timeout_max_s):
                await future
        except TimeoutError:
            raise NoQuorum("no quorum has answered within the maximum election timeout") from None
        if clock is not None:
            clock.confirm(stalls)

    async def confirm(self) -> None:
        """Confirm the leadership by a quorum round, of which the reaper has need after a stall."""
        await self.read_barrier()

    @property
    def confirmed(self) -> bool:
        """Whether this node leads and its event loop has not stalled since a quorum was last seen to follow
        it."""
        return self._cluster_clock is not None and self._cluster_clock.confirmed

    # -- peers

    def send(self, peer_id: str, payload: bytes) -> int | None:
        """Send bytes to a peer; the epoch of the link, or None if there is no link or no room."""
        epoch = self._transport.epoch(peer_id)
        too_large = len(payload) > self._options.frame_bytes_max - wire.PAYLOAD_OVERHEAD_BYTES
        if epoch is None or too_large or not self._transport.has_room(peer_id, len(payload)):
            return None
        self._transport.send(peer_id, frame(wire.Payload(payload)))
        return epoch

    # -- views

    def is_leader(self) -> bool:
        return self._consensus is not None and self._consensus.office is not None and not self._stopped

    def serving(self) -> bool:
        """Whether this node leads and has applied everything that earlier leaders committed."""
        return self._consensus is not None and self._consensus.serving and not self._stopped

    @property
    def leader_id(self) -> str | None:
        return None if self._consensus is None else self._consensus.replica.leader_id

    @property
    def port(self) -> int:
        """The port on which this node listens for its peers."""
        return self._transport.port

    def status(self) -> RaftStatus:
        consensus, journal = self._consensus, self._journal
        if consensus is None or journal is None:
            raise RuntimeError("not started")
        replica, office = consensus.replica, consensus.office
        now_s = self._clock.monotonic()
        if office is not None:
            quorum = now_s - office.followed_since_s(now_s) < self._timeout_max_s
        else:
            quorum = replica.leader_id is not None
        return RaftStatus(
            node_id=self._node_id,
            role=replica.role,
            leader_id=replica.leader_id,
            term=replica.term,
            commit_index=replica.commit_index,
            applied_index=replica.applied_index,
            last_index=replica.last_index,
            match_index={} if office is None else {peer: replica.match_index(peer) for peer in self._peers},
            connected=self._transport.linked(),
            quorum=quorum,
            queued=self._proposals.queued,
            snapshot_index=self._snapshots.latest_index,
            journal_bytes=journal.stats.bytes,
            journal_syncs=journal.stats.syncs,
        )

    # -- rounds

    def _kick(self) -> None:
        """Run a round soon; the end of a sync runs one by itself."""
        if not self._turn_scheduled and self._syncing_since_s is None and not self._stopped:
            self._turn_scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._turn)

    def _between_rounds(self, work: Callable[[], None]) -> None:
        """Do this at the beginning of the next round, when no sync is under way."""
        self._deferred.append(work)
        self._kick()

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self._stopped or self._closing or self._syncing_since_s is not None:
            return
        try:
            self._round()
        except Exception as error:
            self._fail(error)

    def _round(self) -> None:
        consensus = self._consensus
        assert consensus is not None
        self._observe()
        before = consensus.last_number
        deferred, self._deferred = self._deferred, []
        for work in deferred:
            work()
        self._deliver(consensus)
        self._note_office(consensus)
        consensus.tick()
        self._note_office(consensus)
        appended = self._append(consensus)
        self._begin_reads(consensus, before, appended)
        self._barrier(consensus)
        if self._stopped:
            return
        if consensus.office is not None and len(self._reads):
            answered = quorum_number(consensus.office.answered(), len(self._peers) + 1)
            self._reads.advance(answered, consensus.replica.applied_index)
        self._answer()
        self._snapshots.make_if_due()
        if consensus.behind or (self._proposals.queued and not self._proposals.appended):
            self._kick()

    def _deliver(self, consensus: Consensus) -> None:
        inbound, self._inbound, self._inbound_bytes = self._inbound, [], 0
        for peer, message in inbound:
            if message is not None:
                consensus.deliver(peer, message)
            elif (delay_s := consensus.leader_gone(peer)) is not None:
                assert self._loop is not None
                self._loop.call_later(delay_s + 0.001, self._kick)
        self._transport.pause(False)

    def _append(self, consensus: Consensus) -> bool:
        """One entry of all that is queued, unless one is under way: then the next one grows meanwhile."""
        if consensus.office is None or self._proposals.appended:
            return False
        taken = self._proposals.take()
        if taken is None:
            return False
        command, batch = taken
        index = consensus.append(command)
        self._proposals.append(index, consensus.replica.term, batch)
        return True

    def _begin_reads(self, consensus: Consensus, before: int, appended: bool) -> None:
        """Reads that wait are confirmed by the messages of this round; if it has none, by heartbeats."""
        if self._reads.wants_round and consensus.serving:
            if not appended:
                consensus.heartbeat()
            self._reads.begin_round(before + 1, consensus.replica.commit_index)

    def _barrier(self, consensus: Consensus) -> None:
        assert self._journal is not None
        ticket = self._journal.flush_batch()
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
        self._sync_ended = asyncio.get_running_loop().create_future()
        self._disk.run(ticket.sync, self._synced)

    def _synced(self, error: BaseException | None) -> None:
        self._syncing_since_s = None
        ended, self._sync_ended = self._sync_ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)
        held, self._held = self._held, []
        if self._stopped:
            return
        if error is not None:
            self._fail(error)
            return
        assert self._journal is not None
        assert self._consensus is not None
        try:
            self._journal.mark_durable()
        except Exception as broken:
            self._fail(broken)
            return
        self._consensus.synced()
        self._send(held)
        self._send(self._consensus.take_early())
        self._turn()

    def _send(self, outbox: Outbox) -> None:
        encoded: wire.Consensus | None = None
        data = b""
        for peer, message in outbox:
            if message is not encoded:
                encoded, data = message, frame(message)
            self._transport.send(peer, data)

    def _answer(self) -> None:
        for done, outcome in self._proposals.take_answers():
            self._tell(done, outcome)
        if self._drained is not None and self._proposals.idle:
            self._drained.set()

    def _tell(self, callback: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """S9: what a callback raises is its own affair."""
        try:
            callback(*args, **kwargs)
        except Exception:
            logger.exception("a callback of the consensus part raised")

    # -- timers

    def _observe(self) -> float:
        """Look at the clocks; how long nobody has."""
        now_s = self._clock.monotonic()
        gap_s, self._observed_s = now_s - self._observed_s, now_s
        if self._cluster_clock is not None:
            self._cluster_clock.observe(now_s)
        return gap_s

    def _on_timer(self) -> None:
        if self._stopped:
            return
        assert self._loop is not None
        assert self._consensus is not None
        self._timer = self._loop.call_later(TICK_S, self._on_timer)
        gap_s = self._observe()
        if self._syncing_since_s is not None:
            self._heartbeat_while_syncing(self._consensus, self._syncing_since_s)
        elif gap_s > self._options.election_timeout_min_ms / 2000:
            # L3: after a pause, read what the peers have sent meanwhile before any timer is looked at.
            self._loop.call_later(0.001, self._kick)
        else:
            self._consensus.heartbeat(announce_only=True)
            self._turn()

    def _heartbeat_while_syncing(self, consensus: Consensus, since_s: float) -> None:
        now_s = self._clock.monotonic()
        if now_s - since_s < self._timeout_max_s and now_s >= self._heartbeat_s:
            self._heartbeat_s = now_s + self._options.heartbeat_ms / 1000
            consensus.heartbeat()
            self._send(consensus.take_early())

    # -- offices

    def _note_office(self, consensus: Consensus) -> None:
        """Act on a change of office, and tell about a change of role."""
        office = consensus.offices if consensus.office is not None else 0
        replica = consensus.replica
        if office != self._office:
            if self._office:
                self._cluster_clock = None
                self._proposals.end_office(NotExecuted("not_leader", replica.leader_id))
                self._reads.fail(NotLeader(replica.leader_id))
                self._snapshots.end_office()
            if office:
                base_ms = max(self._machine.time_ms, self._last_stamp_ms(consensus))
                stall_after_s = self._options.election_timeout_min_ms / 2000
                self._cluster_clock = ClusterClock(base_ms, self._clock.monotonic(), stall_after_s)
                self._proposals.begin_office(base_ms)
            self._office = office
        told = (replica.role, replica.leader_id, replica.term)
        if told != self._told:
            self._told = told
            if self.on_role is not None:
                self._tell(self.on_role, *told)

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
        pairs = self._proposals.pairs(index, term)
        if pairs is None:
            pairs = wire.decode_entry(command)
        results = self._machine.apply(index, pairs) if pairs else ()
        if len(results) != len(pairs):
            raise RaftBroken(f"{len(results)} results for {len(pairs)} commands at {index}")
        self._proposals.applied(index, term, results)
        self._snapshots.entry_applied(len(command))

    def on_snapshot_needed(self, peer: str) -> int:
        return self._snapshots.start_sending(peer)

    def on_snapshot_heartbeat(self, peer: str) -> None:
        self._snapshots.ask(peer)

    def on_snapshot(self, peer: str, message: wire.Snapshot) -> None:
        self._snapshots.received(peer, message)

    def on_snapshot_reply(self, peer: str, message: wire.SnapshotReply) -> None:
        self._snapshots.answered(peer, message)

    # -- what the transport tells

    def on_consensus(self, peer: str, message: wire.Consensus, size: int) -> None:
        self._inbound.append((peer, message))
        self._inbound_bytes += size + MESSAGE_OVERHEAD_BYTES
        if self._inbound_bytes > INBOUND_BYTES_MAX:
            self._transport.pause(True)
        self._kick()

    def on_payload(self, peer: str, epoch: int, body: bytes) -> None:
        if self.on_peer_message is not None and not self._stopped:
            self._tell(self.on_peer_message, peer, epoch, body)

    def on_gone(self, peer: str) -> None:
        # In order with the messages that came before.
        self._inbound.append((peer, None))
        self._kick()

    def on_linked(self, peer: str, up: bool) -> None:
        if self._consensus is None or self._stopped:
            return
        if up:
            self._consensus.link_up(peer)
            self._send(self._consensus.take_early())
        else:
            self._consensus.link_down(peer)
        if self.on_link is not None:
            self._tell(self.on_link, peer, up)
