"""Ends of processes at chosen moments: inside a sync, and at each named point of the code."""

import asyncio
from typing import Final

from tenure_chaos.sim import crashes
from tenure_chaos.sim.faults.disks import normal_speed
from tenure_chaos.sim.faults.kind import Kind
from tenure_chaos.sim.node import SimNode
from tenure_cluster import faults

POINTS: Final = tuple(sorted(faults.POINTS))

SNAPSHOT_POINTS: Final = tuple(point for point in POINTS if point.startswith("snapshot."))

SEGMENT_POINTS: Final = tuple(point for point in POINTS if "segment" in point)
"""Come to only when a segment of the journal is nearly full."""

SELDOM: Final = ("rename", "remove")
"""Operations of a disk that hardly anything asks for but a snapshot that is finished."""

SELDOM_WITHIN: Final = 6
"""Where as few operations would be counted beside a snapshot, one of the seldom ones is waited for."""

WITHIN_S: Final = 6.0
SEGMENT_WITHIN_S: Final = 25.0
"""How long the moment is waited for."""

LOOK_S: Final = 0.0005
"""How often a node is looked at for a sync under way; most take longer."""


class _Crash(Kind):
    """Waits for the moment; if it does not come in time, nothing has happened."""

    def begin(self) -> str | None:
        self.node: SimNode = self.scene.likely_leader()
        if not self.node.up:
            return None
        self.power = self.rng.random() < 0.7
        return self.node.name

    def crash(self) -> None:
        if self.power:
            self.world.lose_power(self.node)
        else:
            self.node.kill()

    async def down(self) -> None:
        await asyncio.sleep(self.rng.choice((0.05, 0.5, 3.0)))

    def heal(self) -> None:
        self.world.start_node(self.node)


class CrashInSync(_Crash):
    """Between the beginning of a sync of the journal and its end, the machine loses its power or the process
    is killed."""

    name = "crash in a sync"

    def begin(self) -> str | None:
        target = super().begin()
        if target is not None and self.rng.random() < 0.5:
            self.node.disk.sync_max_s = 0.02
        return target

    async def last(self) -> None:
        ends = self.world.now() + WITHIN_S
        while self.node.up and self.world.now() < ends:
            if self.node.syncing:
                await asyncio.sleep(self.rng.uniform(0.0, self.node.disk.sync_max_s / 2))
                if self.node.up and self.node.syncing:
                    self.crash()
                    self.world.count("crashed in a sync")
                    await self.down()
                    return
            await asyncio.sleep(LOOK_S)

    def heal(self) -> None:
        normal_speed(self.node.disk)
        super().heal()


class _CrashOnTheWay(_Crash):
    """The moment is one that the process comes to by itself: while it serves, or while it starts after
    another crash."""

    def begin(self) -> str | None:
        target = super().begin()
        if target is None or not self.arm():
            return None
        self.crashed: asyncio.Future[None] = self.world.loop.create_future()
        self.again = self.rng.random() < 0.3
        if self.again:
            self.crash()
        return f"{target}{' while it starts' if self.again else ''}: {self.where}"

    where = ""
    wait_s = WITHIN_S

    def arm(self) -> bool:
        """Have the process end there. False if that is not possible now."""
        raise NotImplementedError

    def disarm(self) -> None:
        raise NotImplementedError

    def now(self) -> None:
        """The process has come there."""
        starting = self.node.starting
        self.world.note(f"{self.node.name} crashes: {self.where}")
        self.crash()
        self.world.count("crashed while starting" if starting else "crashed while serving")
        self.crashed.set_result(None)

    async def last(self) -> None:
        if self.again:
            await self.down()
            self.world.start_node(self.node)
        try:
            async with asyncio.timeout(self.wait_s):
                await self.crashed
        except TimeoutError:
            return
        await self.down()

    def heal(self) -> None:
        self.disarm()
        super().heal()


class CrashAtPoint(_CrashOnTheWay):
    """At a named point of the code."""

    name = "crash at a point"

    def arm(self) -> bool:
        self.where = self.rng.choice(SEGMENT_POINTS if self.rng.random() < 0.4 else POINTS)
        if self.where in SEGMENT_POINTS:
            self.wait_s = SEGMENT_WITHIN_S
        if self.world.crashes.armed(self.node, self.where):
            return False
        self.world.crashes.arm(self.node, self.where, self.now)
        if self.where in SNAPSHOT_POINTS:
            self.node.snapshot_soon()
        return True

    def disarm(self) -> None:
        self.world.crashes.disarm(self.node, self.where)

    def now(self) -> None:
        self.world.count(f"crashed at {self.where}")
        super().now()


class CrashAtOperation(_CrashOnTheWay):
    """Right before some operation of the disk, whichever it is."""

    name = "crash at a disk operation"

    def arm(self) -> bool:
        if crashes.CrashAtOperation.armed(self.node):
            return False
        nth = 1 + int(self.rng.expovariate(1.0 / self.rng.choice((3, 20))))
        counts: tuple[str, ...] = crashes.OPERATIONS
        if self.rng.random() < 0.3:
            self.node.snapshot_soon()
            if nth <= SELDOM_WITHIN:
                nth, counts = 1, (SELDOM[nth % 2],)
        self.where = f"disk operation {nth} of {', '.join(counts)}"
        self.armed = crashes.CrashAtOperation(self.node, nth, self.now, counts)
        return True

    def disarm(self) -> None:
        self.armed.disarm()

    def now(self) -> None:
        self.world.count(f"crashed before disk operation {self.armed.at}")
        super().now()
