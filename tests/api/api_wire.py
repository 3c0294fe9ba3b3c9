"""A client that sends exactly the bytes it is told to, and sees exactly the bytes that come back."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

ANSWER_TIMEOUT_S = 20.0


class Reply(NamedTuple):
    """One answer. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The problem's code; fails if the answer is not a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status
        assert document["type"] == f"urn:tenure:problem:{document['code']}"
        return str(document["code"])


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Wire":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass

    def abort(self) -> None:
        """Vanish: the peer sees a reset."""
        self._writer.transport.abort()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, method: str = "GET") -> Reply:
        """The next answer. Raises asyncio.IncompleteReadError if the connection closes within it."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            head = await self._reader.readuntil(b"\r\n\r\n")
            status_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
            headers = {}
            for line in lines:
                name, _, value = line.partition(": ")
                assert name.lower() not in headers, f"{name} twice"
                headers[name.lower()] = value
            status = int(status_line.split(" ")[1])
            if status == 100 or method == "HEAD":
                return Reply(status, headers, b"")
            return Reply(status, headers, await self._reader.readexactly(int(headers["content-length"])))

    async def ask(self, method: str, target: str | bytes, body: bytes = b"", **headers: str) -> Reply:
        self.send(request_bytes(method, target, body, headers))
        return await self.answer(method)

    async def some(self) -> bytes:
        """What comes next of an answer that goes on; nothing at its end."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await self._reader.read(65_536)

    async def closed(self, within_s: float) -> bytes:
        """Whatever still comes until the peer closes, which it must within the time."""
        async with asyncio.timeout(within_s):
            try:
                return await self._reader.read(-1)
            except ConnectionResetError:
                return b""


def request_bytes(method: str, target: str | bytes, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A request. Header names are given with underscores; one that is given as empty is left out."""
    if isinstance(target, str):
        target = target.encode()
    lines = {"host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body:
        lines.setdefault("content-length", str(len(body)))
        lines.setdefault("content-type", "application/json")
    head = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in lines.items() if value)
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method.encode(), target, head, body)


async def ask(port: int, method: str, target: str | bytes, body: Any = b"", **headers: str) -> Reply:
    """One request on a connection of its own. A body that isn't bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with await Wire.open(port) as wire:
        return await wire.ask(method, target, data, connection="close", **headers)
