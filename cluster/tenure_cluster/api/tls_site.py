"""The front's address with TLS: aiohttp's runner, behind a listener of our own (tls_listener.py)."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web

from tenure_cluster.api.limits import HttpLimits
from tenure_cluster.tls_listener import TlsListener

HANDSHAKES_MAX: Final = 1_024
"""Handshakes that may be under way at a time, beside the connections."""

_REFUSALS_LOG_PERIOD_S: Final = 60.0
"""Handshakes that fail are logged at most this often."""

_log = logging.getLogger("tenure.api")


class TlsSite(web.BaseSite):
    """As aiohttp's TCPSite, with a context for each handshake."""

    __slots__ = ("_address", "_listener", "_refusals_logged_at", "refused")

    def __init__(
        self,
        runner: web.ServerRunner,
        host: str,
        port: int,
        context: Callable[[], ssl.SSLContext],
        limits: HttpLimits,
    ) -> None:
        super().__init__(runner, backlog=limits.backlog)
        self._address = host, port
        self.refused = 0
        self._refusals_logged_at: float | None = None
        self._listener = TlsListener(
            cast(Callable[[], asyncio.BaseProtocol], runner.server),
            context,
            handshake_timeout_s=limits.read_timeout_ms / 1000,
            handshakes_max=HANDSHAKES_MAX,
            on_refused=self._on_refused,
        )

    @property
    def name(self) -> str:
        return f"https://{self._address[0]}:{self._address[1]}"

    async def start(self) -> None:
        await super().start()
        await self._listener.listen(*self._address, backlog=self._backlog)
        self._server = cast(asyncio.AbstractServer, self._listener)

    def _on_refused(self, address: str, why: str) -> None:
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if self._refusals_logged_at is None or now - self._refusals_logged_at >= _REFUSALS_LOG_PERIOD_S:
            self._refusals_logged_at = now
            _log.warning(
                "connection from %s refused: %s (%d so far, said at most once a minute)",
                address,
                why,
                self.refused,
            )
