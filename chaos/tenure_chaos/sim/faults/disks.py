"""Disks that are slow, fail, are full, or forget."""

import asyncio
import errno
from typing import Final

from tenure_chaos.sim.disk import Inode, SimDisk
from tenure_chaos.sim.faults.kind import Kind
from tenure_chaos.sim.node import Rot

ALWAYS: Final = 1 << 40
"""An excuse for every incarnation, as long as the fault lasts."""


def normal_speed(disk: SimDisk) -> None:
    disk.sync_min_s, disk.sync_max_s = 0.0002, 0.002


class SlowDisk(Kind):
    name = "slow disk"
    seconds = (1.0, 5.0)

    def begin(self) -> str | None:
        self.disk = (node := self.scene.any_node()).disk
        self.disk.sync_min_s, self.disk.sync_max_s = 0.01, self.rng.choice((0.05, 0.3, 2.0))
        return node.name

    def heal(self) -> None:
        normal_speed(self.disk)


class SyncError(Kind):
    """The next sync fails, once. The node must stop; nothing is known about what it had written."""

    name = "sync error"
    seconds = (2.0,)

    def begin(self) -> str | None:
        self.node = self.scene.any_node()
        self.node.excuses[errno.EIO] = ALWAYS
        self.node.disk.fail_next_sync = True
        return self.node.name

    def heal(self) -> None:
        self.node.disk.fail_next_sync = False
        # An error in the background may be acted upon later.
        self.node.excuses[errno.EIO] = self.node.process.incarnation
        self.world.start_node(self.node)


class DiskFull(Kind):
    """The space that is left is below the reserve, so nothing new is taken in, and renewals and releases go
    on; or nothing is left at all, and a node goes on until the segments that it has are full."""

    name = "disk full"
    seconds = (3.0, 8.0, 20.0)

    def begin(self) -> str | None:
        self.node = self.scene.likely_leader()
        if self.node.short_of_space:
            return None
        disk, reserve = self.node.disk, self.node.reserve_bytes
        nothing = self.rng.random() < 0.4
        left = 0 if nothing else self.rng.randrange(reserve * 3 // 4, reserve)
        self.before = disk.space_bytes
        disk.space_bytes = disk.space_bytes - disk.free_bytes() + left
        self.node.short_of_space = True
        if nothing:
            self.node.excuses[errno.ENOSPC] = ALWAYS
        return f"{self.node.name} {left} bytes left"

    def heal(self) -> None:
        self.node.disk.space_bytes = self.before
        self.node.short_of_space = False
        if errno.ENOSPC in self.node.excuses:
            self.node.excuses[errno.ENOSPC] = self.node.process.incarnation
        self.world.start_node(self.node)


class BitRot(Kind):
    """One bit of a file of a stopped node changes. Started again it must be no different, or refuse and name
    the place; then its operator brings the file back as it was. One node at a time, which is a minority.

    Nothing less will do: a node whose disk was replaced has forgotten what it promised, and must not vote
    under its old name while members can't be changed.
    """

    name = "bit rot"

    def begin(self) -> str | None:
        self.node = self.scene.any_node()
        if not self.node.up or any(node.rot is not None for node in self.scene.nodes):
            return None
        self.node.kill()
        disk = self.node.disk
        name = self.rng.choice(disk.names())
        written = len(disk.read(name).rstrip(b"\0"))
        size = len(disk.read(name))
        if size == 0:
            self.world.start_node(self.node)
            return None
        offset = self.rng.randrange(written if written and self.rng.random() < 0.8 else size)
        self.node.rot = Rot(name, offset)
        self.inode: Inode = disk._names[name]
        self.inode.sync()
        self.offset, self.was = offset, self.inode.present[offset]
        self.rotten = self.was ^ 1 << self.rng.randrange(8)
        for content in (self.inode.present, self.inode.durable):
            content[offset] = self.rotten
        return f"{self.node.name} {name} byte {offset} of {size}, {written} written"

    async def last(self) -> None:
        await asyncio.sleep(self.rng.choice((0.05, 1.0)))
        self.world.start_node(self.node)
        while self.node.starting:
            await asyncio.sleep(0.01)
        if self.node.up:
            self.world.count("rot did no harm")
        await asyncio.sleep(self.rng.choice((0.5, 3.0)))

    def heal(self) -> None:
        node = self.node
        for content in (self.inode.present, self.inode.durable):
            # Unless the node has taken it for the remains of a write and cleared it.
            if self.offset < len(content) and content[self.offset] == self.rotten:
                content[self.offset] = self.was
        node.rot = None
        self.world.start_node(node)
