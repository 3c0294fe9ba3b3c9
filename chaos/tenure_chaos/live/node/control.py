"""Takes the bench's orders in a node's process: one JSON object a line, over a Unix socket, on a thread of
its own; what concerns the node is done on its event loop.
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tenure_chaos.history import NodeState
from tenure_chaos.live.node.bends import Bends, BentClock
from tenure_chaos.sim.liveness import state_of
from tenure_cluster import faults

if TYPE_CHECKING:
    from tenure_chaos.live.node.main import ObservedNode

ANSWER_TIMEOUT_S: Final = 30.0


class Control:
    """One process's."""

    def __init__(self, path: str, node: "ObservedNode", bends: Bends) -> None:
        self._path = path
        self._node = node
        self._bends = bends
        self._loop = asyncio.get_running_loop()
        self._orders: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "clock": self._clock,
            "sync": self._sync,
            "tear": self._tear,
            "full": self._full,
            "kill_at": self._kill_at,
            "compact": self._on_loop(self._compact),
            "state": self._on_loop(self._state),
            "transfer": self._transfer,
        }
        if os.path.exists(path):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()

    def start(self) -> None:
        threading.Thread(target=self._serve, name="chaos control", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rw") as lines:
                try:
                    for line in lines:
                        lines.write(json.dumps(self._answer(json.loads(line))) + "\n")
                        lines.flush()
                except OSError:
                    continue

    def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"done": self._orders[order["order"]](order)}
        except Exception as error:  # the bench is told whatever it was, and the node lives on
            return {"failed": f"{type(error).__name__}: {error}"}

    def _on_loop(self, work: Callable[[], Any]) -> Callable[[dict[str, Any]], Any]:
        async def done() -> Any:
            return work()

        def order(_: dict[str, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(done(), self._loop).result(ANSWER_TIMEOUT_S)

        return order

    # -- orders

    def _clock(self, order: dict[str, Any]) -> None:
        clock = self._node._clock
        assert isinstance(clock, BentClock)

        def set_it() -> None:
            if "rate" in order:
                clock.set_rate(order["rate"])
            if "step_ms" in order:
                clock.step_wall(order["step_ms"])

        self._on_loop(set_it)(order)

    def _sync(self, order: dict[str, Any]) -> None:
        if "takes_s" in order:
            least_s, most_s = order["takes_s"]
            self._bends.sync_takes_s = (least_s, most_s)
        if "fails" in order:
            self._bends.sync_fails = order["fails"]

    def _tear(self, order: dict[str, Any]) -> None:
        self._bends.tears = True

    def _full(self, order: dict[str, Any]) -> None:
        self._bends.free_bytes = order["free_bytes"]

    def _kill_at(self, order: dict[str, Any]) -> None:
        faults.arm_from(f"{order['point']}=kill:{order['count']}")

    def _compact(self) -> None:
        raft = self._node.raft
        snapshots = raft._pump.snapshots
        snapshots._entries = max(snapshots._entries, raft._options.snapshot_entries)
        raft._pump.kick()

    def _transfer(self, order: dict[str, Any]) -> str:
        async def transfer() -> str:
            ended = self._loop.create_future()
            self._node.raft.transfer(order.get("to"), ended.set_result)
            return str(await ended)

        return asyncio.run_coroutine_threadsafe(transfer(), self._loop).result(ANSWER_TIMEOUT_S)

    def _state(self) -> dict[str, Any]:
        node = self._node
        state: NodeState = state_of(node.config.node_id, node.replica)
        status = node.raft.status()
        return {
            "final": {name: getattr(state, name) for name in state.__dataclass_fields__},
            "role": status.role,
            "term": status.term,
            "last_index": status.last_index,
            "commit_index": status.commit_index,
            "raft_applied": status.applied_index,
            "snapshot_index": status.snapshot_index,
            "voters": node.raft.membership.voters,
            "learners": node.raft.membership.learners,
        }
