"""A stand-in for the Toxiproxy server where none can be had: the same HTTP API and toxics, over asyncio.

    python -m tenure_chaos.live.proxies.standin -host 127.0.0.1 -port 8474

It is slower, and it is not what the rest of the world tests with: the report of a run says which one served.
tests/live/test_live_toxiproxy.py runs the same cases against both.
"""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from tenure_chaos.live.proxies.links import TYPES, Link, Toxic, reset_on_close

STREAMS: Final = ("upstream", "downstream")

VERSION: Final = "stand-in"


class Refused(Exception):
    """A call that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Proxy:
    """One proxy, its toxics and its connections."""

    def __init__(self, name: str, listen: str, upstream: str) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.toxics: list[Toxic] = []
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], tuple[Link, Link]] = {}

    @property
    def enabled(self) -> bool:
        return self._server is not None

    def told(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "toxics": [toxic.told() for toxic in self.toxics],
        }

    async def start(self) -> None:
        """Raises Refused if the address can't be had."""
        if self._server is not None:
            return
        host, _, port = self.listen.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._accepted, host or None, int(port))
        except (OSError, ValueError) as error:
            raise Refused(500, f"listen tcp {self.listen}: {error}") from error
        bound = self._server.sockets[0].getsockname()
        self.listen = f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """No new connections, and the present ones are closed."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def add(self, toxic: Toxic) -> None:
        if any(one.name == toxic.name for one in self.toxics):
            raise Refused(409, "toxic already exists")
        self.toxics.append(toxic)
        for link in self._links(toxic.stream):
            link.add(toxic)

    def toxic(self, name: str) -> Toxic:
        for toxic in self.toxics:
            if toxic.name == name:
                return toxic
        raise Refused(404, "toxic not found")

    def remove(self, toxic: Toxic) -> None:
        self.toxics.remove(toxic)
        for link in self._links(toxic.stream):
            link.remove(toxic)

    def _links(self, stream: str) -> list[Link]:
        return [link for links in self._connections.values() for link in links if link.stream == stream]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            there, away = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        except BaseException:
            writer.close()
            raise
        up, down = Link("upstream", reader, away), Link("downstream", there, writer)
        for toxic in self.toxics:
            (up if toxic.stream == "upstream" else down).add(toxic)
        if any(toxic.type == "reset_peer" for toxic in self.toxics):
            reset_on_close(writer, away)
        task = asyncio.current_task()
        assert task is not None
        if not self.enabled:  # it was stopped while the other side was dialled
            writer.close()
            away.close()
            return
        self._connections[task] = (up, down)
        running = [asyncio.ensure_future(link.run()) for link in (up, down)]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            # Toxiproxy closes the side that the ended link wrote to; the other link then meets the end.
            ended = writer if running[1].done() else away
            ended.close()
            await asyncio.wait(running, timeout=1.0)
        except asyncio.CancelledError:
            pass
        finally:
            self._connections.pop(task, None)
            for work in running:
                work.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for side in (writer, away):
                side.close()


class Standin:
    """The collection of proxies, and its HTTP API."""

    def __init__(self) -> None:
        self.proxies: dict[str, Proxy] = {}

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_errors])
        app.add_routes(
            [
                web.get("/version", self._version),
                web.post("/reset", self._reset),
                web.get("/proxies", self._index),
                web.post("/proxies", self._create),
                web.post("/populate", self._populate),
                web.get("/proxies/{proxy}", self._show),
                web.post("/proxies/{proxy}", self._update),
                web.patch("/proxies/{proxy}", self._update),
                web.delete("/proxies/{proxy}", self._delete),
                web.get("/proxies/{proxy}/toxics", self._toxics),
                web.post("/proxies/{proxy}/toxics", self._add_toxic),
                web.get("/proxies/{proxy}/toxics/{toxic}", self._show_toxic),
                web.post("/proxies/{proxy}/toxics/{toxic}", self._update_toxic),
                web.patch("/proxies/{proxy}/toxics/{toxic}", self._update_toxic),
                web.delete("/proxies/{proxy}/toxics/{toxic}", self._remove_toxic),
            ]
        )
        return app

    async def close(self) -> None:
        for proxy in self.proxies.values():
            await proxy.stop()

    def _proxy(self, request: web.Request) -> Proxy:
        found = self.proxies.get(request.match_info["proxy"])
        if found is None:
            raise Refused(404, "proxy not found")
        return found

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _reset(self, request: web.Request) -> web.Response:
        for proxy in self.proxies.values():
            await proxy.start()
            for toxic in list(proxy.toxics):
                proxy.remove(toxic)
        return web.Response(status=204)

    async def _index(self, request: web.Request) -> web.Response:
        return web.json_response({name: proxy.told() for name, proxy in self.proxies.items()})

    async def _create(self, request: web.Request) -> web.Response:
        return web.json_response((await self._made(await _body(request))).told(), status=201)

    async def _made(self, said: Mapping[str, Any]) -> Proxy:
        _demand(said)
        if said["name"] in self.proxies:
            raise Refused(409, "proxy already exists")
        proxy = Proxy(said["name"], said.get("listen") or "127.0.0.1:0", said["upstream"])
        if said.get("enabled", True):
            await proxy.start()
        self.proxies[proxy.name] = proxy
        return proxy

    async def _populate(self, request: web.Request) -> web.Response:
        asked = await _body(request, list)
        for said in asked:
            _demand(said)
        made = []
        for said in asked:
            present = self.proxies.get(said["name"])
            if present is not None and (present.listen, present.upstream) == (
                said.get("listen"),
                said["upstream"],
            ):
                made.append(present)
                continue
            if present is not None:
                await present.stop()
                del self.proxies[present.name]
            made.append(await self._made(said))
        return web.json_response({"proxies": [proxy.told() for proxy in made]}, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(self._proxy(request).told())

    async def _update(self, request: web.Request) -> web.Response:
        proxy, said = self._proxy(request), await _body(request)
        enabled = said.get("enabled", proxy.enabled)
        listen, upstream = said.get("listen", proxy.listen), said.get("upstream", proxy.upstream)
        if (listen, upstream) != (proxy.listen, proxy.upstream):
            await proxy.stop()
            proxy.listen, proxy.upstream = listen, upstream
        if enabled and not proxy.enabled:
            await proxy.start()
        elif not enabled:
            await proxy.stop()
        return web.json_response(proxy.told())

    async def _delete(self, request: web.Request) -> web.Response:
        proxy = self._proxy(request)
        await proxy.stop()
        del self.proxies[proxy.name]
        return web.Response(status=204)

    async def _toxics(self, request: web.Request) -> web.Response:
        return web.json_response([toxic.told() for toxic in self._proxy(request).toxics])

    async def _add_toxic(self, request: web.Request) -> web.Response:
        proxy, said = self._proxy(request), await _body(request)
        stream, type_ = said.get("stream") or "downstream", said.get("type", "")
        if stream not in STREAMS:
            raise Refused(400, "stream was invalid, can be either upstream or downstream")
        if type_ not in TYPES:
            raise Refused(400, "invalid toxic type")
        name = said.get("name") or f"{type_}_{stream}"
        toxic = Toxic(name, type_, stream, said.get("toxicity", 1.0), dict(said.get("attributes") or {}))
        proxy.add(toxic)
        return web.json_response(toxic.told())

    async def _show_toxic(self, request: web.Request) -> web.Response:
        return web.json_response(self._proxy(request).toxic(request.match_info["toxic"]).told())

    async def _update_toxic(self, request: web.Request) -> web.Response:
        toxic = self._proxy(request).toxic(request.match_info["toxic"])
        said = await _body(request)
        toxic.attributes.update(said.get("attributes") or {})
        toxic.toxicity = said.get("toxicity", toxic.toxicity)
        return web.json_response(toxic.told())

    async def _remove_toxic(self, request: web.Request) -> web.Response:
        proxy = self._proxy(request)
        proxy.remove(proxy.toxic(request.match_info["toxic"]))
        return web.Response(status=204)


async def _body(request: web.Request, kind: type = dict) -> Any:
    try:
        said = await request.json()
    except ValueError as error:
        raise Refused(400, f"bad request body: {error}") from error
    if not isinstance(said, kind):
        raise Refused(400, f"bad request body: {type(said).__name__}")
    return said


def _demand(said: Mapping[str, Any]) -> None:
    for field in ("name", "upstream"):
        if not said.get(field):
            raise Refused(400, f"missing required field: {field}")


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        said = {"error": str(refused), "status": refused.status}
        return web.json_response(said, status=refused.status)


async def serve(host: str, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    standin, ended = Standin(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(standin.app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    await ended.wait()
    await standin.close()
    await runner.cleanup()


def main() -> None:
    """Takes the options of the real server that the bench uses."""
    parser = argparse.ArgumentParser(prog="standin")
    parser.add_argument("-host", default="127.0.0.1")
    parser.add_argument("-port", type=int, default=8474)
    said = parser.parse_args()
    asyncio.run(serve(said.host, said.port))


if __name__ == "__main__":
    main()
