"""What stands behind a proxy in tests, and a client that sees how a connection ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

PATIENCE_S = 20.0
"""How long anything may take that must come."""


@dataclass
class Echo:
    """A server that sends back what it gets, and remembers it."""

    address: str
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0


@contextlib.asynccontextmanager
async def echo_server() -> AsyncIterator[Echo]:
    """It lives as long as the block."""
    echo = Echo("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        echo.connections += 1
        try:
            while data := await reader.read(65_536):
                echo.received += data
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    echo.address = f"{host}:{port}"
    try:
        yield echo
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Client:
    """One connection, and in how many pieces it was read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(count)

    async def read_piece(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read(65_536)

    async def ask(self, data: bytes) -> bytes:
        """Send it, and read as much."""
        self.send(data)
        return await self.read(len(data))

    async def is_silent(self, seconds: float) -> bool:
        """Nothing comes and nothing ends for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    async def ending(self) -> str:
        """Read on until the connection ends, and say how: closed or reset."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self._reader.read(65_536):
                    pass
        except ConnectionResetError:
            return "reset"
        return "closed"

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """A connection, closed at the end of the block. Raises OSError."""
    host, _, port = address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.close()
