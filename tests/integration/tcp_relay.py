"""A relay in front of one node: it can delay what the node answers, or swallow everything and say nothing."""

import asyncio
from typing import Self


class Relay:
    """``async with Relay(url) as relay`` serves at ``relay.url``."""

    def __init__(self, url: str) -> None:
        self._target = int(url.rpartition(":")[2])
        self.delay_s = 0.0
        """How much later answers arrive."""
        self.swallows = False
        """Nothing is passed on in either direction; connections stay open and new ones are accepted."""
        self.accepted = 0
        """Connections that came so far."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def break_all(self) -> None:
        """End every connection that is there; new ones are accepted."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back}
        for source, sink, late in ((reader, back, False), (there, writer, True)):
            task = asyncio.create_task(self._pass(source, sink, late))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, late: bool) -> None:
        try:
            while data := await source.read(65_536):
                if late and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.swallows:
                    continue
                # Without the hint, or the client would go around the relay.
                sink.write(data.replace(b"X-Tenure-Leader", b"X-Nobody-Leader"))
                await sink.drain()
        except OSError:
            pass
        finally:
            if not self.swallows:
                sink.transport.abort()
