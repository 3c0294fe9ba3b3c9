"""Processes of somebody else's cluster: what can't be paused, killed or started again is said, and what could
not be healed can be healed later."""

import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from tenure_chaos.live.attached import AttachedNode, NoProcess, load
from tenure_chaos.live.attached_cluster import AttachedNodes
from tenure_chaos.live.chaos import CLIENT, Chaos, ChaosError
from tenure_chaos.live.lines import BOTH, NoLines, Stream
from tenure_chaos.live.network import Network
from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.proxies.serving import NoServer, proxy_server
from tenure_chaos.live.proxies.toxiproxy import Server

pytestmark = pytest.mark.process

SLEEPING = (sys.executable, "-c", "import time; time.sleep(600)")


class Remembered(Network):
    """Lines without a server: what is asked for them is remembered."""

    def __init__(self) -> None:
        super().__init__(Server("http://127.0.0.1:1"), ["n1", "n2"], [CLIENT], peers=False)
        self.unread: list[list[str]] = []

    async def silence(self, fault: str, lines: Iterable[str], streams: Iterable[Stream] = BOTH) -> None:
        pass

    async def heal(self, fault: str, unread: Collection[str] = ()) -> None:
        self.unread.append(list(unread))

    async def heal_everything(self) -> list[str]:
        return []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttachedNode]:
    """A node whose process is none of ours to wait for, as far as it knows."""
    process = subprocess.Popen(SLEEPING)
    [port] = free_ports(1)
    node = AttachedNode("n1", f"127.0.0.1:{port}", "", process.pid, SLEEPING, tmp_path, tmp_path / "n1.log")
    yield node
    process.kill()
    process.wait()
    if node.child is not None:
        node.child.kill()
        node.child.wait()


@pytest.fixture
def network() -> Remembered:
    return Remembered()


@pytest.fixture
def chaos(network: Remembered, node: AttachedNode) -> Iterator[Chaos]:
    chaos = Chaos(network, AttachedNodes([node]))
    yield chaos
    chaos.close()


def test_a_program_that_is_not_there_is_named_and_the_node_can_be_healed_later(
    chaos: Chaos, node: AttachedNode
) -> None:
    node.start = ("no-such-program", "--config", "x")
    chaos.kill("n1")
    with pytest.raises(NoProcess, match="n1 can't be started by 'no-such-program --config x'"):
        chaos.heal()
    assert [strike.what for strike in chaos.strikes.values()] == ["kill n1"]
    node.start = SLEEPING
    chaos.heal()
    assert chaos.strikes == {}
    assert node.child is not None
    assert node.child.poll() is None


def test_a_program_that_ends_at_once_is_not_taken_for_healed(chaos: Chaos, node: AttachedNode) -> None:
    node.start = (sys.executable, "-c", "raise SystemExit('the port is taken')")
    chaos.kill("n1")
    with pytest.raises(NoProcess, match=r"ended with 1: see .*n1\.log"):
        chaos.start("n1")
    assert node.log is not None
    assert "the port is taken" in node.log.read_text(encoding="utf-8")
    node.start = SLEEPING
    chaos.start("n1")


def test_who_died_while_it_was_paused_needs_no_healing(chaos: Chaos, node: AttachedNode) -> None:
    with chaos.pause("n1"):
        AttachedNode("n1", node.http, pid=node.pid).kill()
    assert chaos.strikes == {}


def test_lines_to_a_paused_node_are_named_as_unread_when_they_are_healed(
    chaos: Chaos, network: Remembered
) -> None:
    with chaos.pause("n1"), chaos.cut_client("n1"):
        pass
    with chaos.cut_client("n1"):
        pass
    assert network.unread == [["client>n1"], []]


def test_lines_that_are_not_there_are_told_with_what_would_make_them(
    network: Remembered, node: AttachedNode
) -> None:
    two = Chaos(network, AttachedNodes([node, AttachedNode("n2", node.http)]))
    try:
        for cut in (lambda: two.cut("n1", "n2"), lambda: two.partition("n1")):
            with pytest.raises(NoLines, match="name the peer address of each node"):
                cut()
        with pytest.raises(ChaosError, match="name two nodes"):
            two.cut("n1", "n1")
        assert two.strikes == {}
    finally:
        two.close()


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "http://127.0.0.1:port", "http://127.0.0.1:1"])
def test_a_server_of_proxies_that_is_none_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", url)
    with (
        pytest.raises(NoServer, match=f"TOXIPROXY_URL={url} does not answer"),
        proxy_server(tmp_path / "log"),
    ):
        pass


def test_a_port_for_orders_that_is_taken_is_named_with_the_option(tmp_path: Path, node: AttachedNode) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(f'[nodes.n1]\nhttp = "{node.http}"\n', encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "tenure_chaos.cli",
            "proxy",
            "serve",
            str(file),
            "--api-port",
            str(port),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"port {port} can't be had for orders" in done.stderr
    assert "--api-port" in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_who_leads_comes_with_what_each_node_says(chaos: Chaos) -> None:
    with pytest.raises(ChaosError, match="nobody leads within 0 s; n1: no answer"):
        chaos.leader(0.0)


def test_a_node_that_was_started_again_by_hand_is_known_by_its_new_process(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    described = '{{"nodes": [{{"id": "n1", "http": "http://127.0.0.1:7601", "pid": {}}}]}}'
    file.write_text(described.format(gone.pid), encoding="utf-8")
    [node] = load(file)
    process = subprocess.Popen(SLEEPING)
    try:
        file.write_text(described.format(process.pid), encoding="utf-8")
        node.start_again()
        assert node.child is None, "it runs already"
        node.pause()
        assert node.pid == process.pid
        node.resume()
    finally:
        process.kill()
        process.wait()
