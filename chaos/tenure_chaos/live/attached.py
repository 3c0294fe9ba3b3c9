"""A cluster that somebody else has started: named nodes with their addresses and, if known, their processes.

    {"nodes": [{"id": "n1", "http": "http://127.0.0.1:7601", "peer": "127.0.0.1:7701", "pid": 17}, …]}

as ``tenured dev`` writes it into its ``cluster.json``, or the same as TOML:

    [nodes.n1]
    http = "127.0.0.1:2379"
    peer = "127.0.0.1:2380"                                # optional: for lines between the nodes
    pid = 17                                               # optional: to pause and kill it
    start = ["tenured", "run", "--config", "n1.toml"]      # optional: to start it again

Any service whose nodes are reached by TCP will do. Who leads is asked of ``/v1/cluster``, so it is known of
Tenure only.
"""

import json
import os
import signal
import subprocess
import tomllib
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

ASK_TIMEOUT_S: Final = 2.0


class NotACluster(Exception):
    """The file does not describe one. The message says what is wrong."""


class NoProcess(Exception):
    """It is not known which process the node is, or it is not there, or can't be started again."""


@dataclass
class AttachedNode:
    """One node of somebody's cluster."""

    name: str
    http: str
    """host:port"""
    peer: str = ""
    """host:port; empty if there are to be no lines between the nodes."""
    pid: int | None = None
    start: tuple[str, ...] = ()
    directory: Path = field(default_factory=Path)
    paused: bool = False
    child: subprocess.Popen[bytes] | None = None

    def signal(self, number: signal.Signals) -> None:
        """Raises NoProcess."""
        if self.pid is None:
            raise NoProcess(f"which process {self.name} is was not said (pid)")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError as error:
            raise NoProcess(f"{self.name} is not running (pid {self.pid})") from error

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.child is not None:
            self.child.wait()

    def start_again(self) -> None:
        """Raises NoProcess."""
        if not self.start:
            raise NoProcess(f"how {self.name} is started was not said (start)")
        self.child = subprocess.Popen(
            self.start,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.child.pid

    def leads(self) -> bool:
        """By its own word, asked on its own address."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/v1/cluster", timeout=ASK_TIMEOUT_S) as answer:
                return bool(json.load(answer)["role"] == "leader")
        except (OSError, ValueError, KeyError, TypeError):
            return False


def load(path: Path) -> list[AttachedNode]:
    """Read a description. Raises NotACluster."""
    try:
        text = path.read_text(encoding="utf-8")
        said = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        nodes = said["nodes"]
        listed = (
            [(name, node) for name, node in nodes.items()]
            if isinstance(nodes, dict)
            else [(node["id"], node) for node in nodes]
        )
        return [_node(name, node, path.parent) for name, node in listed]
    except OSError as error:
        raise NotACluster(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NotACluster(f"{path}: {type(error).__name__}: {error}") from error


def _node(name: str, said: dict[str, Any], directory: Path) -> AttachedNode:
    start: Sequence[str] = said.get("start", ())
    if not start and "config" in said:
        start = ("tenured", "run", "--config", said["config"])
    return AttachedNode(
        name,
        _address(said["http"]),
        _address(said["peer"]) if "peer" in said else "",
        said.get("pid"),
        tuple(start),
        directory,
    )


def _address(text: str) -> str:
    """host:port of a URL, or of what is one already."""
    parts = urlsplit(text if "://" in text else f"tcp://{text}")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{text!r} is not host:port")
    return f"{parts.hostname}:{parts.port}"
