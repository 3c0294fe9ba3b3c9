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

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tomllib
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

ASK_TIMEOUT_S: Final = 2.0
START_LOOK_S: Final = 0.5
"""A program that can't start at all has ended by then."""
END_PATIENCE_S: Final = 10.0
"""How long a killed process may take to be gone."""


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
    log: Path | None = None
    """What it says when it is started here goes there."""
    paused: bool = False
    child: subprocess.Popen[bytes] | None = None
    described_in: Path | None = None
    """The file, which names another process once `tenured dev` has seen the node started again."""
    told_pid: int | None = None

    def _look_again(self) -> None:
        if self.described_in is None:
            return
        with contextlib.suppress(NotACluster):
            for node in load(self.described_in):
                if node.name == self.name and node.pid != self.told_pid:
                    self.pid = self.told_pid = node.pid

    def signal(self, number: signal.Signals) -> None:
        """Raises NoProcess."""
        self._look_again()
        if self.pid is None:
            raise NoProcess(f"which process {self.name} is was not said (pid)")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError as error:
            raise NoProcess(f"{self.name} is not running (pid {self.pid})") from error
        except PermissionError as error:
            raise NoProcess(f"{self.name} (pid {self.pid}) is somebody else's process") from error

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            with contextlib.suppress(NoProcess):  # who has died is not paused any more
                self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Returns when the process is gone. Raises NoProcess."""
        self.signal(signal.SIGKILL)
        self.paused = False
        if self.child is not None and self.child.pid == self.pid:
            self.child.wait()
        elif self.pid is not None:
            _wait_for_the_end(self.pid)

    def start_again(self) -> None:
        """Does nothing if somebody has started it already, as `tenured dev` says how to. Raises NoProcess,
        also if the program ends at once."""
        before = self.pid
        self._look_again()
        if self.pid != before:
            return
        if not self.start:
            raise NoProcess(f"how {self.name} is started was not said (start)")
        try:
            with open(self.log or os.devnull, "ab") as log:
                child = subprocess.Popen(
                    self.start,
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            why = f"{error.filename or self.start[0]}: {error.strerror}"
            raise NoProcess(f"{self.name} can't be started by {' '.join(self.start)!r}: {why}") from error
        try:
            code = child.wait(START_LOOK_S)
        except subprocess.TimeoutExpired:
            self.child, self.pid = child, child.pid
            return
        where = f": see {self.log}" if self.log else ""
        raise NoProcess(f"{self.name}, started by {' '.join(self.start)!r}, ended with {code}{where}")

    def office(self) -> tuple[str, int]:
        """Its role and term by its own word, asked on its own address; or why that can't be told, and -1."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/v1/cluster", timeout=ASK_TIMEOUT_S) as answer:
                said = json.load(answer)
            return str(said["role"]), int(said["term"])
        except OSError as error:
            return f"no answer ({error})", -1
        except (ValueError, KeyError, TypeError, http.client.HTTPException):
            return "no Tenure node", -1


def _wait_for_the_end(pid: int) -> None:
    """Of a process that is not our child. What it held, ports and locks, is free then."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        select.select([descriptor], [], [], END_PATIENCE_S)
    finally:
        os.close(descriptor)


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """One node as a file describes it."""

    http: str
    id: Annotated[str, msgspec.Meta(min_length=1)] = ""
    peer: str = ""
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    start: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    config: str = ""
    """Of a node of `tenured dev`, which is started by it."""


def load(path: Path) -> list[AttachedNode]:
    """Read a description. Raises NotACluster."""
    try:
        text = path.read_text(encoding="utf-8")
        said = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise NotACluster(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise NotACluster(f"{path}: {error}") from error
    nodes = said.get("nodes") if isinstance(said, dict) else None
    if isinstance(nodes, list):
        nodes = {node["id"] if isinstance(node, dict) and "id" in node else "": node for node in nodes}
    if not isinstance(nodes, dict) or not nodes:
        raise NotACluster(f'{path}: no nodes are named, as [nodes.n1] with http = "host:port"')
    if strangers := said.keys() - {"nodes"}:
        raise NotACluster(f"{path}: unknown: {', '.join(sorted(strangers))}")
    return [_node(path, name, node) for name, node in nodes.items()]


def _node(path: Path, name: str, described: object) -> AttachedNode:
    try:
        said = msgspec.convert(described, _Said)
        address, peer = _address(said.http), _address(said.peer) if said.peer else ""
    except (msgspec.ValidationError, ValueError) as error:
        raise NotACluster(f"{path}: node {name!r}: {error}") from error
    start = tuple(said.start or ())
    if not start and said.config:
        start = (sys.executable, "-m", "tenure_cluster.cli", "run", "--config", said.config)
    return AttachedNode(
        name, address, peer, said.pid, start, path.parent, described_in=path, told_pid=said.pid
    )


def _address(text: str) -> str:
    """host:port of a URL, or of what is one already."""
    parts = urlsplit(text if "://" in text else f"tcp://{text}")
    if parts.scheme == "https":
        raise ValueError(f"{text!r}: name host:port; the lines carry TLS too, but who leads is asked without")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{text!r} is not host:port")
    return f"{parts.hostname}:{parts.port}"
