"""Snapshots of one member: making them, sending them to a follower that is too far behind, installing a
received one.

Making. After enough entries the state machine is asked for its state as of now, which it yields chunk by
chunk while later entries are applied; chunks are drawn a slice at a time, and written and synced off the
loop. Only when the file is durable is the log compacted, and not all of it: the last entries stay, so that
a follower that is a little behind does not need the whole state. A snapshot is also made when one is wanted,
for a backup: of what is applied by then, unless the latest has all of that already.

Sending. The leader first asks with an empty piece what has already arrived, then streams the file from
there under the follower's window. The file stays readable when a newer snapshot takes its place.

Installing. The pieces are checked as they come and the whole by its checksum, before anything is replaced.
A snapshot that brings nothing new is refused at the first piece, and again right before it is installed:
the log may have caught up meanwhile (S7). Order of an installation: file durable, state machine restored,
log restarted; the answer leaves when that is durable too. A crash in between is put right at the next
start, where a snapshot that the log does not reach replaces it. A snapshot of our own that is being made is
then cancelled: it is older.
"""

import errno
import logging
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.consensus import Consensus
from tenure_cluster.raft.disk import Disk
from tenure_cluster.raft.membership import for_snapshot, of_snapshot
from tenure_cluster.raft.snapshot_file import (
    SnapshotDamaged,
    SnapshotInfo,
    SnapshotReader,
    SnapshotReceiver,
    SnapshotSave,
    SnapshotStore,
)
from tenure_cluster.raft.types import RaftOptions, StateMachine

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 << 10
"""Of a snapshot's file in one message."""

TAIL_ENTRIES_MAX: Final = 1000
"""Entries that stay in the log though a snapshot covers them, at most, and within the transfer window in
bytes."""

RETRY_ENTRIES: Final = 1000
"""Entries after which a snapshot that failed for want of space is tried again."""

SnapshotNews: TypeAlias = Literal["begun", "made", "installed"]
"""What is told of snapshots while they are made and received."""

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


Wanted: TypeAlias = Callable[[SnapshotInfo | None, BaseException | None], None]
"""Told, once, of a durable snapshot that has what was wanted, or why there is none."""


class _Outgoing:
    """One follower's transfer. `offset`: of the next piece, None until the follower has said what it has."""

    def __init__(self, info: SnapshotInfo) -> None:
        self.info = info
        self.reader: SnapshotReader | None = None
        self.offset: int | None = None
        self.reading = False


class _Incoming:
    """The transfer that is being received."""

    def __init__(self, message: wire.Snapshot, receiver: SnapshotReceiver) -> None:
        self.index = message.index
        self.term = message.snapshot_term
        self.size = message.size
        self.receiver = receiver
        self.installing = False
        self.peer = ""


class Snapshots:
    """All snapshot work of one member; part of the pump, whose thread it shares."""

    def __init__(
        self,
        *,
        store: SnapshotStore,
        disk: Disk,
        machine: StateMachine,
        options: RaftOptions,
        between_rounds: Callable[[Callable[[], None]], None],
        fail: Callable[[BaseException], None],
        news: Callable[[SnapshotNews], None] = lambda news: None,
    ) -> None:
        self.consensus: Consensus | None = None
        self.installed = 0
        self.made = 0
        self._store = store
        self._disk = disk
        self._machine = machine
        self._options = options
        self._between_rounds = between_rounds
        self._fail = fail
        self._news = news
        self._entries = 0
        self._bytes = 0
        self._save: SnapshotSave | None = None
        self._wanted: list[tuple[int, Wanted]] = []
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: _Incoming | None = None
        self._stopped = False

    @property
    def latest_index(self) -> int:
        info = self._store.latest()
        return 0 if info is None else info.index

    def _consensus(self) -> Consensus:
        assert self.consensus is not None, "set before the first round"
        return self.consensus

    # -- making

    def entry_applied(self, size: int) -> None:
        self._entries += 1
        self._bytes += size

    def want(self, done: Wanted) -> None:
        """Have a snapshot of at least what is applied now, and tell ``done`` of it, perhaps at once."""
        info, applied = self._store.latest(), self._consensus().replica.applied_index
        if self._stopped:
            done(None, RuntimeError("this node stops"))
        elif info is not None and info.index >= applied:
            done(info, None)
        else:
            self._wanted.append((applied, done))
            self._between_rounds(lambda: None)  # a round looks whether one is due

    def _tell_wanted(self, error: BaseException | None = None) -> None:
        info, wanted = self._store.latest(), self._wanted
        have = 0 if info is None or error is not None else info.index
        self._wanted = [] if error is not None else [item for item in wanted if item[0] > have]
        for index, done in wanted:
            if error is not None or index <= have:
                done(None if error is not None else info, error)

    def make_if_due(self) -> None:
        """Begin a snapshot if enough has been applied since the last one, or if one is wanted. Call outside
        of the consensus."""
        self._drop_overtaken()
        if self._save is not None or self._incoming is not None or self._stopped:
            return
        due = self._entries >= self._options.snapshot_entries or self._bytes >= self._options.snapshot_bytes
        if not due and not self._wanted:
            return
        replica = self._consensus().replica
        index = replica.applied_index
        if index <= self.latest_index or index - 1 < replica.first_index:
            return
        self._entries = self._bytes = 0
        self._news("begun")
        try:
            self._save = self._store.save(
                replica.entry(index),
                replica.entry(index - 1),
                self._machine.snapshot(),
                self._saved,
                for_snapshot(self._consensus().members.at(index)),
            )
        except OSError as error:
            self._save_failed(error)

    def _saved(self, info: SnapshotInfo | None, error: BaseException | None) -> None:
        self._save = None
        if self._stopped:
            return
        if info is None:
            assert error is not None
            self._save_failed(error)
            return
        self.made += 1
        self._news("made")
        self._between_rounds(lambda: self._compact(info.index))
        self._tell_wanted()

    def _save_failed(self, error: BaseException) -> None:
        self._tell_wanted(error)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            logger.error("no space for a snapshot; the log keeps growing until there is: %s", error)
            self._entries = max(0, self._options.snapshot_entries - RETRY_ENTRIES)
        else:
            self._fail(error)

    def _compact(self, index: int) -> None:
        """Keep the last two entries that the snapshot covers, and more of them as long as they are small."""
        consensus = self._consensus()
        replica, keep, size = consensus.replica, index - 1, 0
        while keep > replica.first_index and index - keep < TAIL_ENTRIES_MAX:
            size += len(replica.entry(keep)[0])
            if size > self._options.transfer_window_bytes:
                break
            keep -= 1
        consensus.compact(keep)

    # -- sending

    def start_sending(self, peer: str) -> int:
        """A follower needs what is compacted. Returns the index of the snapshot that it will be sent."""
        info = self._store.latest()
        assert info is not None, "the log is compacted only when there is a snapshot"
        self._drop_outgoing(peer)
        self._outgoing[peer] = _Outgoing(info)
        return info.index

    def ask(self, peer: str) -> None:
        """Send the empty piece: a heartbeat, and the question what has arrived."""
        transfer, office = self._outgoing.get(peer), self._consensus().office
        if transfer is None or office is None:
            return
        if transfer.reader is None and (newest := self._store.latest()) is not None:
            try:
                transfer.reader = self._store.reader(newest)
            except FileNotFoundError:
                # A newer one has taken its name away a moment ago, and will be the latest at the next
                # heartbeat.
                pass
            else:
                transfer.info = newest
                office.followers[peer].begin_snapshot(newest.index)
        self._send(peer, transfer, transfer.offset or 0, b"")

    def answered(self, peer: str, message: wire.SnapshotReply) -> None:
        """The follower has answered a piece."""
        transfer = self._outgoing.get(peer)
        office = self._consensus().office
        if transfer is None or office is None or message.index != transfer.info.index:
            return
        if message.done:
            self._drop_outgoing(peer)
            return
        nothing_under_way = office.followers[peer].in_flight_bytes == 0 and not transfer.reading
        if transfer.offset is None or (nothing_under_way and message.offset != transfer.offset):
            transfer.offset = min(message.offset, transfer.info.size)
        self._send_more(peer, transfer)

    def _send_more(self, peer: str, transfer: _Outgoing) -> None:
        office = self._consensus().office
        reader = transfer.reader
        if self._outgoing.get(peer) is not transfer or office is None or transfer.offset is None:
            return
        if (
            reader is None
            or transfer.reading
            or transfer.offset >= transfer.info.size
            or not office.followers[peer].may_send
        ):
            return
        offset = transfer.offset
        piece = b""

        def read() -> None:
            nonlocal piece
            piece = reader.read_at(offset, PIECE_BYTES)

        def done(error: BaseException | None) -> None:
            transfer.reading = False
            if self._stopped or self._outgoing.get(peer) is not transfer:
                return
            if error is not None or not piece:
                self._fail(error or SnapshotDamaged(transfer.info.name, f"it ends at {offset}"))
                return
            transfer.offset = offset + len(piece)
            self._between_rounds(lambda: self._send_piece(peer, transfer, offset, piece))

        transfer.reading = True
        self._disk.run_bulk(read, done)

    def _send_piece(self, peer: str, transfer: _Outgoing, offset: int, piece: bytes) -> None:
        if self._outgoing.get(peer) is transfer and self._consensus().office is not None:
            self._send(peer, transfer, offset, piece)
            self._send_more(peer, transfer)

    def _send(self, peer: str, transfer: _Outgoing, offset: int, data: bytes) -> None:
        office = self._consensus().office
        assert office is not None, "only a leader sends"
        info = transfer.info
        office.send_snapshot(peer, info.index, info.term, info.size, offset, data)

    def _drop_outgoing(self, peer: str) -> None:
        transfer = self._outgoing.pop(peer, None)
        if transfer is not None and transfer.reader is not None:
            # Behind a read that may still be under way.
            self._disk.run_bulk(transfer.reader.close, lambda error: None)

    def keep_only(self, followers: Collection[str]) -> None:
        """Others are members no more, and are sent nothing."""
        for peer in [peer for peer in self._outgoing if peer not in followers]:
            self._drop_outgoing(peer)

    def end_office(self) -> None:
        """This node does not lead any more."""
        for peer in list(self._outgoing):
            self._drop_outgoing(peer)

    # -- receiving

    def received(self, peer: str, message: wire.Snapshot) -> None:
        """A piece from the leader of this term. Called while the consensus is entered."""
        consensus = self._consensus()
        if consensus.has(message.index, message.snapshot_term):
            consensus.reply_snapshot(peer, message, message.size, done=True)
            if self._incoming is not None and not self._incoming.installing:
                self._drop_incoming()
            return
        incoming = self._incoming_for(message)
        if incoming is None:
            return
        incoming.peer = peer
        receiver = incoming.receiver
        if message.data and not incoming.installing and message.offset == receiver.received:
            try:
                receiver.write(message.offset, message.data)
            except SnapshotDamaged as damage:
                logger.error("the snapshot that %s sends is not usable: %s", peer, damage)
                self._drop_incoming()
                return
            except OSError as error:
                self._no_room(error)
                return
        if receiver.info is not None and not incoming.installing:
            incoming.installing = True
            receiver.install(
                lambda info, error: self._between_rounds(lambda: self._durable(incoming, info, error))
            )
        consensus.reply_snapshot(peer, message, receiver.received, done=False)

    def _incoming_for(self, message: wire.Snapshot) -> _Incoming | None:
        incoming = self._incoming
        if incoming is not None:
            same = (message.index, message.snapshot_term, message.size)
            if (incoming.index, incoming.term, incoming.size) == same or incoming.installing:
                return incoming if not incoming.installing or incoming.index == message.index else None
            self._drop_incoming()
        try:
            self._incoming = _Incoming(message, self._store.receiver(message.size))
        except SnapshotDamaged as damage:
            logger.error("the snapshot that is being sent is not usable: %s", damage)
        except OSError as error:
            self._no_room(error)
        return self._incoming

    def _no_room(self, error: OSError) -> None:
        self._drop_incoming()
        if error.errno not in _NO_SPACE:
            raise error
        logger.error("no space for the leader's snapshot: %s", error)

    def _drop_incoming(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.receiver.abandon()

    def _drop_overtaken(self) -> None:
        """The leader that sent it may be gone, and the next one may have sent entries instead: nobody says
        anything of that snapshot any more, and as long as it was waited for none was made here."""
        incoming = self._incoming
        if incoming is None or incoming.installing:
            return
        if self._consensus().has(incoming.index, incoming.term):
            self._drop_incoming()

    def _durable(self, incoming: _Incoming, info: SnapshotInfo | None, error: BaseException | None) -> None:
        """The received snapshot is durable and the latest; make it the state, unless the log has caught
        up."""
        if self._stopped:
            return
        self._incoming = None
        if info is None:
            raise error or SnapshotDamaged("received", "it was not installed")
        consensus = self._consensus()
        if not consensus.has(info.index, info.term):
            if self._save is not None:
                self._save.cancel()
                self._save = None
            self._machine.restore(self._store.chunks(info), info.index)
            consensus.install(info.boundary, of_snapshot(info.members))
            self._entries = self._bytes = 0
            self.installed += 1
            self._news("installed")
            logger.info("installed the snapshot at %d of %s", info.index, incoming.peer)
        self._tell_wanted()
        # The leader hears of it when it next asks.

    def stop(self) -> None:
        """No callback has an effect any more; what is unfinished on the disk is removed at the next start."""
        self._stopped = True
        if self._save is not None:
            self._save.cancel()
            self._save = None
        self._tell_wanted(RuntimeError("this node stops"))
        self.end_office()
