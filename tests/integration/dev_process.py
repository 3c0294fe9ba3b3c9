"""`tenured dev` as a process, for tests: what it says, and its nodes by their pids."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

PATIENCE_S: Final = 30.0
"""How long any condition is waited for."""

T = TypeVar("T")


def until(what: str, condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Poll until the condition gives something true, and return that."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:.0f} s for {what}")


def free_block(count: int) -> int:
    """The first of `count` ports in a row that are free now, below the range of outgoing connections."""
    for start in random.sample(range(21_000, 32_000, 10), 1000):
        try:
            for port in range(start, start + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return start
    raise AssertionError("no free ports")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}


class DevProcess:
    """One run of `tenured dev -o json`; `with` starts it and stops it."""

    def __init__(
        self, data_dir: Path, *arguments: str, ports: bool = True, closed_stdin: bool = False
    ) -> None:
        self.data_dir = data_dir
        self.arguments = ["dev", "--data-dir", str(data_dir), "-o", "json", *arguments]
        if ports:
            self.arguments += ["--http-port", str(free_block(5)), "--peer-port", str(free_block(5))]
        self.events: list[dict[str, Any]] = []
        self.errors = ""
        self._closed_stdin = closed_stdin
        self._by_hand: list[subprocess.Popen[bytes]] = []

    def start(self) -> Self:
        command = [sys.executable, "-m", "tenure_cluster.cli", *self.arguments]
        if self._closed_stdin:
            command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()
        return self

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_for("serving")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def wait_for(self, event: str, **members: object) -> dict[str, Any]:
        """Wait until it has said so, and return what it said."""

        def said() -> dict[str, Any] | None:
            for found in self.events:
                if found["event"] == event and members.items() <= found.items():
                    return found
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.errors}"
            return None

        found = until(f"{event} {members}", said)
        assert found is not None
        return found

    def count(self, event: str) -> int:
        return sum(found["event"] == event for found in self.events)

    def cluster_json(self) -> dict[str, Any]:
        document = json.loads((self.data_dir / "cluster.json").read_text())
        assert isinstance(document, dict)
        return document

    def node(self, node_id: str) -> dict[str, Any]:
        return next(node for node in self.cluster_json()["nodes"] if node["id"] == node_id)

    @property
    def urls(self) -> list[str]:
        return [node["http"] for node in self.cluster_json()["nodes"]]

    @property
    def endpoints(self) -> str:
        return ",".join(self.urls)

    def kill(self, node_id: str) -> int:
        pid = int(self.node(node_id)["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def start_by_hand(self, node_id: str) -> subprocess.Popen[bytes]:
        config = self.data_dir / self.node(node_id)["config"]
        process = subprocess.Popen(
            [sys.executable, "-m", "tenure_cluster.cli", "run", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        self._by_hand.append(process)
        return process

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, wait, and return its exit code. Nothing that was started here is left."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        for process in self._by_hand:
            process.wait(PATIENCE_S)
        return code


def is_alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
