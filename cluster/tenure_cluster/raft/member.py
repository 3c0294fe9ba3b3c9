"""One member of the cluster, as the rest of the node sees it."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.changes import Done as ChangeDone
from tenure_cluster.raft.clock import Clock
from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.engine import verify_package
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.link import frame
from tenure_cluster.raft.members_file import check_members, first_members, remember_removal
from tenure_cluster.raft.membership import Change, Members, Membership, bootstrap, of_snapshot
from tenure_cluster.raft.peer_tls import PeerTls
from tenure_cluster.raft.proposals import Done, DoneAll
from tenure_cluster.raft.pump import Pump
from tenure_cluster.raft.snapshot_export import SnapshotExport, export
from tenure_cluster.raft.snapshot_file import SnapshotInfo, SnapshotStore
from tenure_cluster.raft.snapshots import SnapshotNews
from tenure_cluster.raft.transfer import Done as TransferDone
from tenure_cluster.raft.transfer import Transferred
from tenure_cluster.raft.transport import Transport
from tenure_cluster.raft.types import (
    NoQuorum,
    NotExecuted,
    NotLeader,
    Outcome,
    RaftError,
    RaftOptions,
    RaftStatus,
    RefusalReason,
    Role,
    Stage,
    StateMachine,
)


class Raft:
    """One member of the cluster. All methods belong to the thread of the event loop that ran `start`.

    `on`: the mitigations (mitigations.py); only tests leave some out. `tls`: without it peers are believed
    who they say they are. `knows`: the highest number of what `machine` can apply and the version of the
    program, which peers are told. `joins`: at its first start it knows of no members, until a leader that has
    made it one says so; `address`: where peers are to dial it, which they are told. `on_fatal` is called once
    if this node must stop: a sync failed, the state machine raised, or an invariant of Raft does not hold.
    Nothing leaves the node after that.
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
        tls: PeerTls | None = None,
        knows: tuple[int, str] = (0, ""),
        joins: bool = False,
        address: str = "",
    ) -> None:
        if node_id not in members:
            raise ValueError(f"node {node_id!r} is not among the members {sorted(members)}")
        self.on_peer_message: Callable[[str, int, bytes], None] | None = None
        self.on_link: Callable[[str, bool], None] | None = None
        self.on_heard_anew: Callable[[str, int], None] | None = None
        """Told by which connection a peer sends from now on."""
        self.on_role: Callable[[Role, str | None, int], None] | None = None
        self.on_sync: Callable[[float], None] | None = None
        """Told how many seconds each sync of the journal took."""
        self.on_snapshot: Callable[[SnapshotNews], None] | None = None
        self.on_stage: Callable[[Stage, int], None] | None = None
        """Told how far entries have come, by their index; see types.Stage."""
        self.on_removed: Callable[[str], None] | None = None
        """Told once, and how it is known, that this node has been removed from the cluster: it must stop. It
        will not start again with this data."""
        self._joins = joins
        self._members: Members | None = None
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._peers = {peer: address for peer, address in members.items() if peer != node_id}
        self._disk = disk
        self._clock = clock
        self._machine = machine
        self._options = options
        self._on = on
        self._stopping = False
        self.started_empty = False
        """Whether it had no log and no vote when it started: one of the first members of a new cluster, or
        one that lost its data. Who joins a cluster is none of these."""
        self._store = SnapshotStore(disk, cluster_id)
        self._pump = Pump(
            disk=disk,
            store=self._store,
            clock=clock,
            machine=machine,
            options=options,
            listener=self,
            on_fatal=on_fatal,
            on=on,
        )
        self._transport = Transport(
            node_id=node_id,
            cluster_id=cluster_id,
            peers=self._peers,
            listen=listen,
            clock=clock,
            frame_bytes_max=options.frame_bytes_max,
            outbox_bytes_max=2 * options.transfer_window_bytes + 2 * options.frame_bytes_max,
            user=self._pump,
            tls=tls,
            knows=knows,
            address=address,
        )

    def hear_refusals(self, refused: Callable[[str, str], None]) -> None:
        """Be told which peers refuse this node, and why. Call it before `start`."""
        self._transport.on_refused = refused

    @property
    def _consensus(self) -> Consensus | None:
        return self._pump.consensus

    @property
    def _journal(self) -> Journal | None:
        return self._pump.journal

    # -- life

    async def start(self) -> None:
        """Recover from the disk, listen, dial.

        Raises PackageNotAudited, MembersDiffer, NodeRemoved, JournalDamaged, SnapshotDamaged, OSError:
        nothing was started then.
        """
        verify_package()
        info = self._store.latest()
        journal = Journal.open(
            self._disk,
            self._clock,
            cluster_id=self._cluster_id,
            node_id=self._node_id,
            segment_bytes=self._options.journal_segment_bytes,
            snapshot=None if info is None else info.boundary,
        )
        try:
            members = self._recover_members(journal, info)
        except BaseException:
            journal.close()
            raise
        if info is not None:
            self._machine.restore(self._store.chunks(info), info.index)
        consensus = Consensus(
            node_id=self._node_id,
            members=members,
            journal=journal,
            clock=self._clock,
            options=self._options,
            user=self._pump,
            boundary=None if info is None else info.boundary,
            on=self._on,
        )
        empty = consensus.replica.last_index <= 1 and consensus.replica.term == 0
        self.started_empty = empty and bool(members.current.members)
        journal.sync_now()
        consensus.synced()
        self._pump.begin(consensus, journal, self._transport)
        try:
            await self._transport.start()
        except BaseException:
            self._pump.stopped = True
            journal.close()
            raise
        self._pump.start()

    def _recover_members(self, journal: Journal, info: SnapshotInfo | None) -> Members:
        """As the snapshot and the log say; before they say anything, as at the first start."""
        configured = [self._node_id, *self._peers]
        first = first_members(self._disk, configured, joins=self._joins)
        base = None if info is None else of_snapshot(info.members)
        members = Members(self._node_id, base or bootstrap(first))
        members.replay(journal[:])
        if not members.current.index:
            check_members(first, configured)
        self._transport.admission.set_bootstrap(first)
        return members

    async def stop(self) -> None:
        """Stop in good order: answer what is under way if that is quick, hand the office over, close
        everything.

        Every proposal has been answered when it returns. Idempotent.
        """
        pump = self._pump
        self._stopping = True
        if pump.journal is None or pump.stopped:
            return
        if not pump.proposals.idle:
            pump.drained = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.election_timeout_min_ms / 1000):
                    await pump.drained.wait()
        pump.closing = True
        if pump.sync_ended is not None:
            await pump.sync_ended
        if pump.stopped:
            return
        pump.announce_commit()
        pump.end()
        await self._transport.stop()
        pump.journal.close()

    async def abandon(self) -> None:
        """Stop as if the process had been killed: nothing more is sent, written or synced. Idempotent."""
        self._stopping = True
        pump = self._pump
        self._transport.cut()
        if not pump.stopped:
            pump.end()
        if pump.sync_ended is not None:
            await pump.sync_ended
        await self._transport.abandon()
        if pump.journal is not None:
            pump.journal.close()

    # -- proposals

    def propose(self, at_ms: int, command: bytes, done: Done) -> None:
        """Queue a command for the next entry. Never raises; `done` is called exactly once, on the loop,
        later."""
        reason = self._proposal_refusal(len(command), 1)
        if reason is None:
            self._pump.proposals.add(at_ms, command, done)
            self._pump.kick()
            return
        asyncio.get_running_loop().call_soon(self._pump.tell, done, NotExecuted(reason, self.leader_id))

    def propose_all(self, at_ms: int, commands: Sequence[bytes], done: DoneAll) -> None:
        """As `propose`, for commands that came together and share an entry, if they fit into one. `done` is
        called on the loop, later, for a part of them each time and exactly once for each of them."""
        if not commands:
            return
        reason = self._proposal_refusal(max(map(len, commands)), len(commands))
        if reason is None:
            self._pump.proposals.add_all(at_ms, commands, done)
            self._pump.kick()
        elif reason == "too_large" and len(commands) > 1:
            for place, command in enumerate(commands):
                self.propose_all(at_ms, [command], partial(_one_of_many, done, place))
        else:
            refused = NotExecuted(reason, self.leader_id)
            asyncio.get_running_loop().call_soon(self._pump.tell, done, range(len(commands)), refused)

    def _proposal_refusal(self, bytes_max: int, count: int) -> RefusalReason | None:
        """Why so many commands, the largest of so many bytes, can't be queued here."""
        pump = self._pump
        if self._stopping or pump.stopped:
            return "shutting_down"
        if self._consensus is None or self._consensus.office is None:
            return "not_leader"
        if bytes_max > pump.proposals.command_bytes_max:
            return "too_large"
        return "queue_full" if pump.proposals.is_full(count) else None

    def now_ms(self) -> int:
        """Cluster time: of this office on the leader, else the greatest stamp applied here."""
        if self._pump.cluster_clock is None:
            return self._machine.time_ms
        return self._pump.cluster_clock.now_ms(self._clock.monotonic())

    # -- reads

    async def read_barrier(self) -> None:
        """When it returns, the state applied here is at least as new as everything completed before the call.

        Raises NotLeader or NoQuorum; nothing has happened then.
        """
        consensus = self._consensus
        if consensus is None or consensus.office is None or self._stopping or self._pump.stopped:
            raise NotLeader(self.leader_id)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        clock = self._pump.cluster_clock
        stalls = 0 if clock is None else clock.stalls
        self._pump.reads.add(settle)
        self._pump.kick()
        try:
            async with asyncio.timeout(self._options.election_timeout_max_ms / 1000):
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
        return self._pump.cluster_clock is not None and self._pump.cluster_clock.confirmed

    # -- the office

    def transfer(self, to: str | None, done: TransferDone) -> None:
        """Hand the office over to a member, or to the one that is furthest; see transfer.py. `done` is called
        exactly once, perhaps before this returns, after two maximum election timeouts at the latest: with
        Transferred once another node leads, else with NotLeader or TransferFailed."""
        now_s, linked = self._clock.monotonic(), self._transport.linked()
        outdated = self._transport.admission.outdated(linked)
        able = [peer for peer in linked if peer not in outdated]
        self._pump.orders.transfers.begin(self._consensus, able, to, now_s, done)
        self._pump.kick()

    async def hand_over(self, within_s: float) -> bool:
        """As a node that is about to stop: if it leads, let another node lead first. Answers whether another
        one does now; after `within_s` at the latest."""
        if not self.is_leader():
            return False
        ended: asyncio.Future[Transferred | RaftError] = asyncio.get_running_loop().create_future()
        self.transfer(None, lambda outcome: None if ended.done() else ended.set_result(outcome))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return isinstance(await ended, Transferred)
        return False

    # -- backups

    async def export(self) -> SnapshotExport:
        """A durable snapshot of at least what is applied here now, to be read while the node goes on. Close
        it. Raises RaftError if none could be made."""
        return await export(self._store, self._disk, self._pump.snapshots)

    # -- members

    def change_members(self, change: Change, done: ChangeDone) -> None:
        """Change who the members are, as a leader; see changes.py. `done` is called exactly once, perhaps
        before this returns: with Changed once the change is committed, else with NotLeader, ChangeRefused or
        ChangeUnknown."""
        if self._stopping or self._pump.stopped:
            self._pump.tell(done, NotLeader(None))
            return
        self._pump.orders.changes.begin(self._consensus, change, done)
        self._pump.kick()

    @property
    def node_id(self) -> str:
        return self._node_id

    @property
    def membership(self) -> Membership:
        """The members that count for this node now."""
        consensus = self._consensus
        if consensus is None:
            return bootstrap([self._node_id, *self._peers])
        return consensus.members.current

    def remember_removal(self, how: str) -> None:
        """Have this node not start again with its data."""
        remember_removal(self._disk, how)

    # -- peers

    def send(self, peer_id: str, payload: bytes) -> int | None:
        """Send bytes to a peer; the epoch of the link, or None if there is no link or no room."""
        epoch = self._transport.epoch(peer_id)
        too_large = len(payload) > self._options.frame_bytes_max - wire.PAYLOAD_OVERHEAD_BYTES
        if epoch is None or too_large or not self._transport.has_room(peer_id, len(payload)):
            return None
        self._transport.send(peer_id, frame(wire.Payload(payload)))
        return epoch

    def told_by(self, peer: str) -> tuple[int, str] | None:
        """What the peer said last of what its state machine can apply; None if it has not been heard of since
        this node was started."""
        return self._transport.admission.told_by(peer)

    def is_outdated(self, peer: str) -> bool:
        """Whether the peer has greeted as a version that does not know changes of members."""
        return bool(self._transport.admission.outdated([peer]))

    # -- views

    def is_leader(self) -> bool:
        return self._consensus is not None and self._consensus.office is not None and not self._pump.stopped

    def serving(self) -> bool:
        """Whether this node leads and has applied everything that earlier leaders committed."""
        return self._consensus is not None and self._consensus.serving and not self._pump.stopped

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
            contact_s = office.followed_since_s(now_s)
        else:
            contact_s = consensus.heard_leader_s
        return RaftStatus(
            node_id=self._node_id,
            role=replica.role,
            leader_id=replica.leader_id,
            term=replica.term,
            commit_index=replica.commit_index,
            applied_index=replica.applied_index,
            last_index=replica.last_index,
            match_index={}
            if office is None
            else {peer: replica.match_index(peer) for peer in consensus.members.others},
            connected=self._transport.linked(),
            quorum=now_s - contact_s < self._options.election_timeout_max_ms / 1000,
            caught_up=consensus.catching_up.done(replica.applied_index, serving=consensus.serving),
            queued=self._pump.proposals.queued,
            snapshot_index=self._pump.snapshots.latest_index,
            journal_bytes=journal.stats.bytes,
            journal_syncs=journal.stats.syncs,
        )


def _one_of_many(done: DoneAll, place: int, which: range, outcome: Outcome) -> None:
    """Tell of one command that is proposed on its own as one of those that it came with."""
    done(range(place, place + 1), outcome)
