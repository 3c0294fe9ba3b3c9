"""``tenure watch`` on a node that has forgotten what was asked for."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from client_front import machine

from tenure._cli.watch import watch as watch_command
from tenure.answers import EventKind
from tenure.testing.server import MemoryServer
from tenure.testing.watching import told


@contextlib.asynccontextmanager
async def node(server: MemoryServer) -> AsyncIterator[str]:
    """A node over HTTP, which tells what it remembers and nothing that comes later. Its URL."""
    over = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        after = int(request.query["from"])
        if (compacted := server.compacted(after)) is not None:
            return web.Response(status=compacted[0], body=compacted[1], content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(told(server.events.after(after), request.query.get("prefix", "")))
        await over.wait()
        return response

    async def answer(request: web.Request) -> web.Response:
        status, body = server.handle(request.method, request.raw_path, await request.read() or None)
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/events", events)
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        over.set()
        await runner.cleanup()


async def watched(url: str, *arguments: str) -> tuple[str, str]:
    """What the command tells, and what it says on standard error. It has to end by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", "watch", *arguments),
        env={**os.environ, "TENURE_ENDPOINTS": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, errors
    return out.decode(), errors.decode()


def forgetful() -> MemoryServer:
    """A node that has forgotten one grant and remembers another."""
    server = machine()
    for key in ("before", "after"):
        body = json.dumps({"key": key, "owner": "a", "ttl_ms": 30_000}).encode()
        assert server.handle("POST", "/v1/acquire", body)[0] == 200
        if key == "before":
            server.events.forget()
    return server


async def test_what_nobody_remembers_is_told_as_a_gap() -> None:
    async with node(forgetful()) as url:
        out, errors = await watched(url, "--from", "0", "--count", "2")
        gap, granted = out.splitlines()
        assert "gap:" in gap
        assert "granted" in granted
        assert errors == ""


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_gap_is_told_to_those_who_asked_for_other_kinds_only(form: str) -> None:
    async with node(forgetful()) as url:
        asked = ("--from", "0", "--count", "1", "--kind", "granted", "-o", form)
        out, errors = await watched(url, *asked)
        assert len(out.splitlines()) == 1
        assert "after" in out
        assert "gap: events before it may be missing" in errors


def test_the_help_names_every_kind() -> None:
    text = watch_command.help or ""
    named = {word.strip(",.") for word in text.partition("Kinds:")[2].split()}
    assert named == {kind.value for kind in EventKind}
