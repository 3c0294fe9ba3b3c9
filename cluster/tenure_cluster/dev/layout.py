"""Where the nodes of a development cluster live: ids, ports, files, and ``cluster.json`` which names them
all.

    DATA_DIR/cluster.json         ids, pids, addresses; written anew when a pid changes
    DATA_DIR/n1/tenured.toml      the node's configuration, for `tenured run --config` as well
    DATA_DIR/n1/tenured.log       what the node says
    DATA_DIR/n1/data/             its journal and snapshots

The configuration files are the truth about an existing directory: they are read again and kept as they are,
with whatever settings were added by hand. Only ports that are asked for and differ are written over.
"""

import errno
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tenure_cluster.config import Config, ConfigError, Member, load, split_address, to_toml
from tenure_cluster.pid_file import running_pid
from tenure_cluster.settings import Peer

NODES_MAX: Final = 9
"""Most nodes of a development cluster; every one is a process of this machine."""
NODES_DEFAULT: Final = 3
HTTP_PORT_DEFAULT: Final = 7601
PEER_PORT_DEFAULT: Final = 7701
DATA_DIR_DEFAULT: Final = Path("tenure-data")
HOST: Final = "127.0.0.1"
DATA_NAME: Final = "data"


class DevError(Exception):
    """The cluster can't be started; the message is one line that names the fault and the remedy."""


@dataclass(frozen=True)
class DevNode:
    """One node and its files."""

    node_id: str
    http_port: int
    peer_port: int
    directory: Path
    data_dir: Path

    @property
    def http(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def peer(self) -> str:
        return f"{HOST}:{self.peer_port}"

    @property
    def config_path(self) -> Path:
        return self.directory / "tenured.toml"

    @property
    def log_path(self) -> Path:
        return self.directory / "tenured.log"


@dataclass(frozen=True)
class Layout:
    """A whole cluster."""

    data_dir: Path
    nodes: tuple[DevNode, ...]
    resumed: bool
    """The directory held this cluster before."""

    def write_cluster_json(self, pids: Mapping[str, int]) -> None:
        """Write cluster.json so that a reader sees the old or the new one, never half of either."""
        document = {
            "nodes": [
                {
                    "id": node.node_id,
                    "pid": pids[node.node_id],
                    "http": node.http,
                    "peer": node.peer,
                    "config": str(node.config_path.relative_to(self.data_dir)),
                }
                for node in self.nodes
            ]
        }
        _replace(self.data_dir / "cluster.json", msgspec.json.format(msgspec.json.encode(document)) + b"\n")


@contextmanager
def directory_lock(data_dir: Path) -> Iterator[None]:
    """One `tenured dev` on a directory at a time; makes the directory, and takes it away again if no cluster
    came to be in it. Raises DevError."""
    data_dir = data_dir.absolute()
    path = data_dir / "dev.lock"
    made = [directory for directory in (data_dir, *data_dir.parents) if not directory.exists()]
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DevError(f"{data_dir} can't be used: {error.strerror}; choose another --data-dir") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been taken away by its last holder between our opening and our locking it.
            if os.fstat(descriptor).st_ino != os.stat(path).st_ino:
                raise BlockingIOError
        except OSError as error:
            raise DevError(
                f"{data_dir} is in use by another tenured dev: stop that, or choose another --data-dir"
            ) from error
        try:
            yield
        finally:
            if not any(data_dir.glob("n*/tenured.toml")):
                _take_away(path, made)
    finally:
        os.close(descriptor)


def _take_away(lock: Path, made: Sequence[Path]) -> None:
    try:
        lock.unlink()
        for directory in made:
            directory.rmdir()
    except OSError:
        pass  # somebody has put something there, or it has gone already


def prepare(data_dir: Path, nodes: int | None, http_port: int | None, peer_port: int | None) -> Layout:
    """Lay out a new cluster, or take up the one that the directory holds. None: as it is there, or the
    default.

    Nothing is written before all is known to fit. Raises DevError.
    """
    data_dir = data_dir.absolute()
    try:
        found = _existing(data_dir)
    except ConfigError as error:
        raise DevError(f"{data_dir} holds a configuration that can't be used: {error}") from error
    if found:
        count = len(next(iter(found.values())).members)
        if nodes is not None and nodes != count:
            raise DevError(
                f"{data_dir} holds a cluster of {count} nodes, not {nodes}: choose another --data-dir, "
                "or leave --nodes out"
            )
    else:
        count = nodes or NODES_DEFAULT
    layout = _lay_out(data_dir, found, count, http_port, peer_port)
    _refuse_running(layout)
    _check_ports(layout)
    try:
        _write_configs(layout, found)
    except OSError as error:
        raise DevError(f"{data_dir} can't be written: {error.strerror}; choose another --data-dir") from error
    return layout


def _existing(data_dir: Path) -> dict[str, Config]:
    """The configurations that are there, by node id."""
    found = {}
    for path in sorted(data_dir.glob("n*/tenured.toml")):
        if re.fullmatch(r"n[1-9]", path.parent.name):
            config = load(path, {})
            if config.node_id != path.parent.name:
                raise ConfigError(f"{path} is of node {config.node_id!r}")
            found[config.node_id] = config
    wanted = (
        {f"n{number}" for number in range(1, 1 + len(next(iter(found.values())).members))} if found else set()
    )
    for node_id, config in found.items():
        if set(config.members) != wanted or node_id not in wanted:
            raise ConfigError(f"{node_id} has the members {sorted(config.members)}, not {sorted(wanted)}")
    return found


def _lay_out(
    data_dir: Path, found: Mapping[str, Config], count: int, http_port: int | None, peer_port: int | None
) -> Layout:
    members = next(iter(found.values())).members if found else {}
    nodes = []
    for number in range(1, count + 1):
        node_id = f"n{number}"
        member = members.get(node_id)
        http = _port(http_port, HTTP_PORT_DEFAULT, number, member.http.rpartition("/")[2] if member else None)
        peer = _port(peer_port, PEER_PORT_DEFAULT, number, member.peer if member else None)
        directory = data_dir / node_id
        kept = found[node_id].data_dir if node_id in found else directory / DATA_NAME
        nodes.append(DevNode(node_id, http, peer, directory, kept))
    return Layout(data_dir, tuple(nodes), resumed=bool(found))


def _port(asked: int | None, default: int, number: int, present: str | None) -> int:
    if asked is None and present is not None:
        return split_address(present)[1]
    return (default if asked is None else asked) + number - 1


def _addresses(layout: Layout) -> Iterator[tuple[int, str, str]]:
    for node in layout.nodes:
        yield node.http_port, f"HTTP port of {node.node_id}", "--http-port"
        yield node.peer_port, f"peer port of {node.node_id}", "--peer-port"


def _refuse_running(layout: Layout) -> None:
    pids = {node.node_id: running_pid(node.data_dir) for node in layout.nodes}
    running = {node_id: pid for node_id, pid in pids.items() if pid is not None}
    if running:
        some = f"{', '.join(running)} of {layout.data_dir} still {'runs' if len(running) == 1 else 'run'}"
        them = "it" if len(running) == 1 else "them"
        raise DevError(f"{some}: stop {them} first (kill {' '.join(map(str, running.values()))})")


def _check_ports(layout: Layout) -> None:
    seen: dict[int, str] = {}
    for port, what, option in _addresses(layout):
        if not 1 <= port <= 65_535:
            raise DevError(f"the {what} would be {port}, outside 1 to 65535: choose another {option}")
        if port in seen:
            raise DevError(f"port {port} would be {seen[port]} and {what}: choose another {option}")
        seen[port] = what
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
        except OSError as error:
            fault = "is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror
            raise DevError(f"port {port} ({what}) {fault}: free it, or choose others by {option}") from error


def _write_configs(layout: Layout, found: Mapping[str, Config]) -> None:
    members = {node.node_id: Member(peer=node.peer, http=node.http) for node in layout.nodes}
    like = next(iter(found.values()), None)
    cluster_id = like.cluster_id if like is not None else f"dev-{secrets.token_hex(4)}"
    for node in layout.nodes:
        present = found.get(node.node_id)
        if present is not None and present.members == members:
            continue
        config = present or Config(cluster_id=cluster_id, node_id=node.node_id)
        config = msgspec.structs.replace(
            config,
            data_dir=node.data_dir if node.data_dir != node.directory / DATA_NAME else Path(DATA_NAME),
            http=msgspec.structs.replace(config.http, listen=f"{HOST}:{node.http_port}", advertise=""),
            peer=Peer(listen=node.peer),
            members=members,
        )
        node.directory.mkdir(parents=True, exist_ok=True)
        _replace(node.config_path, to_toml(config).encode())


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(content)
    os.replace(draft, path)
