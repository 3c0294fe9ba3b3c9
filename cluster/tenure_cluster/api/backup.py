"""`GET /v1/cluster/backup`: the whole state as one file, sent as it is read.

The file tells by its own end whether all of it has come (service/backup_format.py). A backup that fails on
its way is cut off, short of the length that was promised, so no client takes it for whole.
"""

import asyncio
import logging
from typing import Any, Final

from aiohttp import web

from tenure_cluster.api.answer import Answer, refusal
from tenure_cluster.api.exchange import Exchange, LongEndpoint, Outflow
from tenure_cluster.api.routes import Route
from tenure_cluster.service.backups import OpenBackup, Opener
from tenure_cluster.service.errors import Problem

CONTENT_TYPE: Final = b"application/octet-stream"

_log = logging.getLogger("tenure.api")


class BackupEndpoint(LongEndpoint):
    """Sends a backup."""

    def __init__(self, route: Route, open_backup: Opener) -> None:
        super().__init__(route)
        self._open = open_backup

    async def serve(self, exchange: Exchange, request: Any) -> Answer | web.StreamResponse:
        if exchange.request.method == "HEAD":
            return Answer(200, CONTENT_TYPE, b"")
        opened = await self._open(exchange.caller.tenant, exchange.caller.credential_id)
        if isinstance(opened, Problem):
            return refusal(opened, exchange.answer_format)
        flow = Outflow(exchange)
        try:
            await _send(exchange, flow, opened)
        finally:
            opened.close()
            flow.close()
            exchange.connection.on_writable = None
        return exchange.writer.nothing()


async def _send(exchange: Exchange, flow: Outflow, backup: OpenBackup) -> None:
    taken = asyncio.Event()

    def writable() -> None:
        flow.takes_more()
        taken.set()

    exchange.connection.on_writable = writable
    exchange.writer.begin(
        exchange.request, CONTENT_TYPE, exchange.request_id, chunked=False, length=backup.size
    )
    try:
        async for piece in backup.pieces():
            taken.clear()
            if not flow.write(piece):
                await taken.wait()  # cancelled when the connection is lost, also by having taken nothing
            if not exchange.still_allowed():
                raise PermissionError("the credential is not valid any more")
    except OSError as error:
        _log.error("a backup ended before its end: %s", error)
        exchange.connection.abort()
        return
    if exchange.connection.writing_paused:
        await exchange.writer.drain(exchange.request)
