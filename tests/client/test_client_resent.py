"""What the HTTP library would send a second time by itself is sent once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tenure._http import Http, NoAnswer
from tenure._protocol import Attempt

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers each GET, keeps connections, and closes one that brings anything else without a word."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method = head.split(b" ", 1)[0].decode()
            self.seen[method] += 1
            if method != "GET":
                break
            writer.write(ANSWER)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    told = Server()
    listening = await asyncio.start_server(told.serve, "127.0.0.1", 0)
    told.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield told
    listening.close()


@pytest.mark.parametrize("once", [False, True])
async def test_a_delete_whose_answer_is_lost_has_been_sent_once(server: Server, once: bool) -> None:
    """aiohttp would send it again over another connection, and hide that the first may have been executed."""
    http = Http(credential=None)
    try:
        for _ in range(2):
            await http.send(Attempt(server.url, "GET", "/v1/records/k", None, 5.0, 0.0, once=False))
        with pytest.raises(NoAnswer):
            await http.send(Attempt(server.url, "DELETE", "/v1/records/k", None, 5.0, 0.0, once=once))
    finally:
        await http.close()
    assert server.seen == {"GET": 2, "DELETE": 1}
