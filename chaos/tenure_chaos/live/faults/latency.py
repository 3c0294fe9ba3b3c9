"""Bytes that come late."""

from tenure_chaos.live.faults.slow import Slow


class Latency(Slow):
    name = "latency"
    what = "every byte takes 20 to 400 ms longer, each way"

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        latency = self.rng.choice((20, 100, 400))
        if not await self.slow(lines, "latency", latency=latency):
            return None
        return f"{where}, {latency} ms"
