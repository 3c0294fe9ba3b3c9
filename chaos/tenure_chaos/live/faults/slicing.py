"""Bytes that come in pieces."""

from tenure_chaos.live.faults.slow import Slow


class Slicing(Slow):
    name = "slicing"
    what = "messages arrive in pieces of about 40 bytes, with pauses between"

    async def inject(self) -> str | None:
        lines, where = self.some_lines()
        if not await self.slow(lines, "slicer", average_size=40, size_variation=20, delay=2_000):
            return None
        return where
