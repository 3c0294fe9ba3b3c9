"""What ``tenured dev`` tells its user: lines for people, or with ``-o json`` one JSON object a line.

Nothing here may end the cluster: whoever read the output may have gone away.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tenure_cluster.dev.layout import HTTP_PORT_DEFAULT, NODES_DEFAULT, DevNode, Layout


class Speaker:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def starting(self, layout: Layout) -> None:
        count = len(layout.nodes)
        what = "starting the cluster again" if layout.resumed else "starting a new cluster"
        self._say(
            "starting",
            f"tenured: {what}, {count} node{'' if count == 1 else 's'}, in {layout.data_dir}",
            data_dir=str(layout.data_dir),
            resumed=layout.resumed,
        )

    def serving(self, layout: Layout, pids: Mapping[str, int]) -> None:
        lines = ["tenured: the cluster serves; any node answers any call"]
        lines += [f"  {node.node_id}  {node.http}  pid {pids[node.node_id]}" for node in layout.nodes]
        urls = ",".join(node.http for node in layout.nodes)
        if [node.http_port for node in layout.nodes] != [HTTP_PORT_DEFAULT + n for n in range(NODES_DEFAULT)]:
            lines.append(f"for tenure: export TENURE_ENDPOINTS={urls}")
        lines.append("Ctrl-C stops all nodes")
        nodes = [
            {"id": node.node_id, "pid": pids[node.node_id], "http": node.http, "peer": node.peer}
            for node in layout.nodes
        ]
        self._say("serving", "\n".join(lines), nodes=nodes)

    def died(self, node: DevNode, pid: int, how: str, others: Sequence[str], total: int) -> None:
        """``others`` are the nodes that run, of ``total``."""
        missing = total // 2 + 1 - len(others)
        if not others:
            rest = "none is left"
        elif missing > 0:
            rest = (
                f"no majority is left ({', '.join(others)} of {total}): nothing is granted until "
                f"{missing} more {'runs' if missing == 1 else 'run'}"
            )
        else:
            rest = f"the others go on ({', '.join(others)})"
        again = shlex.join([*_own_command(), "run", "--config", str(node.config_path)])
        self._say(
            "died",
            f"tenured: {node.node_id} (pid {pid}) {how}; {rest}. Start it again by: {again}",
            node=node.node_id,
            pid=pid,
            how=how,
            majority=missing <= 0,
            again=again,
        )

    def runs_again(self, node: DevNode, pid: int) -> None:
        self._say(
            "runs_again", f"tenured: {node.node_id} runs again, with pid {pid}", node=node.node_id, pid=pid
        )

    def cannot_stop(self, node: DevNode, pid: int) -> None:
        text = f"tenured: {node.node_id} (pid {pid}) belongs to another user and is left running"
        self._say("cannot_stop", text, node=node.node_id, pid=pid)

    def cannot_write(self, error: OSError) -> None:
        text = f"tenured: {error.filename} can't be written: {error.strerror}; it is out of date now"
        self._say("cannot_write", text, file=error.filename, why=error.strerror)

    def stopping(self) -> None:
        self._say("stopping", "tenured: stopping all nodes")

    def stopped(self) -> None:
        self._say("stopped", "tenured: all nodes have stopped")

    def _say(self, event: str, text: str, **more: Any) -> None:
        line = msgspec.json.encode({"event": event, **more}).decode() if self._as_json else text
        try:
            print(line, flush=True)  # noqa: T201
        except (OSError, ValueError):
            pass


def _own_command() -> list[str]:
    """How this program was called, so that a copied command works in the same place."""
    if Path(sys.argv[0]).name == "tenured":
        return [sys.argv[0]]
    return [sys.executable, "-m", "tenure_cluster.cli"]
