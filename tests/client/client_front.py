"""Nodes as the client reaches them over HTTP: on any address, with TLS, with one lease machine behind all."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from tenure.testing import ManualClock
from tenure.testing.server import MemoryServer


@dataclass
class Front:
    """One node. ``url`` is where it is, ``asked`` what came to it."""

    server: MemoryServer
    host: str
    port: int = 0
    tls: ssl.SSLContext | None = None
    leaderless: bool = False
    asked: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.credentials.append(request.headers.get("Authorization", ""))
        if self.leaderless:
            refusal = {"code": "no_leader", "detail": "no leader is known"}
            return web.Response(status=503, body=msgspec.json.encode(refusal))
        body = await request.read()
        status, answered = self.server.handle(request.method, request.raw_path, body or None)
        return web.Response(status=status, body=answered, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(front: Front) -> AsyncIterator[Front]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", front.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, front.host, front.port, ssl_context=front.tls)
        await site.start()
        front.port = runner.addresses[0][1]
        yield front
    finally:
        await runner.cleanup()


def machine() -> MemoryServer:
    return MemoryServer(ManualClock().now)
