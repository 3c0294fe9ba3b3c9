"""A client of the stream that keeps answers by id and what it was told by watch."""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

ANSWER_TIMEOUT_S = 20.0


class StreamClient:
    """One WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.answers: dict[int, tuple[int, Any]] = {}
        self.told: dict[int, list[dict[str, Any]]] = {}
        self.frames: list[list[Any]] = []
        self.strays: list[Any] = []
        """What came with id 0 and belongs to no watch."""
        self._ids = 0

    async def send(self, *operations: tuple[str, dict[str, Any]]) -> list[int]:
        """One frame; the ids of its operations."""
        ids = [self._ids + number for number in range(1, len(operations) + 1)]
        self._ids += len(operations)
        triples = [[number, *operation] for number, operation in zip(ids, operations, strict=True)]
        await self.socket.send_bytes(msgspec.msgpack.encode(triples))
        return ids

    async def ask(self, operation: str, **body: Any) -> tuple[int, Any]:
        [number] = await self.send((operation, body))
        return await self.answer(number)

    async def answer(self, number: int) -> tuple[int, Any]:
        while number not in self.answers:
            assert await self.receive(), f"closed: {self.socket.close_code}"
        return self.answers[number]

    async def ask_all(self, *operations: tuple[str, dict[str, Any]]) -> list[tuple[int, Any]]:
        return [await self.answer(number) for number in await self.send(*operations)]

    async def events(self, watch: int, count: int) -> list[dict[str, Any]]:
        """The first so many events of a watch, without notices."""
        while len(found := [body for body in self.told.get(watch, []) if "key" in body]) < count:
            assert await self.receive(), f"closed: {self.socket.close_code}"
        return found[:count]

    async def receive(self) -> bool:
        """Take the next frame; false if there is none any more."""
        message = await self.socket.receive(timeout=ANSWER_TIMEOUT_S)
        if message.type is not aiohttp.WSMsgType.BINARY:
            return False
        frame = msgspec.msgpack.decode(message.data)
        self.frames.append(frame)
        for number, status, body in frame:
            if number:
                assert number not in self.answers, f"{number} is answered twice"
                self.answers[number] = (status, body)
            elif "watch" in body:
                assert status == 200
                self.told.setdefault(body.pop("watch"), []).append(body)
            else:
                self.strays.append((status, body))
        return True

    async def closed(self) -> tuple[int | None, str]:
        """Take everything until the server closes; its code and reason."""
        while True:
            message = await self.socket.receive(timeout=ANSWER_TIMEOUT_S)
            if message.type is aiohttp.WSMsgType.BINARY:
                for number, status, body in msgspec.msgpack.decode(message.data):
                    if number:
                        self.answers[number] = (status, body)
                    else:
                        self.strays.append((status, body))
            elif message.type is aiohttp.WSMsgType.CLOSE:
                return message.data, message.extra or ""
            else:
                return self.socket.close_code, ""


@contextlib.asynccontextmanager
async def stream(port: int, **headers: str) -> AsyncIterator[StreamClient]:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.ws_connect("/v1/stream", headers=headers, max_msg_size=0, autoclose=False) as socket,
    ):
        yield StreamClient(socket)


class RawStream:
    """A stream that reads only when it is told to: bytes as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "RawStream":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 14)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /v1/stream HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        return cls(reader, writer)

    def send(self, payload: bytes, opcode: int = 2) -> None:
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = b"\xfe" + size.to_bytes(2, "big")
        else:
            length = b"\xff" + size.to_bytes(8, "big")
        self.writer.write(bytes([0x80 | opcode]) + length + bytes(4) + payload)  # masked by zeros

    async def leave(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
