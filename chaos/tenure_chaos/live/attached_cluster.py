"""Proxies before a cluster that somebody else has started, and faults for it over HTTP.

    GET    /               nodes, lines with their addresses, strikes that are on
    GET    /leader         who leads (Tenure only)
    POST   /strikes        {"fault": "partition", "groups": [["n1"], ["n2", "n3"]]}; tells its id
    DELETE /strikes/ID     heal one
    POST   /heal           heal all

Faults: partition (groups, clients_with), isolate leader, cut (from, to), cut client, lose replies, refuse
client, slow (latency_ms, jitter_ms), pause, kill, kill leader; those that take nodes, take them as ``nodes``.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tenure_chaos.live.attached import AttachedNode, NoProcess
from tenure_chaos.live.chaos import CLIENT, Chaos, ChaosError, Strike
from tenure_chaos.live.lines import NoLines
from tenure_chaos.live.network import Network
from tenure_chaos.live.proxies.serving import Choice, Serving, proxy_server
from tenure_chaos.live.proxies.toxiproxy import ProxyError


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
        return next((name for name, node in self._nodes.items() if not node.paused and node.leads()), None)


@contextlib.contextmanager
def attached_cluster(
    nodes: Sequence[AttachedNode], log: Path, *, first_port: int | None = None, proxies: Choice = "any"
) -> Iterator[tuple[Chaos, Network, Serving]]:
    """Proxies before these nodes, for as long as the block runs. Lines between the nodes are there if all
    nodes have said where they are to be dialled. Raises NoServer or ProxyError."""
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


def _named(asked: Mapping[str, Any]) -> list[str]:
    return [str(node) for node in asked.get("nodes", ())]


def _one(asked: Mapping[str, Any]) -> str:
    [node] = _named(asked)
    return node


FAULTS: Final[Mapping[str, Callable[[Chaos, Mapping[str, Any]], Strike]]] = {
    "partition": lambda chaos, asked: chaos.partition(
        *asked["groups"], clients_with=asked.get("clients_with")
    ),
    "isolate leader": lambda chaos, asked: chaos.isolate_leader(),
    "cut": lambda chaos, asked: chaos.cut(asked["from"], asked["to"]),
    "cut client": lambda chaos, asked: chaos.cut_client(*_named(asked)),
    "refuse client": lambda chaos, asked: chaos.refuse_client(*_named(asked)),
    "lose replies": lambda chaos, asked: chaos.lose_replies(*_named(asked)),
    "slow": lambda chaos, asked: chaos.slow(
        *_named(asked),
        latency_ms=int(asked.get("latency_ms", 100)),
        jitter_ms=int(asked.get("jitter_ms", 0)),
    ),
    "pause": lambda chaos, asked: chaos.pause(_one(asked)),
    "kill": lambda chaos, asked: chaos.kill(_one(asked)),
    "kill leader": lambda chaos, asked: chaos.kill(chaos.leader()),
}


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
            asked = await request.json()
            fault = FAULTS[asked["fault"]]
        except (ValueError, KeyError, TypeError):
            return _refused(f"a body with a fault is expected, one of: {', '.join(FAULTS)}")

        def strike() -> dict[str, str]:
            begun = fault(self._chaos, asked)
            return {"id": begun.id, "what": begun.what}

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
        except (ChaosError, NoProcess, NoLines, ProxyError, KeyError, ValueError, TypeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            return _refused(said)


def _refused(why: str, status: int = 400) -> web.Response:
    return web.Response(status=status, text=json.dumps({"error": why}), content_type="application/json")
