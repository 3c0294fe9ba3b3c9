"""Connections that are reset."""

import asyncio

from tenure_chaos.live.faults.slow import Slow

ROUND_S = 0.4


class ResetLinks(Slow):
    name = "reset links"
    what = "connections are closed again and again, and new ones end by RST at their first bytes"
    how_healed = "new connections live"
    lasts_s = (1.0, 5.0)
    closing: asyncio.Task[None] | None = None
    enough = False

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        if not await self.slow(lines, "reset_peer", timeout=self.rng.choice((0, 50, 300))):
            return None
        self.closing = asyncio.ensure_future(self._close_again_and_again(lines))
        return where

    async def _close_again_and_again(self, lines: list[str]) -> None:
        # A reset only comes where something is sent: what is silent is closed by taking the line down.
        while not self.enough:
            line = self.rng.choice(lines)
            await self.bench.network.refuse([line])
            await self.bench.network.allow([line])
            await asyncio.sleep(ROUND_S)

    async def heal(self) -> None:
        self.enough = True
        if self.closing is not None:
            closing, self.closing = self.closing, None
            await closing
        await super().heal()
