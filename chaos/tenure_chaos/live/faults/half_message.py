"""Connections that end in the middle of a message."""

from tenure_chaos.live.faults.slow import Slow


class HalfMessage(Slow):
    name = "half a message"
    what = "every connection ends after 100 to 3,000 bytes, in the middle of a message"
    how_healed = "new connections live"
    lasts_s = (1.0, 5.0)

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        most = self.rng.randrange(100, 3_000)
        if not await self.slow(lines, "limit_data", bytes=most):
            return None
        return f"{where}, {most} bytes"
