"""Proxies before a cluster that somebody else has started, and faults for it over HTTP.

    GET    /               nodes, lines with their addresses, strikes that are on
    GET    /leader         who leads (Tenure only)
    POST   /strikes        {"fault": "partition", "groups": [["n1"], ["n2", "n3"]]}; tells its id
    DELETE /strikes/ID     heal one
    POST   /heal           heal all

Faults: partition (groups, clients_with), isolate leader, cut (from, to), cut client, lose replies, refuse
client, slow (latency_ms, jitter_ms), pause, kill, kill leader; those that take nodes, take them as ``nodes``.
A fault between nodes that dial each other past the proxies is answered with a ``warning``.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from tenure_chaos.live.attached import AttachedNode, NoProcess
from tenure_chaos.live.chaos import CLIENT, Chaos, ChaosError
from tenure_chaos.live.connections import unused
from tenure_chaos.live.lines import NoLines
from tenure_chaos.live.network import Network
from tenure_chaos.live.orders import BadOrder, read
from tenure_chaos.live.proxies.serving import Choice, Serving, proxy_server
from tenure_chaos.live.proxies.toxiproxy import ProxyError, ServerStuck

NOT_DONE: Final = (ChaosError, NoProcess, NoLines, ProxyError, ServerStuck, OSError)
"""Why an order can't be carried out."""

PAST: Final = (
    "no connection goes through the lines between the nodes: they dial each other past the proxies, so they "
    "will not notice; `proxy serve` has said which address each must dial"
)


class AttachedNodes:
    """Their processes, as far as they are known."""

    def __init__(self, nodes: Sequence[AttachedNode]) -> None:
        self._nodes = {node.name: node for node in nodes}

    def names(self) -> Sequence[str]:
        return list(self._nodes)

    def pause(self, name: str) -> None:
        self._nodes[name].pause()

    def resume(self, name: str) -> None:
        self._nodes[name].resume()

    def kill(self, name: str) -> None:
        if not self._nodes[name].start:
            raise NoProcess(f"how {name} is started again was not said (start), so it is not killed")
        self._nodes[name].kill()

    def start(self, name: str) -> None:
        self._nodes[name].start_again()

    def leader(self) -> str | None:
        leading = [(term, name) for name, (role, term) in self._offices().items() if role == "leader"]
        return max(leading)[1] if leading else None

    def offices(self) -> str:
        return ", ".join(f"{name}: {role}" for name, (role, _) in self._offices().items())

    def _offices(self) -> dict[str, tuple[str, int]]:
        return {name: ("paused", -1) if node.paused else node.office() for name, node in self._nodes.items()}


@contextlib.contextmanager
def attached_cluster(
    nodes: Sequence[AttachedNode], log: Path, *, first_port: int | None = None, proxies: Choice = "any"
) -> Iterator[tuple[Chaos, Network, Serving]]:
    """Proxies before these nodes, for as long as the block runs. Lines between the nodes are there if all
    nodes have said where they are to be dialled. What nodes say that are started again goes beside ``log``.
    Raises NoServer or ProxyError; at the end, what can't be healed."""
    for node in nodes:
        node.log = log.absolute().with_name(f"{node.name}.log")
    by_name = {node.name: node for node in nodes}
    with contextlib.ExitStack() as stack:
        serving = stack.enter_context(proxy_server(log, proxies))
        network = Network(serving.server, by_name, [CLIENT], peers=all(node.peer for node in nodes))
        chaos = Chaos(network, AttachedNodes(nodes))
        stack.callback(chaos.close)

        def upstream(a: str, b: str) -> str:
            return by_name[b].http if a == CLIENT else by_name[b].peer

        chaos.run(network.open(upstream, first_port=first_port))
        yield chaos, network, serving


class Api:
    """Faults over HTTP. Every call is done by a thread: it may take a while."""

    def __init__(self, chaos: Chaos, network: Network) -> None:
        self._chaos = chaos
        self._network = network

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/", self._show),
                web.get("/leader", self._leader),
                web.post("/strikes", self._strike),
                web.delete("/strikes/{id}", self._heal_one),
                web.post("/heal", self._heal),
            ]
        )
        return app

    async def serve(self, port: int) -> None:
        """Take orders on 127.0.0.1 until SIGINT or SIGTERM. Raises OSError if the port can't be had."""
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        runner = web.AppRunner(self.app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await ended.wait()
        finally:
            await runner.cleanup()

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "nodes": list(self._chaos.nodes),
                "endpoints": self._chaos.endpoints,
                "lines": self._network.addresses(),
                "strikes": [{"id": s.id, "what": s.what} for s in self._chaos.strikes.values()],
            }
        )

    async def _leader(self, request: web.Request) -> web.Response:
        return await self._done(lambda: {"leader": self._chaos.leader(0.0)})

    async def _strike(self, request: web.Request) -> web.Response:
        try:
            kind, order = read(await request.json())
        except ValueError as error:
            return _refused(f"the body is not JSON: {error}")
        except BadOrder as error:
            return _refused(str(error))

        def strike() -> dict[str, str]:
            past = kind.between_nodes and unused(map(self._network.address, self._network.peer_lines()))
            begun = kind.begin(self._chaos, order)
            return {"id": begun.id, "what": begun.what, **({"warning": PAST} if past else {})}

        return await self._done(strike)

    async def _heal_one(self, request: web.Request) -> web.Response:
        strike = self._chaos.strikes.get(request.match_info["id"])
        if strike is None:
            return _refused("there is no such strike", 404)

        def heal() -> dict[str, str]:
            strike.heal()
            return {"healed": strike.what}

        return await self._done(heal)

    async def _heal(self, request: web.Request) -> web.Response:
        def heal() -> dict[str, bool]:
            self._chaos.heal()
            return {"healed": True}

        return await self._done(heal)

    async def _done(self, work: Callable[[], object]) -> web.Response:
        try:
            return web.json_response(await asyncio.to_thread(work))
        except NOT_DONE as error:
            return _refused(str(error))


def _refused(why: str, status: int = 400) -> web.Response:
    return web.Response(status=status, text=json.dumps({"error": why}), content_type="application/json")
