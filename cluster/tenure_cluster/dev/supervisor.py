"""Starts the nodes of a development cluster as processes, watches them, and stops them all at the end.

A node that dies is left dead and reported once. A node that was started again by hand is noticed by the pid
file in its data directory, and cluster.json then names its new process; a dead node keeps its last pid
there until that. Stopping means all nodes that run, whoever started them: each by its pid, and only while
the kernel says that it is still that node.

Each node gets a session of its own, so that Ctrl-C in the terminal reaches this process alone, which then
ends them in order.
"""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure_cluster.dev.layout import HOST, DevError, DevNode, Layout
from tenure_cluster.dev.speaker import Speaker
from tenure_cluster.pid_file import running_pid

START_TIMEOUT_S: Final = 60.0
"""How long the nodes may take until all of them serve."""
STOP_TIMEOUT_S: Final = 10.0
"""How long a node may take to stop by itself before it is killed."""
WATCH_PERIOD_S: Final = 0.1
LOG_TAIL_BYTES: Final = 4096

IDENTITY_VARIABLES: Final = frozenset(
    {
        "TENURE_CLUSTER_ID",
        "TENURE_CONFIG",
        "TENURE_DATA_DIR",
        "TENURE_HTTP_ADVERTISE",
        "TENURE_HTTP_LISTEN",
        "TENURE_MEMBERS",
        "TENURE_NODE_ID",
        "TENURE_PEER_ADVERTISE",
        "TENURE_PEER_LISTEN",
    }
)
"""Settings that tell the nodes apart: those of this process's environment must not make them all one."""


class Supervisor:
    """One run of a development cluster."""

    def __init__(self, layout: Layout, speaker: Speaker) -> None:
        self._layout = layout
        self._speaker = speaker
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._pids: dict[str, int] = {}
        self._dead: set[str] = set()
        self._stops_asked = 0

    def run(self) -> None:
        """Start, watch until SIGINT, SIGTERM or SIGHUP, stop. Raises DevError if the cluster did not come
        to serve."""
        with self._signals():
            try:
                try:
                    self._start()
                except OSError as error:
                    raise DevError(f"{error.filename or 'a node'} can't be used: {error.strerror}") from error
                if self._wait_until_serving():
                    self._speaker.serving(self._layout, self._pids)
                while not self._stops_asked:
                    self._watch()
                    time.sleep(WATCH_PERIOD_S)
            finally:
                self._stop()

    # -- start

    def _start(self) -> None:
        self._speaker.starting(self._layout)
        environment = {name: value for name, value in os.environ.items() if name not in IDENTITY_VARIABLES}
        for node in self._layout.nodes:
            with node.log_path.open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "tenure_cluster.cli", "run", "--config", str(node.config_path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            self._children[node.node_id] = child
            self._pids[node.node_id] = child.pid
        self._layout.write_cluster_json(self._pids)

    def _wait_until_serving(self) -> bool:
        """True once every node that lives has said that it serves; false if none is left, or the end was
        asked for before. Raises DevError.

        A node that ends by itself before it has served could not start, and then none is to run. One that was
        killed meanwhile is a death like any later one.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        waiting = list(self._layout.nodes)
        while waiting and not self._stops_asked:
            for node in waiting:
                code = self._children[node.node_id].poll()
                if code is not None and code >= 0 and not self._stops_asked:
                    raise DevError(f"{node.node_id} {_ending(code)} at its start: {_last_words(node)}")
            self._watch()
            waiting = [node for node in waiting if node.node_id not in self._dead and not _serves(node)]
            if waiting and time.monotonic() > deadline:
                silent = ", ".join(node.node_id for node in waiting)
                raise DevError(
                    f"{silent} did not serve within {START_TIMEOUT_S:.0f} s: see {waiting[0].log_path}"
                )
            time.sleep(WATCH_PERIOD_S / 2)
        return not waiting and len(self._dead) < len(self._layout.nodes)

    # -- watch

    def _watch(self) -> None:
        for node in self._layout.nodes:
            node_id, known = node.node_id, self._pids[node.node_id]
            child = self._children[node_id]
            if child.pid == known and child.poll() is None:
                continue
            pid = running_pid(node.data_dir)
            if pid is not None and pid != known:
                self._report_death(node)
                self._dead.discard(node_id)
                self._pids[node_id] = pid
                try:
                    self._layout.write_cluster_json(self._pids)
                except OSError as error:
                    self._speaker.cannot_write(error)
                self._speaker.runs_again(node, pid)
            elif pid is None:
                self._report_death(node)

    def _report_death(self, node: DevNode) -> None:
        if node.node_id in self._dead:
            return
        self._dead.add(node.node_id)
        child, pid = self._children[node.node_id], self._pids[node.node_id]
        how = _ending(child.returncode) if child.pid == pid and child.returncode is not None else "has ended"
        others = [other.node_id for other in self._layout.nodes if other.node_id not in self._dead]
        self._speaker.died(node, pid, how, others, len(self._layout.nodes))

    # -- stop

    def _stop(self) -> None:
        self._speaker.stopping()
        for node in self._layout.nodes:
            self._signal(node, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        asked_before = self._stops_asked
        while self._any_runs():
            if time.monotonic() > deadline or self._stops_asked > max(asked_before, 1):
                for node in self._layout.nodes:
                    self._signal(node, signal.SIGKILL)
            time.sleep(WATCH_PERIOD_S / 4)
        self._speaker.stopped()

    def _any_runs(self) -> bool:
        if any(child.poll() is None for child in self._children.values()):
            return True
        return any(running_pid(node.data_dir) is not None for node in self._layout.nodes)

    def _signal(self, node: DevNode, number: signal.Signals) -> None:
        """To our own child if it lives, and to the process that holds the node's pid file, if that is
        another."""
        child = self._children.get(node.node_id)
        pids = {child.pid} if child is not None and child.poll() is None else set()
        runs = running_pid(node.data_dir)
        for pid in pids | ({runs} if runs is not None else set()):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                self._speaker.cannot_stop(node, pid)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def ask_to_stop(*_: object) -> None:
            self._stops_asked += 1

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, ask_to_stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _serves(node: DevNode) -> bool:
    connection = http.client.HTTPConnection(HOST, node.http_port, timeout=1.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _last_words(node: DevNode) -> str:
    """The last line of the node's log."""
    try:
        with node.log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{lines[-1].removeprefix('tenured: ')} ({node.log_path})" if lines else f"see {node.log_path}"
