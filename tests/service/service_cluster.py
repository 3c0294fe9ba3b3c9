"""Real nodes without their HTTP fronts, all in this process, on loopback and real directories.

Every node has its own consensus, disk, replica and service. Between each two of them stand two proxies, one
for each direction, so that a test can cut a link (connections break) or clog it (nothing arrives, nothing
breaks).
"""

import asyncio
import contextlib
import itertools
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from tenure_cluster.raft import Raft, RaftOptions
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.service.asks import Answer
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.replies import GrantedReply, LeaseBody
from tenure_cluster.service.requests import OPERATIONS, Request
from tenure_cluster.service.versions import OWN
from tenure_cluster.settings import Audit, Config, Leases, Member, Peer

TENANT = "default"

QUICK = RaftOptions(
    election_timeout_min_ms=200,
    election_timeout_max_ms=400,
    heartbeat_ms=40,
    journal_segment_bytes=2 << 20,
)
"""Timers for tests: a leader is found within half a second, and a TTL can be as short as 1.2 s."""

TTL_MS = 1_200
"""The shortest TTL that QUICK allows."""

T = TypeVar("T")


async def until(condition: Callable[[], T], what: str, timeout_s: float = 10.0) -> T:
    """Poll until `condition` gives something true, and return that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        if value := condition():
            return value
        if loop.time() >= deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        await asyncio.sleep(0.005)


def free_ports(count: int) -> list[int]:
    """Ports that are free now and outside the range of outgoing connections."""
    ports: list[int] = []
    for port in random.sample(range(10_000, 21_000), 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


class Link:
    """One direction between two nodes: what one sends to the other's peer address passes through here."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = True
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Break every connection, and each new one at once."""
        self._open = False
        for writer in self._writers:
            writer.transport.abort()

    def clog(self) -> None:
        """Let nothing through any more, and break nothing."""
        self._flowing.clear()

    def heal(self) -> None:
        self._open = True
        self._flowing.set()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        self._flowing.set()
        # What was accepted in this turn of the loop becomes a task in one of the next.
        for _ in range(3):
            await asyncio.sleep(0)
            # Not cancelled: a connection that is just being made would be left open.
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            if not self._open:
                return
            answers, onward = await asyncio.open_connection("127.0.0.1", self._target_port)
            if not self._open:
                return
            self._writers.add(onward)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, onward))
                both.create_task(self._pass(answers, writer))
        except* OSError:
            pass
        finally:
            for end in (writer, onward):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class Part:
    """One node: everything but its front."""

    def __init__(
        self,
        config: Config,
        peers: Mapping[str, str],
        free_bytes: Callable[[], int] | None,
        knows: tuple[int, str] = (OWN.tag, OWN.software),
    ) -> None:
        self.config = config
        self.fatal: list[BaseException] = []
        self.running = False
        self._minted = itertools.count(1)
        self._clock = SystemClock()
        self._disk = SystemDisk(config.data_dir, "os")
        self._disk.lock()
        self.replica = Replica()
        self.raft = Raft(
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            members=peers,
            listen=config.peer.listen,
            disk=self._disk,
            clock=self._clock,
            machine=self.replica,
            options=config.raft,
            on_fatal=self.fatal.append,
            knows=knows,
        )
        self.service = LeaseService(
            config=config,
            raft=self.raft,
            replica=self.replica,
            mint=lambda: f"{config.node_id}-{random.getrandbits(32):08x}-{next(self._minted)}",
            wall_ms=self._clock.wall_ms,
            free_bytes=free_bytes or self._disk.free_bytes,
            on_crash=self.fatal.append,
        )

    @property
    def node_id(self) -> str:
        return self.config.node_id

    async def start(self) -> None:
        await self.raft.start()
        self.service.start()
        self.running = True

    async def stop(self) -> None:
        """As an operator would: the service first."""
        if self.running:
            self.running = False
            await self.service.stop()
            await self.raft.stop()
            self._disk.close()

    def leads(self) -> bool:
        return self.running and self.raft.serving()


class Cluster:
    """Nodes n1, n2 … with a link for each direction of each pair."""

    def __init__(self, directory: Path, nodes: int, options: dict[str, Any]) -> None:
        self._directory = directory
        self._options = options
        self.ids = [f"n{number}" for number in range(1, nodes + 1)]
        self.parts: dict[str, Part] = {}
        self.links: dict[tuple[str, str], Link] = {}

    async def start(self) -> None:
        ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        members = {
            node_id: Member(peer=f"127.0.0.1:{port}", http=f"http://{node_id}.test")
            for node_id, port in ports.items()
        }
        free_bytes = self._options.pop("free_bytes", None)
        knows = self._options.pop("knows", {})
        for node_id in self.ids:
            peers = {}
            for other in self.ids:
                peers[other] = members[other].peer
                if other != node_id:
                    link = self.links[node_id, other] = Link(ports[other])
                    peers[other] = f"127.0.0.1:{await link.start()}"
            config = Config(
                cluster_id="test",
                node_id=node_id,
                data_dir=self._directory / node_id,
                durability="os",
                peer=Peer(listen=members[node_id].peer, advertise=members[node_id].peer),
                members=members,
                **(
                    {"raft": QUICK, "leases": Leases(ttl_min_ms=TTL_MS), "audit": Audit(records_max=0)}
                    | self._options
                ),
            )
            self.parts[node_id] = Part(config, peers, free_bytes, knows.get(node_id, (OWN.tag, OWN.software)))
        for part in self.parts.values():
            await part.start()

    async def stop(self) -> None:
        for part in self.parts.values():
            await part.stop()
        for link in self.links.values():
            await link.stop()

    async def leader(self, but: Part | None = None) -> Part:
        """The node that leads and serves; with `but`, another than that."""

        def found() -> Part | None:
            leading = [part for part in self.parts.values() if part is not but and part.leads()]
            return max(leading, key=lambda part: part.raft.status().term) if leading else None

        return await until(found, "a leader")  # type: ignore[return-value]

    async def follower(self) -> Part:
        """A node that follows the leader and has a link to it."""
        leader = await self.leader()
        others = [part for part in self.parts.values() if part is not leader and part.running]

        def follows() -> Part | None:
            for part in others:
                if part.raft.leader_id == leader.node_id and leader.node_id in part.raft.status().connected:
                    return part
            return None

        return await until(follows, "a follower that knows the leader")  # type: ignore[return-value]

    def around(self, node: Part) -> list[Link]:
        return [link for pair, link in self.links.items() if node.node_id in pair]

    def isolate(self, node: Part) -> None:
        for link in self.around(node):
            link.cut()

    def heal(self) -> None:
        for link in self.links.values():
            link.heal()


@contextlib.asynccontextmanager
async def cluster(directory: Path, nodes: int = 1, **options: Any) -> AsyncIterator[Cluster]:
    """A cluster that serves; `options` are sections of the configuration, `free_bytes`, and `knows`:
    what nodes of other versions say of themselves, by id. Nothing is audited unless they say so: an entry
    that comes by itself would be in the way of those who count entries."""
    running = Cluster(directory, nodes, options)
    try:
        await running.start()
        await running.leader()
        yield running
    finally:
        await running.stop()
    for part in running.parts.values():
        assert part.fatal == []


def request(operation: str, **fields: Any) -> Request:
    return cast(Request, msgspec.convert(fields, OPERATIONS[operation]))


async def ask(part: Part, operation: str, **fields: Any) -> Any:
    """What `part` answers to one operation: a reply or a Problem."""
    return await part.service.call(operation, TENANT, request(operation, **fields))


def asking(part: Part, operation: str, **fields: Any) -> asyncio.Task[Answer]:
    """The same, under way."""
    return asyncio.get_running_loop().create_task(
        part.service.call(operation, TENANT, request(operation, **fields))
    )


async def acquired(part: Part, key: str, owner: str = "a", **fields: Any) -> LeaseBody:
    """A lease, which must be granted."""
    if "session_id" not in fields:
        fields.setdefault("ttl_ms", 30_000)
    reply = await ask(part, "acquire", key=key, owner=owner, **fields)
    assert isinstance(reply, GrantedReply), reply
    assert isinstance(reply.lease, LeaseBody)
    return reply.lease


async def refused(answer: Awaitable[Any]) -> Problem:
    problem = await answer
    assert isinstance(problem, Problem), problem
    return problem


def applied_everywhere(running: Cluster) -> Callable[[], bool]:
    """Whether all running nodes have applied as much as the furthest."""

    def same() -> bool:
        indexes = {part.replica.applied_index for part in running.parts.values() if part.running}
        return len(indexes) == 1

    return same
