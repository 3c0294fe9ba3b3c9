"""Composition root: builds every part from the configuration, starts and stops them in order.

    start   certificates -> data directory and its lock -> consensus (recovers, listens, dials) -> service
            -> HTTP front
    stop    another node leads -> service (polls answered, new calls refused) -> HTTP front -> consensus
            -> data directory

The front opens last, so nobody can ask before the node can answer, and the service stops first, so that
whoever waits gets an answer while the front still lives. When something fails that a node must not survive (a
sync error, a broken invariant), the process ends at once, without any of this: whatever was not acknowledged
must not leave any more.
"""

import asyncio
import datetime as dt
import logging
import os
import secrets
import signal
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from tenure_cluster import __version__, faults
from tenure_cluster.addresses import is_of_address, reason_of
from tenure_cluster.api.app import HttpFront
from tenure_cluster.auth.certificates import TlsError
from tenure_cluster.auth.gate import Gate, TokenDesk
from tenure_cluster.auth.tls import Files, NodeTls
from tenure_cluster.collector import Collector
from tenure_cluster.config import Config, is_loopback, split_address
from tenure_cluster.first_administrator import FirstAdministrator
from tenure_cluster.http_limits import hosts, http_limits
from tenure_cluster.joining import take_over_origin
from tenure_cluster.lease.snapshot import SnapshotDamaged as StateDamaged
from tenure_cluster.observe.request_log import RequestLog
from tenure_cluster.observing import Observing
from tenure_cluster.raft import Raft
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import DirectoryInUse, SystemDisk
from tenure_cluster.raft.engine import PackageNotAudited
from tenure_cluster.raft.log import InconsistentLog
from tenure_cluster.raft.members_file import MembersDiffer, NodeRemoved
from tenure_cluster.raft.origin_file import OriginDamaged, known_as
from tenure_cluster.raft.segment import JournalDamaged
from tenure_cluster.raft.snapshot_format import SnapshotDamaged as SnapshotFileDamaged
from tenure_cluster.service import versions
from tenure_cluster.service.backups import Backups
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.replica import Replica
from tenure_cluster.start_checks import StartChecks
from tenure_cluster.systemd import Systemd

if TYPE_CHECKING:
    from tenure_cluster.tracing import Traces

EXIT_OK: Final = 0
EXIT_CONFIG: Final = 2
"""The configuration can't be used."""
EXIT_START: Final = 3
"""The node could not start: an address is taken, the directory is in use or can't be written."""
EXIT_DAMAGED: Final = 4
"""The data directory is damaged, or another node's or cluster's. The node will not start from it."""
EXIT_REMOVED: Final = 5
"""The node has been removed from its cluster, and does not start again with this data."""
EXIT_FATAL: Final = 70
"""The running node met something that it must not survive, and ended itself at once."""

ID_BYTES: Final = 18
"""Random bytes of a minted id; as many as base64 makes whole letters of."""

ID_CHARS: Final = ID_BYTES * 4 // 3

IDS_PER_DRAW: Final = 256
"""Ids that one call of the system provides for."""

TRACES_PATIENCE_S: Final = 2.0
"""How long a node that stops tries to send the spans that it has."""

CLOCKS_S: Final = 1.0
"""Period in which a node that has just started asks the others for their time."""

HAND_OVER_S: Final = 1.0
"""How long a leader that stops waits for another one to lead. All is served meanwhile."""

_log = logging.getLogger("tenure.node")


class StartError(Exception):
    """The node can't start; the message is one line for the operator, `exit_code` says which kind of fault it
    is."""

    def __init__(self, message: str, exit_code: int, *, remedied: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.remedied = remedied
        """Whether the message says what to do."""


class Node:
    """One member of the cluster, from its configuration to its open ports."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._disk: SystemDisk | None = None
        self._raft: Raft | None = None
        self._service: LeaseService | None = None
        self._front: HttpFront | None = None
        self._tls: NodeTls | None = None
        self._tls_watch: asyncio.Task[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self._traces: Traces | None = None
        self._observing: Observing | None = None
        self._removed: str | None = None
        self._told_to_end = asyncio.Event()
        self._clock = SystemClock()
        self._clocks: asyncio.Task[None] | None = None
        self._misplaced: asyncio.Future[str] | None = None
        self.replica = Replica()
        self._collector = Collector(lambda: self.replica.table)

    @property
    def service(self) -> LeaseService:
        """The service of a started node."""
        assert self._service is not None
        return self._service

    @property
    def raft(self) -> Raft:
        """The consensus part of a started node."""
        assert self._raft is not None
        return self._raft

    async def start(self) -> None:
        """Start everything; when this returns, the node takes part and its front is open.

        Raises StartError, and then nothing is left running and the data directory is free.
        """
        try:
            await self._start()
        except BaseException as error:
            await self.stop()
            told = _start_error(self.config, error) if isinstance(error, Exception) else None
            if told is None or isinstance(error, StartError):
                raise
            raise told from error

    async def _start(self) -> None:
        config = self.config
        if config.tls.on:
            self._tls = NodeTls(_tls_files(config), reload_ms=config.tls.reload_ms, now=self._now)
        _warn_of_exposure(config)
        tokens = _tokens(config, self._clock) if config.jwt.issuer else None
        self._disk = SystemDisk(config.data_dir, config.durability)
        self._disk.lock()
        if config.durability == "os":
            _log.warning(
                "durability is 'os': what is acknowledged may not be on the disk yet; a power loss can "
                "lose it, and with it exclusive ownership"
            )
        await take_over_origin(config, self._disk, self._tls)
        raft = Raft(
            node_id=config.node_id,
            cluster_id=known_as(config.cluster_id, self._disk),
            members={member_id: member.peer for member_id, member in config.members.items()},
            listen=config.peer.listen,
            disk=self._disk,
            clock=self._clock,
            machine=self.replica,
            options=config.raft,
            on_fatal=die,
            tls=self._tls,
            knows=(versions.OWN.tag, versions.OWN.software),
            joins=config.join,
            address=config.peer.advertise,
        )
        raft.on_removed = partial(self._on_removed, raft)
        service = LeaseService(
            config=config,
            raft=raft,
            replica=self.replica,
            mint=Mint(),
            wall_ms=self._clock.wall_ms,
            free_bytes=self._disk.free_bytes,
            on_crash=die,
            kept_versions=versions.VersionFile(config.data_dir / versions.FILE_NAME),
        )
        observing = None
        if config.metrics.enabled:
            observing = Observing(
                config=config,
                raft=raft,
                service=service,
                replica=self.replica,
                clock=self._clock,
                free_bytes=self._disk.free_bytes,
                tls=self._tls,
                cpu_s=time.thread_time,
            )
            self._observing = observing
        self._misplaced = asyncio.get_running_loop().create_future()
        checks = StartChecks(
            config.node_id, {*config.members} - {config.node_id}, self._clock.monotonic, self._misplace
        )
        raft.hear_refusals(checks.refused)
        await raft.start()
        checks.begin({*service.members.all()} - {config.node_id})
        self._raft = raft
        service.start()
        self._service = service
        self._collector.begin()
        gate = None
        if config.auth.required:
            gate = Gate(
                lambda: self.replica.table.credentials,
                self._clock.wall_ms,
                lambda: not raft.is_leader(),
                tokens,
            )
            first = FirstAdministrator(config.data_dir, raft, service, self.replica, secrets.token_bytes)
            self._first = asyncio.create_task(first.run(), name="first administrator")
            self._first.add_done_callback(_first_ended)
        if (traces := self._observe_requests()) is not None:
            raft.on_stage, service.proposer.on_ask = traces.on_stage, traces.proposal
            service.forwarding.traces = traces
        front = HttpFront(
            service,
            version=__version__,
            wall_ms=self._clock.wall_ms,
            request_id_prefix=secrets.token_hex(4),
            limits=http_limits(config),
            hosts=hosts(config),
            metrics=None if observing is None else observing.metrics,
            request_log=None
            if config.log.requests == "none"
            else RequestLog(config.log.requests, self._clock.monotonic),
            gate=gate,
            draw=secrets.token_bytes,
            metrics_open=config.metrics.open,
            backup=Backups(config, service, raft, self.replica, self._clock.wall_ms).open,
            traces=traces,
        )
        if observing is not None:
            observing.front = front
        try:
            await front.start(config.http.listen, None if self._tls is None else self._tls.clients)
        except OSError as error:
            raise StartError(
                f"http.listen = {config.http.listen!r}: {reason_of(error)}", EXIT_START
            ) from error
        self._front = front
        self._clocks = asyncio.create_task(self._compare_clocks(checks), name="clocks of the others")
        if self._tls is not None:
            self._tls_watch = asyncio.create_task(self._tls.watch(), name="watch of certificates")
        if not raft.membership.members:
            _log.info(
                "node %s waits to be made a member of cluster %s: tenure members add %s --peer %s --http %s",
                *(config.node_id, config.cluster_id, config.node_id),
                *(config.peer.advertise, config.http.advertise),
            )
        elif raft.started_empty:
            _log.warning(
                "there is no data yet: this node starts empty, as one of %s. If it has run before, its data "
                "is missing: stop it and bring that back, for it has forgotten what it promised the others",
                ", ".join(raft.membership.names),
            )
        _log.info(
            "node %s of cluster %s serves at %s, %d members, data in %s",
            config.node_id,
            config.cluster_id,
            config.http.advertise,
            len(self.service.members.all()),
            config.data_dir,
        )

    def _observe_requests(self) -> "Traces | None":
        """Begin to trace requests, where that is asked for."""
        config = self.config
        if config.tracing.enabled:
            try:
                from tenure_cluster.tracing import traces
            except ImportError as error:
                raise StartError(
                    f"tracing.enabled needs {error.name}: pip install 'tenure[otel]'", EXIT_CONFIG
                ) from error
            self._traces = traces(config.tracing, config.cluster_id, config.node_id, time.time_ns)
        return self._traces

    async def stop(self) -> None:
        """Stop whatever of the node runs. A leader lets another node lead first, if one can within a second;
        everything that waits is answered."""
        self._collector.end()
        service, self._service = self._service, None
        front, self._front = self._front, None
        raft, self._raft = self._raft, None
        disk, self._disk = self._disk, None
        watch, self._tls_watch = self._tls_watch, None
        first, self._first = self._first, None
        traces, self._traces = self._traces, None
        observing, self._observing = self._observing, None
        clocks, self._clocks = self._clocks, None
        for task in (watch, first, clocks):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if raft is not None and await raft.hand_over(HAND_OVER_S):
            _log.info("node %s has handed its office over", self.config.node_id)
        if service is not None:
            await service.stop()
        if front is not None:
            await front.stop()
        if raft is not None:
            await raft.stop()
        if traces is not None:
            await asyncio.to_thread(traces.close, TRACES_PATIENCE_S)
        if disk is not None:
            disk.close()
        if observing is not None:
            observing.stop()

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock.wall_ms() / 1000, dt.UTC)

    def _misplace(self, line: str) -> None:
        if self._misplaced is not None and not self._misplaced.done():
            self._misplaced.set_result(line)

    async def _compare_clocks(self, checks: StartChecks) -> None:
        """Ask the others for their time while this node counts as one that starts."""
        while not (checks.over or checks.compared):
            await asyncio.sleep(CLOCKS_S)
            asked = await self.service.nodes()
            own_ms = self._clock.wall_ms()
            told = {node.id: node.about for node in asked.nodes if node.id != self.config.node_id}
            checks.clocks({name: own.wall_ms - own_ms for name, own in told.items() if own and own.wall_ms})

    def _on_removed(self, raft: Raft, how: str) -> None:
        """Consensus has learned that this node is no member any more: it ends, and does not come back."""
        try:
            raft.remember_removal(how)
        except OSError as error:  # it is told again at the next start
            _log.warning("that this node is removed can't be written down: %s", error)
        self._removed = how
        self._told_to_end.set()

    def reload_certificates(self) -> None:
        """Read the files of [tls] now, as SIGHUP asks for."""
        if self._tls is not None:
            self._tls.reload_soon()

    async def run_forever(self, on_started: Callable[[], None] | None = None) -> None:
        """Start, serve until SIGTERM or SIGINT or until this node is removed from the cluster, stop. With
        TLS, SIGHUP reads the certificates again; under systemd it never ends a node. Raises StartError."""
        loop = asyncio.get_running_loop()
        ended = self._told_to_end
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        systemd = Systemd(os.environ)
        if self.config.tls.on or systemd.present:
            loop.add_signal_handler(signal.SIGHUP, self.reload_certificates)
        try:
            await self.start()
            systemd.follow(self.service.leadership)
            if on_started is not None:
                on_started()
            fault = await self._ended(ended)
            systemd.stopping()
            _log.info("node %s stops", self.config.node_id)
            await self.stop()
            if self._removed is not None:
                where = f"node {self.config.node_id} has been removed from cluster {self.config.cluster_id}"
                raise StartError(f"{where} ({self._removed}): it stops for ever", EXIT_REMOVED)
            if fault is not None:
                raise StartError(fault, EXIT_START, remedied=True)
        finally:
            systemd.close()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    async def _ended(self, ended: asyncio.Event) -> str | None:
        """Wait for the end: None if it was asked for, else why this node should not be here."""
        assert self._misplaced is not None
        asked = asyncio.ensure_future(ended.wait())
        either: list[asyncio.Future[Any]] = [asked, self._misplaced]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return self._misplaced.result() if self._misplaced.done() else None


def run(config: Config, on_started: Callable[[], None] | None = None) -> None:
    """Run a node in this process until it is told to stop, on uvloop where that is installed. Raises
    StartError."""
    faults.arm_from(os.environ.get("TENURE_FAULTS", ""))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Node(config).run_forever(on_started))


class Mint:
    """Draws unguessable ids, of letters, digits, `-` and `_`, that don't begin like an option. The system
    is asked for many at once.
    """

    def __init__(self) -> None:
        self._pool = ""
        self._at = 0

    def __call__(self) -> str:
        if self._at == len(self._pool):
            self._pool = urlsafe_b64encode(secrets.token_bytes(ID_BYTES * IDS_PER_DRAW)).decode()
            self._at = 0
        at = self._at
        self._at = at + ID_CHARS
        minted = self._pool[at : at + ID_CHARS]
        return f"A{minted[1:]}" if minted.startswith("-") else minted


def die(error: BaseException) -> None:
    """End the process at once: something failed that no answer may be given after."""
    _log.critical("stopping at once: %s: %s", type(error).__name__, error)
    logging.shutdown()
    os._exit(EXIT_FATAL)


def _first_ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("the first administrator's credential could not be written: %s", error)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _tls_files(config: Config) -> Files:
    tls = config.tls
    return Files(
        cert=tls.cert,
        key=tls.key,
        ca=tls.ca,
        client_ca=tls.client_ca,
        node_id=config.node_id,
        host=urlsplit(config.http.advertise).hostname or "",
    )


def _tokens(config: Config, clock: SystemClock) -> TokenDesk:
    """Raises StartError."""
    try:
        from tenure_cluster.auth.tokens import KeysUnusable, Rules, Tokens
    except ImportError:
        raise StartError(
            "jwt.issuer is set, and PyJWT is not installed: pip install 'tenure[jwt]'", EXIT_CONFIG
        ) from None
    try:
        rules = Rules(**msgspec.structs.asdict(config.jwt))
        return Tokens(rules, clock.wall_ms, clock.monotonic)
    except KeysUnusable as error:
        raise StartError(str(error), EXIT_CONFIG) from None


def _warn_of_exposure(config: Config) -> None:
    """What insecure = true has allowed, said at every start."""
    if not config.insecure:
        return
    for setting, address in (("http.listen", config.http.listen), ("peer.listen", config.peer.listen)):
        safe = config.tls.on and (setting == "peer.listen" or config.tls.client_ca or config.auth.required)
        if not safe and not is_loopback(split_address(address)[0]):
            _log.warning(
                "insecure: %s = %r can be reached by others than this machine, and whoever reaches it has "
                "all rights",
                setting,
                address,
            )


def _start_error(config: Config, error: Exception) -> StartError | None:
    """The operator's line for what can go wrong at start; None for what can only be a bug."""
    if isinstance(error, TlsError):
        return StartError(str(error), EXIT_CONFIG)
    if isinstance(error, DirectoryInUse):
        return StartError(str(error), EXIT_START)
    if isinstance(
        error, JournalDamaged | SnapshotFileDamaged | StateDamaged | InconsistentLog | OriginDamaged
    ):
        return StartError(f"data_dir = {str(config.data_dir)!r}: {error}", EXIT_DAMAGED)
    if isinstance(error, PackageNotAudited):
        return StartError(str(error), EXIT_START)
    if isinstance(error, NodeRemoved):
        return StartError(f"data_dir = {str(config.data_dir)!r}: {error}", EXIT_REMOVED)
    if isinstance(error, MembersDiffer):
        return StartError(f"data_dir = {str(config.data_dir)!r}: {error}", EXIT_CONFIG)
    if isinstance(error, OSError):
        reason = reason_of(error)
        if is_of_address(error):
            return StartError(f"peer.listen = {config.peer.listen!r}: {reason}", EXIT_START)
        return StartError(f"data_dir = {str(config.data_dir)!r} can't be used: {reason}", EXIT_START)
    return None
