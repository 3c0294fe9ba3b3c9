"""Whole clusters in one process: real loop, real loopback TCP, real disks, a trivial state machine.

Between every two nodes there is a small TCP proxy for each direction, since links are directed. A cut proxy
swallows all that comes, as a network does that loses packets; nothing in the product knows of it.
"""

import asyncio
import contextlib
import hashlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tenure_cluster.raft import Applied, NotExecuted, Outcome, Raft, RaftOptions, mitigations
from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import Done, SystemDisk

CLUSTER_ID = "test"

QUICK = RaftOptions(
    election_timeout_min_ms=200,
    election_timeout_max_ms=400,
    heartbeat_ms=40,
    journal_segment_bytes=256 << 10,
)


async def eventually(condition: Callable[[], object], what: str = "", timeout_s: float = 10.0) -> None:
    """Wait until `condition()` holds; fail, naming it, if it does not in time."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        await asyncio.sleep(0.002)


class ListMachine:
    """Keeps every command that it was given, in order, and a digest over all of them."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, bytes]] = []
        self.digest = b""
        self.time_ms = 0
        self.index = 0
        self.restored = 0

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        assert index > self.index, "an entry was applied twice"
        self.index = index
        for at_ms, command in commands:
            if command == b"raise":
                raise RuntimeError("the machine was told to")
            assert at_ms >= self.time_ms, "stamps fell"
            self.time_ms = at_ms
            self.commands.append((at_ms, command))
            self.digest = hashlib.sha256(self.digest + command).digest()
        return [len(self.commands) - len(commands) + n for n in range(len(commands))]

    def snapshot(self) -> Iterator[bytes]:
        state = (self.index, self.time_ms, self.digest, list(self.commands))
        packed = msgspec.msgpack.encode(state)
        return (packed[at : at + 1000] for at in range(0, len(packed), 1000))

    def restore(self, chunks: Iterable[bytes], index: int) -> None:
        packed = b"".join(chunks)
        state = msgspec.msgpack.decode(packed, type=tuple[int, int, bytes, list[tuple[int, bytes]]])
        self.index, self.time_ms, self.digest, self.commands = state
        self.restored += 1

    def values(self) -> list[bytes]:
        return [command for _, command in self.commands]


class Proxy:
    """One direction of one pair of nodes: what `source` dials to reach `target`."""

    def __init__(self, target_port: Callable[[], int | None]) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._target_port()
        try:
            if port is None:
                raise ConnectionRefusedError
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            writer.transport.abort()
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            self._writers.discard(writer)

    def clog(self) -> None:
        """Nothing arrives any more, until `unclog` lets all of it through, late and in order."""
        self._flowing.clear()

    def unclog(self) -> None:
        self._flowing.set()

    def heal(self) -> None:
        """If it is clogged: the connections of that time are broken, new ones work."""
        if not self._flowing.is_set():
            self.break_connections()
            self._flowing.set()

    def break_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.break_connections()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class FaultyDisk(SystemDisk):
    """A real disk whose next syncs take longer, or fail."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.slow_s = 0.0
        self.error: OSError | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        super().close()

    def run(self, work: Callable[[], None], done: Done) -> None:
        if self.closed:
            return  # the process is dead: its next life works on the same files
        slow_s, error = self.slow_s, self.error

        def faulty() -> None:
            time.sleep(slow_s)
            if error is not None:
                raise error
            work()

        super().run(faulty if slow_s or error else work, done)

    def run_bulk(self, work: Callable[[], None], done: Done) -> None:
        if not self.closed:
            super().run_bulk(work, done)


class Member:
    """One node of a cluster, which may be killed and started again."""

    def __init__(self, cluster: "Cluster", node_id: str, directory: Path, port: int = 0) -> None:
        """`port`: of a member that joins; the others have any one, behind proxies."""
        self.node_id = node_id
        self.port = port
        self.removed: list[str] = []
        self.directory = directory
        self.machine = ListMachine()
        self.raft: Raft | None = None
        self.fatal: list[BaseException] = []
        self._cluster = cluster
        self.answered_twice: list[bytes] = []
        self._disk: FaultyDisk | None = None

    @property
    def disk(self) -> FaultyDisk:
        assert self._disk is not None, f"{self.node_id} is down"
        return self._disk

    @property
    def up(self) -> bool:
        return self.raft is not None

    @property
    def node(self) -> Raft:
        assert self.raft is not None, f"{self.node_id} is down"
        return self.raft

    async def start(self) -> None:
        self.machine = ListMachine()
        self._disk = FaultyDisk(self.directory)
        raft = Raft(
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            members=self._cluster.members_as_seen_by(self.node_id),
            listen=f"127.0.0.1:{self.port}",
            joins=self.port > 0,
            address=f"127.0.0.1:{self.port}" if self.port else "",
            disk=self._disk,
            clock=SystemClock(),
            machine=self.machine,
            options=self._cluster.options,
            on_fatal=self.fatal.append,
            on=self._cluster.on,
        )
        raft.on_removed = self.removed.append
        await raft.start()
        self.raft = raft

    async def kill(self) -> None:
        """As SIGKILL: nothing more is sent, written or synced."""
        raft, self.raft = self.raft, None
        if raft is not None:
            await raft.abandon()
        self._close()

    async def stop(self) -> None:
        raft, self.raft = self.raft, None
        if raft is not None:
            await raft.stop()
        self._close()

    def _close(self) -> None:
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def propose(self, command: bytes) -> "asyncio.Future[Outcome]":
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if future.done():
                self.answered_twice.append(command)
            else:
                future.set_result(outcome)

        self.node.propose(self.node.now_ms(), command, done)
        return future


class Cluster:
    def __init__(
        self,
        directory: Path,
        size: int,
        options: RaftOptions = QUICK,
        on: frozenset[str] = mitigations.ALL,
    ) -> None:
        self.options = options
        self.on = on
        self.members = {f"n{n}": Member(self, f"n{n}", directory / f"n{n}") for n in range(1, size + 1)}
        self.proxies: dict[tuple[str, str], Proxy] = {}

    async def start(self) -> None:
        for source in self.members:
            for target in self.members:
                if source != target:
                    proxy = Proxy(lambda target=target: self._port(target))
                    await proxy.start()
                    self.proxies[source, target] = proxy
        for member in self.members.values():
            await member.start()

    def _port(self, node_id: str) -> int | None:
        raft = self.members[node_id].raft
        return None if raft is None else raft.port

    def members_as_seen_by(self, node_id: str) -> dict[str, str]:
        return {
            other: "127.0.0.1:0" if other == node_id else self.proxies[node_id, other].address
            for other in self.members
            if other == node_id or (node_id, other) in self.proxies
        }

    async def joining(self, node_id: str, directory: Path) -> Member:
        """A node that knows the present ones and no members; it has started."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for other in self.members:
            proxy = Proxy(lambda other=other: self._port(other))
            await proxy.start()
            self.proxies[node_id, other] = proxy
        member = self.members[node_id] = Member(self, node_id, directory / node_id, port)
        await member.start()
        return member

    async def stop(self) -> None:
        for member in self.members.values():
            await member.kill()
        for proxy in self.proxies.values():
            await proxy.stop()

    # -- who leads

    @property
    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.up]

    def serving(self) -> list[Member]:
        return [member for member in self.up if member.node.serving()]

    async def leader(self, among: Iterable[Member] | None = None, timeout_s: float = 10.0) -> Member:
        """The one that serves in the highest term, once there is one."""
        candidates = self.up if among is None else list(among)

        def serving() -> list[Member]:
            return [member for member in candidates if member.up and member.node.serving()]

        await eventually(serving, "a leader that serves", timeout_s)
        return max(serving(), key=lambda member: member.node.status().term)

    # -- links

    def isolate(self, node_id: str) -> None:
        for pair, proxy in self.proxies.items():
            if node_id in pair:
                proxy.clog()

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()

    # -- work

    async def put(self, command: bytes, timeout_s: float = 10.0) -> Applied:
        """Propose until it is applied. A command may be applied twice if an outcome was unknown."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while loop.time() < deadline_s:
            leader = await self.leader(timeout_s=deadline_s - loop.time())
            outcome = await leader.propose(command)
            if isinstance(outcome, Applied):
                return outcome
        raise AssertionError(f"{command!r} was not applied within {timeout_s} s")

    async def agree(self, timeout_s: float = 10.0) -> None:
        """All nodes that are up reach the same state, with everything applied that the leader has
        committed."""

        def equal() -> bool:
            states = {(member.node.status().applied_index, member.machine.digest) for member in self.up}
            leaders = self.serving()
            return (
                len(states) == 1
                and len(leaders) == 1
                and leaders[0].node.status().applied_index == leaders[0].node.status().last_index
            )

        await eventually(equal, "equal states", timeout_s)
        first, *others = self.up
        for other in others:
            assert other.machine.commands == first.machine.commands


@contextlib.asynccontextmanager
async def cluster_of(
    directory: Path,
    size: int,
    options: RaftOptions = QUICK,
    on: frozenset[str] = mitigations.ALL,
) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory, size, options, on)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
    for member in cluster.members.values():
        assert member.answered_twice == []
        assert member.fatal == []


def is_refused(outcome: Outcome, reason: str) -> bool:
    return isinstance(outcome, NotExecuted) and outcome.reason == reason
