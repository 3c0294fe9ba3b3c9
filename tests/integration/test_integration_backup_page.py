"""The commands of cluster/BACKUP.md, run as they are written, in their order, by one cluster's life."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from backup_story import OldHolder
from live_cluster import free_ports, until
from raw_http import NoAnswer, NotSent, fetch

import tenure

PAGE = Path(__file__).resolve().parents[2] / "cluster" / "BACKUP.md"
NODES = ("n1", "n2", "n3")


def commands() -> list[str]:
    """Every command of the page."""
    return re.findall(r"^ {4,}(tenured? .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


class Reader:
    """Somebody who types what the page says, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done: list[str] = []
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * len(NODES))
        self.urls = {node: f"http://127.0.0.1:{ports[number]}" for number, node in enumerate(NODES)}
        peers = {node: f"127.0.0.1:{ports[len(NODES) + number]}" for number, node in enumerate(NODES)}
        members = "".join(
            f'[members.{node}]\npeer = "{peers[node]}"\nhttp = "{self.urls[node]}"\n' for node in NODES
        )
        for node in NODES:
            own = f'cluster_id = "orders"\nnode_id = "{node}"\ndata_dir = "{node}"\n'
            listen = f'http.listen = "{self.urls[node][7:]}"\npeer.listen = "{peers[node]}"\n'
            (directory / f"{node}.toml").write_text(own + listen + members)
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        self.environment = plain | {
            "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}",
            "TENURE_ENDPOINTS": ",".join(self.urls.values()),
        }

    async def types(self, pattern: str) -> str:
        """Every command of the page that looks like this; those that run nodes go on. What they said."""
        chosen = [command for command in commands() if re.match(pattern, command)]
        assert chosen, pattern
        said = []
        for command in chosen:
            self.done.append(command)
            if command.startswith("tenured run"):
                self._start(command)
            else:
                said.append(await asyncio.to_thread(self._run, command))
        return "\n".join(said)

    def _start(self, command: str) -> None:
        [node] = re.findall(r"(n\d)\.toml", command)
        with (self.directory / f"{node}.log").open("ab") as log:
            self.nodes[node] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    async def serve(self) -> None:
        await self.types("tenured run ")
        for node in NODES:
            await until(self._ready(node), 60.0, f"{node} to be ready", 0.05)

    def _ready(self, node: str) -> Callable[[], Awaitable[bool]]:
        async def ready() -> bool:
            assert self.nodes[node].poll() is None, (self.directory / f"{node}.log").read_text()
            try:
                return (await fetch(self.urls[node], "GET", "/readyz", timeout_s=2.0)).status == 200
            except (NotSent, NoAnswer):
                return False

        return ready

    def stop(self) -> None:
        for process in self.nodes.values():
            process.kill()
            process.wait()
        self.nodes.clear()

    def move_away(self) -> None:
        for node in NODES:
            shutil.rmtree(self.directory / node, ignore_errors=True)

    def client(self) -> tenure.Client:
        return tenure.connect(self.environment["TENURE_ENDPOINTS"])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.stop()


@pytest.mark.process
@pytest.mark.slow
async def test_the_page_can_be_followed_command_by_command(reader: Reader) -> None:
    await reader.serve()
    async with reader.client() as client:
        old = await OldHolder.of(client, "k", "kept")
    await reader.types("tenure backup save ")
    reader.stop()
    reader.move_away()
    await reader.types(r"tenured restore orders\.backup --config n\d\.toml$")
    await reader.serve()
    async with reader.client() as client:
        assert (await old.refusals(client))[:2] == ["stale_token"] * 2
        record = await client.record("k")
        assert record is not None
        assert record.value == "kept"
        new = await OldHolder.of(client, "k")
        assert new.token > old.token + 2**32
    reader.stop()
    inspected = await reader.types("tenured inspect n2")
    assert re.search(r"^n2 of cluster orders\+", inspected, re.MULTILINE)
    assert "last term" in inspected
    assert "last index" in inspected
    await reader.types("tenured recover ")
    reader.move_away()
    await reader.types(r"tenured restore recovered\.backup ")
    assert '"last_index"' in await reader.types("tenured inspect n1")
    reader.move_away()
    assert "tokens" in await reader.types("tenured restore .*--token-floor")
    assert sorted(set(reader.done)) == sorted(set(commands())), "every command of the page was run"
