"""A cluster of real server processes on this machine, for tests and measurements that need the real thing.

The harness writes each node's configuration file, starts `tenured run`, waits for conditions by polling with
a deadline, and can kill, pause and restart each node. Every process is ended by its pid when the cluster is
closed, and the ends of the nodes' logs are printed when a test fails.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from raw_http import HttpAnswer, NoAnswer, NotSent, fetch

from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.process import NodeProcess, kill

START_TIMEOUT_S: Final = 120.0
"""How long a node, or a whole cluster, may take until it is ready."""

STOP_TIMEOUT_S: Final = 15.0
"""How long a node may take to stop on SIGTERM."""

LOG_TAIL_LINES: Final = 60
"""How much of each node's log a failed test prints."""

Settings = Mapping[str, Mapping[str, int | str | bool]]
"""Sections and their settings, laid over the configuration that the harness writes; section "" is the top."""


async def until(
    condition: Callable[[], Awaitable[Any]], timeout_s: float, what: str, period_s: float = 0.01
) -> Any:
    """Poll until `condition` gives something true, and return that. Raises TimeoutError that says what was
    awaited."""
    deadline = time.monotonic() + timeout_s
    while True:
        if value := await condition():
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        await asyncio.sleep(period_s)


@dataclass
class LiveNode(NodeProcess):
    """One node of a test's cluster."""

    extra_environment: dict[str, str] = field(default_factory=dict)

    @property
    def node_id(self) -> str:
        return self.name

    @property
    def url(self) -> str:
        return self.http

    @property
    def snapshot_index(self) -> int:
        """Index of the newest snapshot in the data directory; 0 if there is none."""
        names = [path.name for path in self.data_dir.glob("snapshot-*.snap")]
        return max((int(name.removeprefix("snapshot-").removesuffix(".snap")) for name in names), default=0)

    def cpu_s(self) -> float:
        """CPU time of the process so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stat_state(self) -> str:
        """The kernel's one letter for the process: R, S, D, T (stopped), Z …"""
        return Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


class LiveCluster:
    """`async with LiveCluster(directory) as cluster:` starts the nodes and waits until all are ready."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        settings: Settings | None = None,
        durability: str = "fsync",
        wait_ready: bool = True,
    ) -> None:
        self.directory = directory
        self.cluster_id = "live"
        self.settings: Settings = settings or {}
        self.durability = durability
        self.wait_ready = wait_ready
        ports = free_ports(2 * nodes)
        self.nodes = {
            f"n{i + 1}": LiveNode(f"n{i + 1}", ports[2 * i], ports[2 * i + 1], directory / f"n{i + 1}")
            for i in range(nodes)
        }

    async def __aenter__(self) -> Self:
        try:
            for node in self.nodes.values():
                self.write_config(node)
                self.start(node)
            if self.wait_ready:
                await self.ready()
        except BaseException:
            self.print_logs()
            self.kill_everything()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.print_logs()
        self.kill_everything()

    # -- configuration

    def write_config(self, node: LiveNode, **top: str) -> None:
        """Write the node's file; `top` overrides settings of the top section for this node."""
        node.directory.mkdir(parents=True, exist_ok=True)
        sections: dict[str, dict[str, int | str | bool]] = {
            "": {
                "cluster_id": self.cluster_id,
                "node_id": node.node_id,
                "data_dir": "data",
                "durability": self.durability,
            },
            "http": {"listen": f"127.0.0.1:{node.http_port}"},
            "peer": {"listen": f"127.0.0.1:{node.peer_port}"},
        }
        for member in self.nodes.values():
            sections[f"members.{member.node_id}"] = {
                "peer": f"127.0.0.1:{member.peer_port}",
                "http": member.url,
            }
        for name, values in self.settings.items():
            sections.setdefault(name, {}).update(values)
        sections[""].update(top)
        lines: list[str] = []
        for name, values in sections.items():
            lines += [f"[{name}]"] if name else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        node.config_path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    # -- processes

    def start(self, node: LiveNode) -> None:
        """Start the node's process; its output is appended to its log."""
        arguments = ("run", "--config", str(node.config_path))
        node.spawn("tenure_cluster.cli", arguments, node.extra_environment)

    def kill(self, *nodes: LiveNode) -> float:
        """SIGKILL, all before any is waited for; returns the monotonic time just before the first signal."""
        at = time.monotonic()
        kill(nodes)
        return at

    async def pause(self, node: LiveNode) -> float:
        """SIGSTOP; returns the monotonic time just before the signal, when the process has stopped."""
        at = time.monotonic()
        node.pause()

        async def stopped() -> bool:
            return node.stat_state() == "T"

        await until(stopped, 2.0, f"{node.node_id} to stop", 0.001)
        return at

    def resume(self, node: LiveNode) -> None:
        node.resume()

    async def stop(self, *nodes: LiveNode) -> None:
        """SIGTERM, as an operator would, and wait for the end. A node that does not end, or ends badly, is an
        error."""
        for node in nodes:
            os.kill(node.pid, signal.SIGTERM)
        for node in nodes:

            async def ended(node: LiveNode = node) -> bool:
                return not node.running

            await until(ended, STOP_TIMEOUT_S, f"{node.node_id} to stop on SIGTERM")
            assert node.process is not None
            assert node.process.returncode == 0, f"{node.node_id} ended with {node.process.returncode}"

    async def exit_code(self, node: LiveNode, timeout_s: float = START_TIMEOUT_S) -> int:
        """Wait until the node's process has ended by itself."""

        async def ended() -> bool:
            return not node.running

        await until(ended, timeout_s, f"{node.node_id} to end by itself")
        assert node.process is not None
        assert node.process.returncode is not None
        return node.process.returncode

    def kill_everything(self) -> None:
        kill(self.nodes.values())

    def assert_all_run(self) -> None:
        """Nobody has ended by itself."""
        dead = {
            node.node_id: node.process.returncode
            for node in self.nodes.values()
            if node.process is not None and not node.running
        }
        assert dead == {}, f"nodes ended by themselves: {dead}"

    def print_logs(self) -> None:
        for node in self.nodes.values():
            lines = node.log_text().splitlines()[-LOG_TAIL_LINES:]
            state = "running" if node.running else f"ended {node.process.returncode if node.process else ''}"
            print(f"--- {node.node_id} ({state}), {node.log_path}", *lines, sep="\n", file=sys.stderr)  # noqa: T201

    # -- looking

    async def get(self, node: LiveNode, path: str, timeout_s: float = 2.0) -> HttpAnswer | None:
        """A GET; None if the node did not answer in time."""
        try:
            return await fetch(node.url, "GET", path, timeout_s=timeout_s)
        except (NotSent, NoAnswer):
            return None

    async def view(self, node: LiveNode) -> dict[str, Any] | None:
        """The node's own view of the cluster, or None if it does not answer."""
        answer = await self.get(node, "/v1/cluster")
        return json.loads(answer.body) if answer is not None and answer.status == 200 else None

    async def is_ready(self, node: LiveNode) -> bool:
        if not node.running:
            assert node.process is not None
            raise AssertionError(f"{node.node_id} ended with {node.process.returncode} while it was awaited")
        answer = await self.get(node, "/readyz")
        return answer is not None and answer.status == 200

    async def ready(self, *nodes: LiveNode, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until these nodes (all by default) say that they serve."""
        for node in nodes or tuple(self.nodes.values()):
            await until(partial(self.is_ready, node), timeout_s, f"{node.node_id} to be ready", 0.02)

    async def leader(self, timeout_s: float = START_TIMEOUT_S) -> LiveNode:
        """The node that leads by its own word, in the greatest term that anybody reports."""

        async def found() -> LiveNode | None:
            alive = [node for node in self.nodes.values() if node.running and not node.paused]
            views = [view for view in await asyncio.gather(*map(self.view, alive)) if view is not None]
            leading = [view for view in views if view["role"] == "leader"]
            if not leading or max(view["term"] for view in views) > max(view["term"] for view in leading):
                return None
            return self.nodes[max(leading, key=lambda view: view["term"])["node"]]

        node = await until(found, timeout_s, "a leader", 0.02)
        assert isinstance(node, LiveNode)
        return node

    async def followers(self) -> list[LiveNode]:
        leader = await self.leader()
        return [node for node in self.nodes.values() if node is not leader]

    async def caught_up(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Wait until every running node has applied all that the leader has committed; returns that index."""

        async def equal() -> int | None:
            alive = [node for node in self.nodes.values() if node.running and not node.paused]
            views = await asyncio.gather(*map(self.view, alive))
            if any(view is None for view in views):
                return None
            applied = {view["applied_index"] for view in views if view is not None}
            last = {view["last_index"] for view in views if view is not None}
            return max(applied) if len(applied | last) == 1 else None

        index = await until(equal, timeout_s, "all nodes to have applied the same index", 0.05)
        assert isinstance(index, int)
        return index


@contextlib.asynccontextmanager
async def paused(cluster: LiveCluster, node: LiveNode) -> AsyncIterator[float]:
    """The node is stopped by SIGSTOP within the block."""
    at = await cluster.pause(node)
    try:
        yield at
    finally:
        cluster.resume(node)
