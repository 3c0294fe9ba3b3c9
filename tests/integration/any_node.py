"""Calls that go to one node of a cluster after another, and what its watchers were told."""

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from raw_http import NoAnswer, NotSent, fetch

PATIENCE_S: Final = 60.0
"""How long a call is repeated until it has a definite answer."""

_TRANSIENT: Final = frozenset({429, 503, 504})
_READS: Final = {"get_lease": "leases", "queue": "queues", "get_record": "records"}
_TOLD: Final = re.compile(rb"(?:id: (\d+)\n)?event: (\w+)\ndata: ([^\n]*)\n\n")


class AnyNode:
    """Asks another node each time, so that what one has done is seen by all."""

    def __init__(self, urls: Sequence[str], first: int = 0) -> None:
        self.urls = list(urls)
        self._next = itertools.count(first)

    def url(self) -> str:
        """The node whose turn it is."""
        return self.urls[next(self._next) % len(self.urls)]

    async def ask(
        self, operation: str, /, *, url: str | None = None, timeout_s: float = 30.0, **body: Any
    ) -> tuple[int, Any]:
        """One attempt at the next node: (status, body). Raises NotSent or NoAnswer."""
        method, path, data = "POST", f"/v1/{operation}", json.dumps(body).encode()
        if operation == "open_session":
            path = "/v1/sessions"
        elif operation in _READS:
            query = {name: value for name, value in body.items() if name != "key"}
            path = f"/v1/{_READS[operation]}/{quote(body['key'])}?{urlencode(query)}"
            method, data = "GET", None
        elif operation == "list_leases":
            method, path, data = "GET", f"/v1/leases?{urlencode(body)}", None
        answer = await fetch(url or self.url(), method, path, data, timeout_s)
        return answer.status, json.loads(answer.body)

    async def sure(self, operation: str, /, **body: Any) -> tuple[int, Any]:
        """Ask until there is a definite answer, as a client does that can ask again without harm."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    status, answer = await self.ask(operation, **body)
                except (NotSent, NoAnswer):
                    await asyncio.sleep(0.05)
                    continue
                if status not in _TRANSIENT:
                    return status, answer
                await asyncio.sleep(0.05)

    async def ok(self, operation: str, /, expected: int = 200, **body: Any) -> Any:
        """The body of the answer that is expected."""
        status, answer = await self.sure(operation, **body)
        assert status == expected, (operation, body, status, answer)
        return answer

    async def acquired(self, key: str, owner: str, **fields: Any) -> dict[str, Any]:
        if "session_id" not in fields:
            fields.setdefault("ttl_ms", 60_000)
        fields.setdefault("request_id", f"{key}/{owner}")
        lease: dict[str, Any] = (await self.ok("acquire", key=key, owner=owner, **fields))["lease"]
        return lease

    async def session(self, owner: str, ttl_ms: int = 60_000) -> str:
        return str((await self.ok("open_session", owner=owner, ttl_ms=ttl_ms))["session"]["session_id"])

    async def told(self, prefix: str) -> list[dict[str, Any]]:
        """Every event of a prefix from the first to the present, as one node tells them."""
        last = int((await self.ok("list_leases", limit=1))["revision"])
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await _read_events(self.url(), prefix, last)
                except (OSError, EOFError):
                    await asyncio.sleep(0.05)


async def _read_events(url: str, prefix: str, last: int) -> list[dict[str, Any]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        # A client of HTTP/1.0 gets the events as they are, without chunks.
        writer.write(f"GET /v1/events?prefix={quote(prefix)}&from=0 HTTP/1.0\r\nhost: live\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head[9:12] == b"200", head
        found: list[dict[str, Any]] = []
        rest = b""
        while True:
            data = await reader.read(1 << 16)
            if not data:
                raise EOFError
            rest += data
            end = 0
            for told in _TOLD.finditer(rest):
                end = told.end()
                body = json.loads(told[3])
                if "key" in body and body["revision"] <= last:
                    found.append(body)
                if told[1] is not None and int(told[1]) >= last:
                    return found
            rest = rest[end:]
    finally:
        writer.transport.abort()
