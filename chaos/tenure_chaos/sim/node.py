"""One simulated node: the real consensus, service and front, on the world's time, network and disk."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.disk import SimDisk
from tenure_chaos.sim.loop import CURRENT, Process, VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_cluster.api.dispatch import Dispatcher
from tenure_cluster.raft import Raft, RaftOptions, mitigations
from tenure_cluster.raft.journal import Journal
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.versions import OWN
from tenure_cluster.settings import Admission, Calls, Config, Http, Leases, Member, Peer

PEER_PORT = 7700
CLUSTER = "simulated"
HAND_OVER_S = 1.0
"""As node.py has it."""
RESERVE_SEGMENTS = 4
"""Free space, in segments of the journal, below which nodes take in nothing new."""


@dataclass(frozen=True)
class Rot:
    """A byte of a stopped node's disk that is not what was written there."""

    file: str
    offset: int


class SimNode:
    """A machine with a disk and a clock, on which the server runs now and then."""

    def __init__(
        self,
        *,
        name: str,
        members: Mapping[str, int],
        loop: VirtualLoop,
        network: Network,
        disk: SimDisk,
        clock: SimClock,
        rng: random.Random,
        options: RaftOptions,
        on: frozenset[str] = mitigations.ALL,
        make_replica: Callable[["SimNode"], Replica],
        observe: Callable[["SimNode", Raft, LeaseService], None] = lambda node, raft, service: None,
        on_fatal: Callable[["SimNode", BaseException], None],
        joins: bool = False,
        on_removed: Callable[["SimNode", str], None] = lambda node, how: None,
    ) -> None:
        """``joins``: it is none of the first members. ``on_removed`` is told when its process has learned
        that it is a member no more. ``observe`` is shown what a process is made of before it starts.
        ``on_fatal`` is told why one stopped itself, or did not start."""
        self.name = name
        self.disk = disk
        self.clock = clock
        self.process = Process(name)
        self.process.alive = False
        self.raft: Raft | None = None
        self.service: LeaseService | None = None
        self.dispatcher: Dispatcher | None = None
        self.replica: Replica | None = None
        self.starting = False
        self.stopping = False
        self.refused_to_start: BaseException | None = None
        self.excuses: dict[int, int] = {}
        """By errno: the last incarnation whose disk may fail that way."""
        self.rot: Rot | None = None
        self.short_of_space = False
        self.joins = joins
        self.knows_removal = False
        """It has learned that it is no member any more, and starts no more."""
        self._on_removed = on_removed
        self._journal: Journal | None = None
        self._members = members
        self._loop = loop
        self._network = network
        self._rng = rng
        self._options = options
        self._on = on
        self._make_replica = make_replica
        self._observe = observe
        self._on_fatal = on_fatal
        self._config = Config(
            cluster_id=CLUSTER,
            node_id=name,
            data_dir=Path("/simulated"),
            http=Http(listen="127.0.0.1:1", advertise=f"http://{name}"),
            peer=Peer(listen=f"127.0.0.1:{members[name]}", advertise=f"{name}:{members[name]}"),
            members={
                member: Member(peer=f"{member}:{port}", http=f"http://{member}")
                for member, port in members.items()
            },
            raft=options,
            leases=Leases(ttl_min_ms=1_000),
            calls=Calls(),
            admission=Admission(disk_reserve_bytes=1 << 20),
        )

    @property
    def peer_address(self) -> str:
        return f"{self.name}:{self._members[self.name]}"

    @property
    def up(self) -> bool:
        return self.process.alive and self.service is not None

    def start(self) -> None:
        """Power on, or start the program again. Returns at once; ``up`` turns true when it serves."""
        assert not self.process.alive
        self.process = Process(self.name, self.process.incarnation + 1)
        self.starting = True
        self.refused_to_start = None
        self._loop.spawn(self.process, lambda: self._loop.create_task(self._start()))

    async def _start(self) -> None:
        process = CURRENT.get()
        replica = self._make_replica(self)
        raft = Raft(
            node_id=self.name,
            cluster_id=CLUSTER,
            members={member: f"{member}:{port}" for member, port in self._members.items()},
            listen=f"127.0.0.1:{self._members[self.name]}",
            disk=self.disk,
            clock=self.clock,
            machine=replica,
            options=self._options,
            on_fatal=lambda error: self._on_fatal(self, error),
            on=self._on,
            knows=(OWN.tag, OWN.software),
            joins=self.joins,
            address=self.peer_address,
        )
        raft.on_removed = lambda how: self._on_removed(self, how)
        service = LeaseService(
            config=self._config,
            raft=raft,
            replica=replica,
            mint=lambda: f"{self._rng.getrandbits(128):032x}",
            wall_ms=self.clock.wall_ms,
            free_bytes=self.disk.free_bytes,
            on_crash=lambda error: self._on_fatal(self, error),
        )
        self.raft, self.replica = raft, replica
        self._observe(self, raft, service)
        try:
            await raft.start()
        except Exception as error:
            if process is self.process:
                self.starting = False
                self.refused_to_start = error
                self._on_fatal(self, error)
            return
        service.start()
        self.service = service
        self.dispatcher = Dispatcher(service, b"{}", lambda: False)
        self.starting = False

    async def stop(self) -> None:
        """SIGTERM: the program answers what waits, closes its files and ends. Returns when it has ended, by
        this or otherwise."""
        process, raft, service = self.process, self.raft, self.service
        if not self.up or raft is None or service is None or self.stopping:
            return
        self.stopping = True
        ended = self._loop.create_future()
        process.at_death[self] = lambda: None if ended.done() else ended.set_result(None)

        async def stop() -> None:
            await raft.hand_over(HAND_OVER_S)
            await service.stop()
            self.dispatcher = None
            await raft.stop()
            await self._disk_done()
            self.kill()

        self._loop.spawn(process, lambda: self._loop.create_task(stop()))
        await ended

    @property
    def syncing(self) -> bool:
        """A sync of the journal is under way."""
        return self.raft is not None and self.raft._pump._syncing_since_s is not None

    @property
    def reserve_bytes(self) -> int:
        """Free space below which it takes in nothing new."""
        return self._config.admission.disk_reserve_bytes

    async def _disk_done(self) -> None:
        """All that was given to the disk is done; a program's end waits for that."""
        for run in (self.disk.run_bulk, self.disk.run):
            done: asyncio.Future[None] = self._loop.create_future()
            run(lambda: None, lambda error, done=done: done.set_result(None))  # type: ignore[misc]
            await done

    def snapshot_soon(self) -> None:
        """Have it make a snapshot as if enough had been applied."""
        if self.up and self.raft is not None:
            snapshots = self.raft._pump.snapshots
            snapshots._entries = max(snapshots._entries, self._options.snapshot_entries)
            # As the process: what it schedules from here on has to end with it.
            self._loop.spawn(self.process, self.raft._pump.kick)

    @property
    def journal(self) -> Journal | None:
        """That of the last process that had read its disk; it tells what was durable when it died."""
        if self.raft is not None and self.raft._journal is not None:
            self._journal = self.raft._journal
        return self._journal

    @property
    def durable_index(self) -> int:
        """Of the last entry that it has, or had when its process died."""
        return 0 if self.journal is None else self.journal.durable_index

    def has_durably(self, index: int, term: int) -> bool:
        """Whether this entry is in this node's durable log, or was when its process died. What a snapshot
        covers counts as the same."""
        journal = self.journal
        if journal is None or journal.durable_index < index:
            return False
        entries = journal._log.entries
        position = index - entries[0][1]
        return position < 0 or entries[position][2] == term

    def _gone(self) -> None:
        assert self.journal is self._journal  # which remembers it
        self._loop.kill(self.process)
        self._network.process_died(self.process)
        self.raft = self.service = self.dispatcher = self.replica = None
        self.starting = self.stopping = False

    def kill(self) -> None:
        """SIGKILL: what was written to files is still there."""
        self._gone()
        self.disk.kill()

    def lose_power(self) -> int:
        """The machine stops: what was not synced may be lost or torn. Answers how many files were."""
        self._gone()
        return self.disk.lose_power()

    def pause(self) -> None:
        self._loop.pause(self.process)

    def resume(self) -> None:
        self._loop.resume(self.process)

    async def serve(self, method: str, target: str, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        """One HTTP request, without HTTP: what the front does between the parsed request and the answer."""
        assert self.dispatcher is not None
        assert self.service is not None
        path, _, query = target.partition("?")
        found = self.dispatcher.find(method, path)
        assert isinstance(found, tuple), f"{method} {target} is not a route"
        endpoint, rest = found
        asked = (
            endpoint.decode_body(body or b"", query, "json")
            if endpoint.takes_body
            else endpoint.decode_target(rest, query)
        )
        assert isinstance(asked, msgspec.Struct) or asked is None, asked
        answer = await endpoint.answer(asked, "json")
        headers = {"X-Tenure-Leader": self.service.leader_url} if self.service.leader_url else {}
        if (retry := getattr(answer, "retry_after_s", None)) is not None:
            headers["Retry-After"] = str(retry)
        return answer.status, headers, answer.body
