"""A Tenure cluster of real nodes behind proxies, for somebody's own tests."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenure_chaos.live.chaos import CLIENT, Chaos, ChaosError
from tenure_chaos.live.cluster import LiveCluster, LiveNode
from tenure_chaos.live.network import Network
from tenure_chaos.live.proxies.serving import Choice, proxy_server


class OwnNodes:
    """The processes of a cluster that was started here."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster

    def names(self) -> Sequence[str]:
        return list(self._cluster.nodes)

    def pause(self, name: str) -> None:
        self._cluster.pause(self._running(name))

    def resume(self, name: str) -> None:
        self._cluster.resume(self._cluster.nodes[name])

    def kill(self, name: str) -> None:
        self._cluster.kill(self._running(name))

    def start(self, name: str) -> None:
        self._cluster.start(self._cluster.nodes[name])

    def leader(self) -> str | None:
        found = asyncio.run_coroutine_threadsafe(self._cluster.leader(), self.loop).result()
        return None if found is None else found.name

    def offices(self) -> str:
        states = asyncio.run_coroutine_threadsafe(self._cluster.states(), self.loop).result()
        return ", ".join(f"{name}: {self._office(name, state)}" for name, state in states.items())

    def _office(self, name: str, state: Mapping[str, Any] | None) -> str:
        node = self._cluster.nodes[name]
        if not node.running:
            return f"does not run (see {node.log_path})"
        return "paused" if node.paused else "no answer" if state is None else str(state["role"])

    def _running(self, name: str) -> LiveNode:
        node = self._cluster.nodes[name]
        if not node.running:
            raise ChaosError(f"{name} does not run")
        return node

    loop: asyncio.AbstractEventLoop


@contextlib.contextmanager
def own_cluster(directory: Path, *, nodes: int = 3, proxies: Choice = "any") -> Iterator[Chaos]:
    """A cluster that serves, for as long as the block runs. Raises NoServer, or TimeoutError."""
    with contextlib.ExitStack() as stack:
        directory.mkdir(parents=True, exist_ok=True)
        serving = stack.enter_context(proxy_server(directory / "proxies.log", proxies))
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-chaos-")))
        cluster = LiveCluster(directory, nodes=nodes, sockets=sockets)
        stack.callback(cluster.kill_everything)
        network = Network(serving.server, cluster.nodes, [CLIENT])
        own = OwnNodes(cluster)
        chaos = Chaos(network, own)
        own.loop = chaos.loop
        stack.callback(chaos.close)
        chaos.run(
            network.open(
                lambda a, b: cluster.nodes[b].peer if a in cluster.nodes else cluster.nodes[b].http[7:]
            )
        )
        # Clients are told of their leader by its public URL: that must not lead past the proxies.
        cluster.configure(lambda a, b: network.address(f"{a}>{b}"), chaos.endpoint)
        for node in cluster.nodes.values():
            cluster.start(node)
        chaos.run(cluster.wait_until_serving())
        yield chaos
