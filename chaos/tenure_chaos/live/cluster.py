"""The nodes of a live run: real processes with files of their own, and what can be done to them.

Each node dials its peers through proxies, so its configuration names, for every other member, the address of
the proxy of that one directed pair; its own addresses are the real ones. Who is a member is known by name, so
the nodes don't mind.
"""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure_chaos.live.lines import Place
from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.process import HOST, NodeProcess, kill
from tenure_cluster.config import Config, Member, to_toml
from tenure_cluster.raft import RaftOptions
from tenure_cluster.settings import Admission, Http, Peer

CLUSTER_ID: Final = "live"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
ORDER_TIMEOUT_S: Final = 5.0
SEGMENT_BYTES: Final = 2 << 20
SNAPSHOT_ENTRIES: Final = 1_000
"""Few, so that snapshots are made, sent and installed within a short run."""

EXIT_DAMAGED: Final = 4
EXIT_FATAL: Final = 70
EXIT_START: Final = 3
EXIT_REMOVED: Final = 5
GOOD_ENDS: Final = frozenset(
    (0, -signal.SIGTERM, -signal.SIGKILL, EXIT_START, EXIT_DAMAGED, EXIT_FATAL, EXIT_REMOVED)
)
"""How a process may end by a fault: it was told to stop, perhaps before it listens for that; it was killed;
or it stopped itself because it must."""


class NodeUnreachable(Exception):
    """The node's process did not take an order: it is dead, paused or not that far."""


@dataclass
class Ending:
    """How a process of a node ended."""

    node: str
    incarnation: int
    code: int
    expected: bool
    at: float
    """In seconds of the run."""


@dataclass
class LiveNode(NodeProcess):
    """A node that takes the bench's orders, and what the bench keeps about it."""

    control: Path = field(kw_only=True)
    """The socket on which its process takes orders."""
    may_end: int = 0
    """The last incarnation whose process may end by itself: a fault that is on may have that effect."""
    reserved_by: str = ""
    """The fault that has to do with its process; others leave it alone."""
    joins: bool = False
    """It is none of the first members."""
    endings: list[Ending] = field(default_factory=list)

    @property
    def routes_path(self) -> Path:
        """Where it dials the others, as far as the cluster's log may say otherwise."""
        return self.directory / "routes.json"

    @property
    def observed_path(self) -> Path:
        return self.directory / "observed"

    def order(self, name: str, **fields: Any) -> Any:
        """Have its process do something. Blocks. Raises NodeUnreachable."""
        if not self.running or self.paused:
            raise NodeUnreachable(f"{self.name} does not run")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(ORDER_TIMEOUT_S)
                line.connect(str(self.control))
                line.sendall(json.dumps({"order": name, **fields}).encode() + b"\n")
                with line.makefile() as answers:
                    said = json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise NodeUnreachable(f"{self.name} took no order: {error}") from error
        if "failed" in said:
            raise NodeUnreachable(f"{self.name} {name}: {said['failed']}")
        return said["done"]


class LiveCluster:
    """All nodes. ``route`` gives the address at which one node is to dial another."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int,
        sockets: Path,
        settings: Mapping[str, str] | None = None,
        mutant: str = "",
        places: Mapping[str, Place] | None = None,
    ) -> None:
        """``settings`` are variables of the nodes' environment, ``TENURE_…``. ``places``: by node."""
        self.directory = directory
        self._sockets = sockets
        self.settings = dict(settings or {})
        self.mutant = mutant
        self.note: Callable[[str], None] = lambda text: None
        """Told of the ends of processes."""
        self.began_at = time.monotonic()
        self.downs: list[tuple[float, str, bool]] = []
        """(when, node, whether its process runs from then on)"""
        ports = free_ports(2 * nodes)
        self.nodes: dict[str, LiveNode] = {}
        for name, http, peer in zip(node_names(nodes), ports[::2], ports[1::2], strict=True):
            self.nodes[name] = LiveNode(name, http, peer, directory / name, control=sockets / name)
        for name, place in (places or {}).items():
            self.nodes[name].host, self.nodes[name].prefix = place.host, place.prefix
        self.gone: list[LiveNode] = []
        """Were members once, or meant to be, and never will be again."""

    @property
    def everyone(self) -> list[LiveNode]:
        """All that ever were, in the order in which they came."""
        return sorted([*self.nodes.values(), *self.gone], key=lambda node: int(node.name[1:]))

    def next_name(self) -> str:
        """One that no node has had."""
        return f"n{len(self.everyone) + 1}"

    def new_node(self, place: Place | None) -> LiveNode:
        """One that is to join; nothing of it runs."""
        name = self.next_name()
        http_port, peer_port = free_ports(2)
        node = LiveNode(
            name, http_port, peer_port, self.directory / name, control=self._sockets / name, joins=True
        )
        if place is not None:
            node.host, node.prefix = place.host, place.prefix
        self.nodes[name] = node
        return node

    def leave(self, node: LiveNode) -> None:
        """It is a member no more: it is not started again, and ends by itself."""
        self.gone.append(self.nodes.pop(node.name))

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def configure(self, route: Callable[[str, str], str], public: Callable[[str], str] | None = None) -> None:
        """Write every node's configuration. ``route(from, to)`` is where one node dials another, ``public``
        the URL at which clients are told to find a node, by default its own."""
        for node in self.nodes.values():
            self.configure_node(node, route, public)

    def configure_node(
        self, node: LiveNode, route: Callable[[str, str], str], public: Callable[[str], str] | None = None
    ) -> None:
        """Write one node's, with the members that there are now."""
        http = public or (lambda name: self.nodes[name].http)
        config = Config(
            cluster_id=CLUSTER_ID,
            node_id=node.name,
            data_dir=Path("data"),
            insecure=node.host != HOST,
            join=node.joins,
            http=Http(listen=f"{node.host}:{node.http_port}"),
            peer=Peer(listen=node.peer),
            members={
                other.name: Member(
                    peer=node.peer if other is node else route(node.name, other.name),
                    http=http(other.name),
                )
                for other in self.nodes.values()
            },
            raft=RaftOptions(journal_segment_bytes=SEGMENT_BYTES, snapshot_entries=SNAPSHOT_ENTRIES),
            admission=Admission(disk_reserve_bytes=4 * SEGMENT_BYTES),
        )
        node.directory.mkdir(parents=True, exist_ok=True)
        node.config_path.write_text(to_toml(config), encoding="utf-8")

    def write_routes(self, route: Callable[[str, str], str]) -> None:
        """Tell every node where it dials the others, also those that its configuration does not know."""
        for node in self.nodes.values():
            routes = {name: route(node.name, name) for name in self.nodes if name != node.name}
            new = node.routes_path.with_suffix(".new")
            new.write_text(json.dumps(routes), encoding="utf-8")
            new.replace(node.routes_path)

    # -- processes

    def start(self, node: LiveNode) -> None:
        """Start its process; nothing happens if it runs."""
        self.look()
        if node.running:
            return
        environment = {
            **self.settings,
            "TENURE_CHAOS_OBSERVED": str(node.observed_path),
            "TENURE_CHAOS_CONTROL": str(node.control),
            "TENURE_CHAOS_INCARNATION": str(node.starts + 1),
            "TENURE_CHAOS_ROUTES": str(node.routes_path),
        }
        if self.mutant:
            environment["TENURE_CHAOS_MUTANT"] = self.mutant
        node.control.unlink(missing_ok=True)
        with node.log_path.open("a", encoding="utf-8") as log:
            log.write(f"--- start {node.starts + 1} of {node.name}\n")
        node.spawn("tenure_chaos.live.node.main", ("run", "--config", str(node.config_path)), environment)
        self.downs.append((time.monotonic() - self.began_at, node.name, True))

    def kill(self, *nodes: LiveNode) -> None:
        """SIGKILL, all before any is waited for."""
        running = [node for node in nodes if node.running]
        kill(running)
        for node in running:
            self._ended(node, expected=True)

    def pause(self, node: LiveNode) -> None:
        """SIGSTOP."""
        if node.running:
            node.pause()

    def resume(self, node: LiveNode) -> None:
        if node.running:
            node.resume()
        node.paused = False

    async def stop(self, node: LiveNode) -> bool:
        """SIGTERM, as an operator would. False if it had to be killed after all."""
        if not node.running:
            return True
        assert node.process is not None
        node.may_end = node.starts
        node.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while node.running and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        stopped = not node.running
        if not stopped:
            kill([node])
        self._ended(node, expected=stopped)
        return stopped

    def look(self) -> None:
        """Take note of processes that have ended by themselves."""
        for node in self.everyone:
            if node.process is not None and node.process.poll() is not None:
                good = node.process.returncode in GOOD_ENDS
                self._ended(node, expected=good and node.starts <= node.may_end)

    def _ended(self, node: LiveNode, *, expected: bool) -> None:
        assert node.process is not None
        if not node.endings or node.endings[-1].incarnation != node.starts:
            code = node.process.poll()
            assert code is not None
            at = time.monotonic() - self.began_at
            self.downs.append((at, node.name, False))
            node.endings.append(Ending(node.name, node.starts, code, expected, at))
            self.note(f"{node.name} ended with {code}{'' if expected else ', which nobody had asked for'}")

    def kill_everything(self) -> None:
        """The end, whatever came before."""
        kill(self.everyone)

    # -- looking

    async def state(self, node: LiveNode) -> dict[str, Any] | None:
        """What it has, by its own word; None if it does not say so."""
        try:
            said = await asyncio.to_thread(node.order, "state")
        except NodeUnreachable:
            return None
        assert isinstance(said, dict)
        return said

    async def states(self) -> dict[str, dict[str, Any] | None]:
        nodes = list(self.nodes.values())  # some may come or go meanwhile
        found = await asyncio.gather(*(self.state(node) for node in nodes))
        return {node.name: state for node, state in zip(nodes, found, strict=True)}

    async def leader(self) -> LiveNode | None:
        """The node that leads by its own word, in the greatest term that anybody reports."""
        states = {name: state for name, state in (await self.states()).items() if state is not None}
        leading = [name for name, state in states.items() if state["role"] == "leader"]
        if not leading:
            return None
        name = max(leading, key=lambda name: states[name]["term"])
        newest = max(state["term"] for state in states.values())
        return self.nodes.get(name) if states[name]["term"] == newest else None

    async def wait_until_serving(self, timeout_s: float = START_TIMEOUT_S) -> LiveNode:
        """A leader that all nodes can be asked about. Raises TimeoutError, or what a dead node said last."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.look()
            for node in self.nodes.values():
                if not node.running:
                    raise TimeoutError(f"{node.name} ended at its start: {last_words(node)}")
            states = await self.states()
            leader = await self.leader()
            if leader is not None and all(state is not None for state in states.values()):
                return leader
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster did not come to serve within {timeout_s:.0f} s")
            await asyncio.sleep(0.1)


def node_names(count: int) -> list[str]:
    """Of a cluster of so many."""
    return [f"n{number}" for number in range(1, 1 + count)]


def last_words(node: LiveNode) -> str:
    """The last line of its log."""
    lines = node.log_text().strip().splitlines()
    return lines[-1] if lines else "nothing"
