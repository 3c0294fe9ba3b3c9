"""A reader of Server-Sent Events that keeps what came as it came."""

import asyncio
import json
from typing import Any, NamedTuple

from api_wire import request_bytes


class Told(NamedTuple):
    """One event of the stream."""

    id: int | None
    kind: str
    data: dict[str, Any]


class Listener:
    """One GET /v1/events, read as far as it is asked to."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, headers: dict[str, str]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._text = b""
        self.status = status
        self.headers = headers
        self.comments: list[str] = []
        self.complete = False
        """Whether the body has come to its proper end."""

    @classmethod
    async def open(cls, port: int, target: str = "/v1/events", **headers: str) -> "Listener":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(request_bytes("GET", target, b"", headers))
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode("latin-1")
        status_line, *lines = head.rstrip("\r\n").split("\r\n")
        found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return cls(reader, writer, int(status_line.split(" ")[1]), found)

    async def __aenter__(self) -> "Listener":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Vanish."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass

    async def next(self, within_s: float = 20.0) -> Told | None:
        """The next event; None at the end of the body."""
        async with asyncio.timeout(within_s):
            while True:
                while b"\n\n" not in self._text:
                    chunk = await self._chunk()
                    if not chunk:
                        return None
                    self._text += chunk
                if (told := self._told()) is not None:
                    return told

    def _told(self) -> Told | None:
        """The event of the next block, if it holds one."""
        block, _, self._text = self._text.partition(b"\n\n")
        fields: dict[str, str] = {}
        for line in block.decode().split("\n"):
            name, _, value = line.partition(": ")
            if name == "":
                self.comments.append(value)
            else:
                assert name not in fields
                fields[name] = value
        if "data" not in fields:
            return None
        place = int(fields["id"]) if "id" in fields else None
        return Told(place, fields["event"], json.loads(fields["data"]))

    async def events(self, count: int) -> list[Told]:
        """The next so many that are events of the log, and no notices."""
        found: list[Told] = []
        while len(found) < count:
            told = await self.next()
            assert told is not None, found
            if "key" in told.data:
                found.append(told)
        return found

    async def comment(self) -> str:
        """The first comment, which nothing but bookmarks comes before."""
        while not self.comments:
            told = self._told() if b"\n\n" in self._text else None
            assert told is None or told.kind == "bookmark", told
            if not self.comments:
                self._text += await asyncio.wait_for(self._chunk(), 20)
        return self.comments[0]

    async def rest(self) -> list[Told]:
        """All that still comes until the body ends."""
        found = []
        while (told := await self.next()) is not None:
            found.append(told)
        return found

    async def _chunk(self) -> bytes:
        if "transfer-encoding" not in self.headers:
            data = await self._reader.read(65_536)
            self.complete = not data
            return data
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        data = await self._reader.readexactly(size + 2)
        self.complete = size == 0
        return data[:-2]
