"""The composition root: a whole node with its front, what it says when it can't start, and how it ends."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from service_cluster import QUICK, free_ports, until

from tenure_cluster.config import Config, load, to_toml
from tenure_cluster.node import EXIT_CONFIG, EXIT_DAMAGED, EXIT_FATAL, EXIT_START, Mint, Node, StartError
from tenure_cluster.raft.types import RaftOptions
from tenure_cluster.settings import Http, Leases, Member, Peer


def configured(directory: Path, **changes: object) -> Config:
    http, peer = free_ports(2)
    settings: dict[str, object] = {
        "cluster_id": "c",
        "node_id": "n1",
        "data_dir": directory / "data",
        "durability": "os",
        "http": Http(listen=f"127.0.0.1:{http}", advertise=f"http://127.0.0.1:{http}"),
        "peer": Peer(listen=f"127.0.0.1:{peer}", advertise=f"127.0.0.1:{peer}"),
        "members": {"n1": Member(peer=f"127.0.0.1:{peer}", http=f"http://127.0.0.1:{http}")},
        "raft": QUICK,
        "leases": Leases(ttl_min_ms=1_200),
    }
    config = Config(**settings | changes)  # type: ignore[arg-type]
    config.validate()
    return config


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(10):
        while True:
            async with session.get(f"{url}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.01)


async def failure(node: Node) -> StartError:
    with pytest.raises(StartError) as caught:
        await node.start()
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_node_serves_over_http_and_remembers_after_a_restart(tmp_path: Path) -> None:
    config = configured(tmp_path)
    url = config.http.advertise
    body = {"key": "k", "owner": "a", "ttl_ms": 30_000, "request_id": "r"}
    tokens = []
    for _ in range(2):
        node = Node(config)
        await node.start()
        try:
            async with aiohttp.ClientSession() as session:
                await ready(session, url)
                async with session.post(f"{url}/v1/acquire", json=body) as answer:
                    assert answer.status == 200
                    tokens.append((await answer.json())["lease"]["token"])
        finally:
            await node.stop()
    assert tokens == [tokens[0]] * 2


async def test_a_node_that_stops_answers_its_polls_over_http(tmp_path: Path) -> None:
    config = configured(tmp_path)
    url = config.http.advertise
    node = Node(config)
    await node.start()
    async with aiohttp.ClientSession() as session:
        await ready(session, url)
        body = {"key": "k", "owner": "a", "ttl_ms": 30_000}
        async with session.post(f"{url}/v1/acquire", json=body) as answer:
            assert answer.status == 200
        poll = asyncio.ensure_future(
            session.post(f"{url}/v1/acquire", json=body | {"wait_ms": 20_000, "request_id": "r"})
        )
        await until(lambda: len(node.service.polls) == 1, "the poll")
        await node.stop()
        async with await poll as answer:
            assert answer.status == 202
            assert (await answer.json())["position"] == 1


@pytest.mark.parametrize("section", ["http", "peer"])
async def test_a_taken_port_is_told_and_nothing_is_left_running(tmp_path: Path, section: str) -> None:
    config = configured(tmp_path)
    address = getattr(config, section).listen
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        taken.listen()
        error = await failure(Node(config))
        assert str(error) == f"{section}.listen = {address!r}: Address already in use"
        assert error.exit_code == EXIT_START
    node = Node(config)
    await node.start()
    await node.stop()


async def test_a_data_directory_in_use_is_told(tmp_path: Path) -> None:
    config = configured(tmp_path)
    first = Node(config)
    await first.start()
    try:
        ports = configured(tmp_path)
        error = await failure(Node(ports))
        assert "in use by another process" in str(error)
        assert error.exit_code == EXIT_START
    finally:
        await first.stop()


async def test_a_data_directory_that_can_t_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = await failure(Node(configured(tmp_path, data_dir=tmp_path / "file" / "data")))
    assert "can't be used: Not a directory" in str(error)
    assert error.exit_code == EXIT_START


@pytest.mark.parametrize("changes", [{"cluster_id": "other"}, {"node_id": "n2"}])
async def test_the_data_of_another_cluster_or_node_is_refused(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    config = configured(tmp_path)
    node = Node(config)
    await node.start()
    await node.stop()
    members = {changes.get("node_id", "n1"): config.members["n1"]}
    error = await failure(Node(configured_like(config, members=members, **changes)))
    assert error.exit_code == EXIT_DAMAGED
    assert next(iter(changes.values())) in str(error)


async def test_data_of_other_members_is_refused_naming_both(tmp_path: Path) -> None:
    config = configured(tmp_path)
    node = Node(config)
    await node.start()
    await node.stop()
    more = {**config.members, "n2": Member(peer="127.0.0.1:1", http="http://127.0.0.1:2")}
    error = await failure(Node(configured_like(config, members=more)))
    assert error.exit_code == EXIT_CONFIG
    assert "a cluster of n1, and the configuration names n1, n2" in str(error)
    again = Node(config)
    await again.start()
    await again.stop()


async def test_a_node_without_data_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(configured(tmp_path))
    for expected in (1, 0):
        caplog.clear()
        await node.start()
        await until(node.service.ready, "the node to serve")
        await node.stop()
        assert len([record for record in caplog.records if "starts empty" in record.message]) == expected


def configured_like(config: Config, **changes: object) -> Config:
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    return Config(**fields | changes)  # type: ignore[arg-type]


async def test_a_damaged_journal_is_refused_with_file_and_offset(tmp_path: Path) -> None:
    config = configured(tmp_path)
    node = Node(config)
    await node.start()
    async with aiohttp.ClientSession() as session:
        await ready(session, config.http.advertise)
    await node.stop()
    segment = min(config.data_dir.glob("journal-*.seg"))
    data = bytearray(segment.read_bytes())
    data[20] ^= 0xFF
    segment.write_bytes(data)
    error = await failure(Node(config))
    assert segment.name in str(error)
    assert error.exit_code == EXIT_DAMAGED


def python(source: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ) | environ,
        check=False,
    )


@pytest.mark.process
def test_what_a_node_must_not_survive_ends_it_at_once_with_one_line() -> None:
    done = python(
        "from tenure_cluster.observe import logs; from tenure_cluster.node import die;"
        "logs.configure('info', 'text');\n"
        "try:\n    die(OSError(5, 'sync failed'))\nfinally:\n    print('survived')"
    )
    assert done.returncode == EXIT_FATAL
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "stopping at once: OSError: [Errno 5] sync failed" in line


@pytest.mark.process
def test_a_sync_that_fails_ends_the_running_node(tmp_path: Path) -> None:
    config = configured_like(configured(tmp_path), durability="fsync")
    source = """
import asyncio, os
from pathlib import Path
from tenure_cluster import node
from tenure_cluster.config import load
from tenure_cluster.observe import logs
from tenure_cluster.service.requests import AcquireRequest

def fail(descriptor):
    raise OSError(5, "Input/output error")

async def acquire():
    while not running.service.ready():
        await asyncio.sleep(0.01)
    for file in running._disk._files:
        file._sync = fail
    print(await running.service.call("acquire", "t", AcquireRequest(owner="a", key="k", ttl_ms=30_000)))

logs.configure("info", "json")
running = node.Node(load(Path(os.environ["TENURE_CONFIG"]), {}))
tasks = []
asyncio.run(running.run_forever(lambda: tasks.append(asyncio.ensure_future(acquire()))))
print("survived")
"""
    path = tmp_path / "node.toml"
    path.write_text(to_toml(config))
    assert load(path, {}).raft == config.raft
    done = python(source, TENURE_CONFIG=str(path))
    assert done.returncode == EXIT_FATAL, done.stderr
    assert done.stdout == "", "nothing may be answered, and nothing stopped in order"
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert "stopping at once: OSError" in events[-1]["event"]
    assert (events[-1]["level"], events[-1]["logger"]) == ("critical", "tenure.node")


def test_minted_ids_are_long_plain_and_never_the_same() -> None:
    mint, other = Mint(), Mint()
    ids = {each() for _ in range(5_000) for each in (mint, other)}
    assert len(ids) == 10_000
    assert not any(each.startswith("-") for each in ids)
    assert {len(each) for each in ids} == {24}
    assert all(each.replace("-", "").replace("_", "").isalnum() and each.isascii() for each in ids)


def test_the_options_of_the_consensus_part_are_the_section_raft() -> None:
    assert Config.__struct_fields__.index("raft")
    assert isinstance(Config(cluster_id="c", node_id="n").raft, RaftOptions)
