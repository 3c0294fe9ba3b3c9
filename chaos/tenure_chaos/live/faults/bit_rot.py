"""One bit of a file of a stopped node is not what was written: the node must say so, and not start."""

import asyncio
import time
from pathlib import Path

from tenure_chaos.live.cluster import EXIT_DAMAGED, LiveNode
from tenure_chaos.live.faults.kind import Fault

LOOK_S = 15.0
"""How long a node may take to find out, or to serve."""


class BitRot(Fault):
    name = "bit rot"
    what = "one bit of a file of one killed node flips: it refuses to start, or it was nothing that counted"
    how_healed = "the file is brought back byte for byte, and the node started"
    lasts_s = (1.0, 3.0)
    struck: LiveNode | None = None
    rotten: Path | None = None
    before = b""

    async def inject(self) -> str | None:
        # Of a minority: the others must be there to go on without it.
        node = self.any_node()
        if node is None or len(self.bench.free_nodes()) < len(self.bench.cluster.nodes):
            return None
        self.take(node)
        self.struck = node
        self.bench.cluster.kill(node)
        names = ("journal-*", "snapshot-*.snap")
        files = sorted(path for name in names for path in node.data_dir.glob(name))
        path = self.rng.choice(files)
        self.before = path.read_bytes()
        place = self.rng.randrange(min(len(self.before), 64 << 10))
        rotten = bytearray(self.before)
        rotten[place] ^= 1 << self.rng.randrange(8)
        self.rotten = path
        path.write_bytes(rotten)
        node.may_end = node.starts + 1
        self.bench.cluster.start(node)
        found = await self._found_out(node)
        return f"{node.name}, {path.name} at {place}: {found}"

    async def _found_out(self, node: LiveNode) -> str:
        deadline = time.monotonic() + LOOK_S
        while time.monotonic() < deadline:
            if not node.running:
                assert node.process is not None
                code = node.process.returncode
                if code != EXIT_DAMAGED:
                    self.bench.failures.append(f"{node.name} ended with {code} on a rotten file")
                return "refused"
            if await self.bench.cluster.state(node) is not None:
                return "it did not count"
            await asyncio.sleep(0.1)
        return "nothing yet"

    async def heal(self) -> None:
        node, self.struck = self.struck, None
        if node is None:
            return
        if node.running and await self.bench.cluster.state(node) is not None:
            # It serves with the file as it is and may have written to it since: not to be touched.
            return
        self.bench.cluster.kill(node)
        if self.rotten is not None:
            self.rotten.write_bytes(self.before)
        self.bench.cluster.start(node)
