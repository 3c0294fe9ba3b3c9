"""``python -m tenure_chaos.live.node.main run --config FILE``: ``tenured``, watched and at the bench's mercy.

It is the server's own command line, composition root, front, service and consensus. Exchanged are: the
replica, for one that writes down what it applies; clock and disk, for ones that can be bent; where other
nodes are dialled, for the lines of the bench; and, if a mutant is asked for, a few lines of it. All of that
is asked for by variables:

    TENURE_CHAOS_OBSERVED      file that what was observed is appended to
    TENURE_CHAOS_CONTROL       Unix socket on which orders are taken
    TENURE_CHAOS_INCARNATION   how often this node was started before
    TENURE_CHAOS_ROUTES        file that says where each other node is dialled
    TENURE_CHAOS_MUTANT        name of a mutant (tenure-chaos mutants --list)
"""

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from tenure_chaos.live.node.bends import Bends, BentClock, BentDisk
from tenure_chaos.live.node.control import Control
from tenure_chaos.live.node.observer import ObservedReplica, Observer
from tenure_chaos.live.node.routing import dial_by
from tenure_chaos.mutants.catalogue import BY_NAME
from tenure_chaos.mutants.edits import made
from tenure_cluster import cli, node
from tenure_cluster.config import Config

BENDS = Bends()
"""Of this process."""


class ObservedNode(node.Node):
    """The node, with its clock and replica exchanged, and somebody who looks at it."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._observer = Observer(
            Path(os.environ["TENURE_CHAOS_OBSERVED"]),
            config.node_id,
            int(os.environ.get("TENURE_CHAOS_INCARNATION", "1")),
        )
        self._clock = BentClock(BENDS)
        self.replica = ObservedReplica(self._observer)
        self._looking: asyncio.Task[None] | None = None
        self._control: Control | None = None

    async def start(self) -> None:
        await super().start()
        self._observer.begin(self.raft)
        self._looking = asyncio.get_running_loop().create_task(self._observer.look_for_ever())
        self._control = Control(os.environ["TENURE_CHAOS_CONTROL"], self, BENDS)
        self._control.start()

    async def stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._looking is not None:
            self._looking.cancel()
        await super().stop()


class Disk(BentDisk):
    """The disk of this process."""

    bends = BENDS


def main() -> None:
    """As ``tenured``'s."""
    # The composition root looks both up by these names.
    setattr(node, "Node", ObservedNode)  # noqa: B010
    setattr(node, "SystemDisk", Disk)  # noqa: B010
    if routes := os.environ.get("TENURE_CHAOS_ROUTES"):
        dial_by(Path(routes))
    with ExitStack() as edits:
        if name := os.environ.get("TENURE_CHAOS_MUTANT"):
            edits.enter_context(made(BY_NAME[name].edits))
        cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
