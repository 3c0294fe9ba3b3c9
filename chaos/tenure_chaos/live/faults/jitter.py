"""Bytes that come late by another time each."""

from tenure_chaos.live.faults.slow import Slow


class Jitter(Slow):
    name = "jitter"
    what = "every byte takes 0 to 600 ms longer, by another time for each message"

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        most = self.rng.choice((100, 600))
        if not await self.slow(lines, "latency", latency=most // 2, jitter=most // 2):
            return None
        return f"{where}, up to {most} ms"
