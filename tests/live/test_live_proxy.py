"""``tenure-chaos proxy`` before services that are not ours: here, servers that send back what they get."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from live_echo import connected, echo_server

from tenure_chaos.cli import main
from tenure_chaos.live.attached import NotACluster, load
from tenure_chaos.live.ports import free_ports

pytestmark = pytest.mark.process

PATIENCE_S = 30.0


@contextlib.contextmanager
def serving(file: Path) -> Iterator[str]:
    """`proxy serve` for as long as the block runs; its URL."""
    [port] = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure_chaos.cli", "proxy", "serve", str(file), "--api-port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=file.parent,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("orders: "):
                break
        else:
            raise AssertionError(f"it ended with {process.wait()}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        process.stdout.close()


async def order(api: str, *arguments: str) -> tuple[int, str]:
    """One command; it is asked again while the server is not quite there."""

    def perform() -> tuple[int, str]:
        result = CliRunner().invoke(main, ["proxy", *arguments, "--api", api])
        return result.exit_code, result.output

    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        code, output = await asyncio.to_thread(perform)
        if code != 2 or asyncio.get_running_loop().time() > deadline:
            return code, output
        await asyncio.sleep(0.1)


async def shown(api: str) -> dict[str, Any]:
    code, output = await order(api, "show")
    assert code == 0
    said: dict[str, Any] = json.loads(output)
    return said


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """What is taken for a node's process."""
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


@pytest.fixture
async def cluster(tmp_path: Path, child: subprocess.Popen[bytes]) -> AsyncIterator[Path]:
    """Two nodes, each an echo server for clients and one for its peer; the second has a process."""
    async with echo_server() as a, echo_server() as b, echo_server() as c, echo_server() as d:
        file = tmp_path / "cluster.toml"
        file.write_text(
            f'[nodes.n1]\nhttp = "{a.address}"\npeer = "{c.address}"\n'
            f'[nodes.n2]\nhttp = "http://{b.address}"\npeer = "{d.address}"\n'
            f'pid = {child.pid}\nstart = ["sleep", "3"]\n',
            encoding="utf-8",
        )
        yield file


async def test_faults_come_and_go_by_command(cluster: Path) -> None:
    with serving(cluster) as api:
        lines = (await shown(api))["lines"]
        assert sorted(lines) == ["client>n1", "client>n2", "n1>n2", "n2>n1"]
        code, output = await order(api, "strike", "partition", "n1", "n2")
        assert code == 0
        first, second = output.splitlines()
        assert first == "x1: partition n1 | n2"
        # Nobody has dialled through the lines between the nodes, so the nodes can't notice.
        assert second.startswith("warning: no connection goes through the lines between the nodes")
        async with connected(lines["n1>n2"]) as peer, connected(lines["client>n1"]) as client:
            peer.send(b"lost")
            assert await peer.is_silent(0.3)
            assert await client.ask(b"heard") == b"heard"
            assert await order(api, "strike", "cut", "n2", "n1") == (0, "x2: cut n2 > n1\n")
            assert await order(api, "heal", "x2") == (0, "healed\n")
        assert (await shown(api))["strikes"] == [{"id": "x1", "what": "partition n1 | n2"}]
        assert await order(api, "heal", "x1") == (0, "healed\n")
        async with connected(lines["n1>n2"]) as peer:
            assert await peer.ask(b"heard") == b"heard"


async def test_a_fault_can_have_its_time(cluster: Path) -> None:
    with serving(cluster) as api:
        code, output = await order(api, "strike", "slow", "n1", "--set", "latency_ms=10", "--for", "0.2")
        assert (code, output.splitlines()) == (0, ["x1: slow n1 10 ms", "healed"])
        assert (await shown(api))["strikes"] == []


async def test_what_somebody_else_has_healed_before_its_time_is_well(cluster: Path) -> None:
    with serving(cluster) as api:
        command = ["proxy", "strike", "cut client", "n1", "--for", "5", "--api", api]
        timed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure_chaos.cli", *command), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            assert timed.stdout is not None
            assert await timed.stdout.readline() == b"x1: cut clients from n1\n"
            assert await order(api, "heal") == (0, "healed\n")
            assert await timed.stdout.readline() == b"healed\n"
            assert await timed.wait() == 0


async def test_a_process_is_paused_killed_and_started_again(cluster: Path) -> None:
    pid = load(cluster)[1].pid
    state = Path(f"/proc/{pid}/stat")

    async def becomes(letters: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (await asyncio.to_thread(state.read_text)).rpartition(")")[2].split()[0] not in letters:
            assert time.monotonic() < deadline, f"process {pid} does not become {letters}"
            await asyncio.sleep(0.02)

    with serving(cluster) as api:
        assert (await order(api, "strike", "pause", "n2"))[0] == 0
        await becomes("T")
        assert (await order(api, "heal"))[0] == 0
        await becomes("SR")
        assert (await order(api, "strike", "kill", "n2"))[0] == 0
        await becomes("Z")
        assert (await order(api, "heal"))[0] == 0


async def test_what_can_not_be_done_is_said(cluster: Path) -> None:
    with serving(cluster) as api:
        for arguments, why in (
            (("pause", "n9"), "no node 'n9'"),
            (("pause", "n1"), "which process n1 is was not said"),
            (("kill", "n1"), "how n1 is started again was not said"),
            (("partition", "n1,n2"), "two groups"),
            (("pause",), "pause needs nodes"),
            (("slow", "--set", "latency=1"), "not: latency"),
        ):
            code, output = await order(api, "strike", *arguments)
            assert code == 1
            assert why in output


async def test_without_a_server_there_is_a_hint() -> None:
    [port] = free_ports(1)
    for api in (f"http://127.0.0.1:{port}", "nonsense"):
        result = CliRunner().invoke(main, ["proxy", "show", "--api", api])
        assert result.exit_code == 2
        assert api in result.output
        assert "proxy serve" in result.output


def test_the_file_of_a_development_cluster_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    node = {
        "id": "n1",
        "pid": 7,
        "http": "http://127.0.0.1:7601",
        "peer": "127.0.0.1:7701",
        "config": "n1/x.toml",
    }
    file.write_text(json.dumps({"nodes": [node]}), encoding="utf-8")
    [read] = load(file)
    assert (read.name, read.http, read.peer, read.pid) == ("n1", "127.0.0.1:7601", "127.0.0.1:7701", 7)
    # By this Python, wherever it is: `tenured` need not be on PATH.
    assert read.start == (sys.executable, "-m", "tenure_cluster.cli", "run", "--config", "n1/x.toml")
    assert read.directory == tmp_path


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"nodes": [{}]}', '{"nodes": [{"id": "a", "http": "nowhere"}]}', "x"]
)
def test_a_file_that_describes_no_cluster_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NotACluster, match=r"cluster\.json"):
        load(file)
