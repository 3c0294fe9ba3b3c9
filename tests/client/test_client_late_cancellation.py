"""A cancellation that comes in the same turn of the loop as the end of an attempt's time is not lost."""

import asyncio
import time

import pytest

from tenure._http import Http, NoAnswer
from tenure._protocol import Attempt

TIMEOUT_S = 0.2


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take what comes, and never answer."""
    try:
        while await reader.read(1_000):
            pass
    finally:
        writer.close()


async def ended(*, cancelled: bool) -> asyncio.Task[object]:
    """An attempt whose time is over; its cancellation, if any, was due right after, and the loop was late."""
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = Http(credential=None)
    try:
        attempt = Attempt(f"http://127.0.0.1:{port}", "GET", "/", None, TIMEOUT_S, 0.0, once=False)
        task = asyncio.ensure_future(http.send(attempt))
        loop = asyncio.get_running_loop()
        if cancelled:
            loop.call_later(1.5 * TIMEOUT_S, task.cancel)
        loop.call_later(0.5 * TIMEOUT_S, time.sleep, 2 * TIMEOUT_S)
        await asyncio.wait((task,))
        return task
    finally:
        await http.close()
        server.close()


async def test_who_is_cancelled_as_an_attempt_times_out_is_cancelled() -> None:
    task = await ended(cancelled=True)
    assert task.cancelled()


async def test_who_is_not_cancelled_is_told_that_no_answer_came() -> None:
    task = await ended(cancelled=False)
    assert not task.cancelled()
    assert isinstance(task.exception(), NoAnswer)
    with pytest.raises(NoAnswer, match="no answer within"):
        task.result()
