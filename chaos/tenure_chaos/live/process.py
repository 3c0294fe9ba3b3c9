"""A node's process on this machine: where it lives, and how it is started, killed and paused."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"


@dataclass
class NodeProcess:
    """One node: its places, and its process while it runs."""

    name: str
    http_port: int
    peer_port: int
    directory: Path
    host: str = HOST
    prefix: tuple[str, ...] = ()
    """What its program is started by: ``ip netns exec …``."""
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    starts: int = 0

    @property
    def http(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @property
    def peer(self) -> str:
        return f"{self.host}:{self.peer_port}"

    @property
    def config_path(self) -> Path:
        return self.directory / "tenured.toml"

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def spawn(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a module of this Python; what it says is appended to the node's log. Of the variables of this
        process it does not see what would configure a node."""
        assert not self.running, f"{self.name} runs already"
        self.starts += 1
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited | dict(environment),
                start_new_session=True,
            )
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False


def kill(nodes: Iterable[NodeProcess]) -> None:
    """SIGKILL of those that run, all before any is waited for."""
    struck = [node.process for node in nodes if node.process is not None and node.running]
    for process in struck:
        process.kill()
    for process in struck:
        process.wait()
