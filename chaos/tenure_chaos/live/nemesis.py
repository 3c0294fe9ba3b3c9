"""Strikes at random moments, with a schedule that is drawn from the seed, and heals what it has struck."""

import asyncio
import random
from collections.abc import Sequence

from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import NodeUnreachable
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.proxies.toxiproxy import ProxyError


class Nemesis:
    """The random mode. Which fault comes when is decided by the seed; whom it strikes also by who leads."""

    def __init__(self, bench: Bench, kinds: Sequence[type[Fault]]) -> None:
        self.bench = bench
        self._kinds = list(kinds)
        self._bag: list[type[Fault]] = []
        self._rng = random.Random(f"schedule of {bench.options.seed}")
        self._stopping = asyncio.Event()
        self._lasting: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] | None = None
        """Ends with what went wrong where nobody waits."""

    async def run(self) -> None:
        """Until it is cancelled; then it heals what is on. Raises what makes going on pointless."""
        if not self._kinds:
            return
        broken = self._broken = asyncio.get_running_loop().create_future()
        try:
            while True:
                gap_s = self._rng.expovariate(1.0 / self.bench.options.gap_s)
                await asyncio.wait((broken,), timeout=gap_s)
                kind, lasts_s = self._next()
                if len(self._lasting) >= self.bench.options.at_once:
                    await asyncio.wait((*self._lasting, broken), return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    break
                await self._strike(kind, lasts_s)
        finally:
            self._stopping.set()
            if not broken.done():
                broken.set_result(None)
            for ended in await asyncio.gather(broken, *self._lasting, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    def _next(self) -> tuple[type[Fault], float]:
        """All kinds come up in turn, each time in another order: a short run sees as many as it can."""
        if not self._bag:
            self._bag = self._rng.sample(self._kinds, len(self._kinds))
        kind = self._bag.pop()
        return kind, self._rng.uniform(*kind.lasts_s)

    async def _strike(self, kind: type[Fault], lasts_s: float) -> None:
        try:
            fault = await self.bench.begin(kind)
        except (NodeUnreachable, ProxyError) as error:
            # A node may die or be paused by another fault while this one is aimed at it.
            self.bench.note(f"{kind.name} came to nothing: {error}")
            return
        if fault is None:
            self._bag.insert(0, kind)  # the last one of this turn
        else:
            task = asyncio.get_running_loop().create_task(self._end_after(fault, lasts_s))
            self._lasting.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._lasting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _end_after(self, fault: Fault, lasts_s: float) -> None:
        try:
            async with asyncio.timeout(lasts_s):
                await self._stopping.wait()
        except TimeoutError:
            pass
        try:
            await self.bench.end(fault)
        except ProxyError as error:
            self.bench.failures.append(f"{fault.name} was not healed: {error}")
            self.bench.note(self.bench.failures[-1])
