"""Lines that carry little."""

from tenure_chaos.live.faults.slow import Slow


class Bandwidth(Slow):
    name = "bandwidth"
    what = "lines carry 2 to 20 KB a second"

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        rate = self.rng.choice((2, 20))
        if not await self.slow(lines, "bandwidth", rate=rate):
            return None
        return f"{where}, {rate} KB/s"
