"""`tenured dev`: a cluster of processes that stays as its user left it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess, environment, free_block, is_alive, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    """One cluster for the tests that leave it as they found it. Its stdin is closed, its output no
    terminal."""
    with DevProcess(tmp_path_factory.mktemp("dev"), closed_stdin=True) as running:
        yield running


def call(url: str, path: str, body: dict | None = None) -> dict:
    request = urllib.request.Request(
        url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def leader_of(dev: DevProcess) -> str:
    def found() -> str | None:
        for url in dev.urls:
            try:
                view = call(url, "/v1/cluster")
            except OSError:
                continue
            if view["role"] == "leader":
                return str(view["node"])
        return None

    leader = until("a leader", found)
    assert leader is not None
    return leader


def test_it_serves_when_it_says_so_and_says_where(dev: DevProcess) -> None:
    said = dev.wait_for("serving")
    assert [node["http"] for node in said["nodes"]] == dev.urls
    for number, url in enumerate(dev.urls):
        granted = call(url, "/v1/acquire", {"key": f"serves/{number}", "owner": "o", "ttl_ms": 3000})
        assert granted["status"] == "granted"


def test_cluster_json_names_every_node_its_process_and_its_addresses(dev: DevProcess) -> None:
    nodes = dev.cluster_json()["nodes"]
    assert dev.cluster_json().keys() == {"nodes"}
    first_http, first_peer = (int(nodes[0][name].rpartition(":")[2]) for name in ("http", "peer"))
    for number, node in enumerate(nodes):
        assert node == {
            "id": f"n{number + 1}",
            "pid": node["pid"],
            "http": f"http://127.0.0.1:{first_http + number}",
            "peer": f"127.0.0.1:{first_peer + number}",
            "config": f"n{number + 1}/tenured.toml",
        }
        assert is_alive(node["pid"])
        assert (dev.data_dir / node["config"]).is_file()
        assert b"tenure_cluster.cli" in Path(f"/proc/{node['pid']}/cmdline").read_bytes()
    assert len({node["pid"] for node in nodes}) == 3


def test_a_second_cluster_in_the_same_directory_is_refused(dev: DevProcess) -> None:
    second = DevProcess(dev.data_dir).start()
    assert second.process.wait(10) == 3
    second.stop()
    assert "in use by another tenured dev" in second.errors
    assert second.errors.count("\n") == 1


def test_a_node_that_runs_already_cannot_be_started_by_hand_again(dev: DevProcess) -> None:
    config = dev.data_dir / dev.node("n1")["config"]
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cluster.cli", "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=20,
        env=environment(),
    )
    assert done.returncode == 3
    assert f"in use by process {dev.node('n1')['pid']}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_killed_node_stays_dead_is_reported_once_and_can_be_started_by_hand(dev: DevProcess) -> None:
    victim = leader_of(dev)
    granted = call(dev.node(victim)["http"], "/v1/acquire", {"key": "kept", "owner": "o", "ttl_ms": 60_000})
    before = dev.cluster_json()
    pid = dev.kill(victim)
    report = dev.wait_for("died", node=victim)
    assert report["pid"] == pid
    assert "SIGKILL" in report["how"]
    assert report["again"].endswith(
        f"run --config {dev.data_dir / before['nodes'][0]['config']}".replace("n1", victim)
    )

    others = [node["http"] for node in before["nodes"] if node["id"] != victim]
    lease_id = granted["lease"]["lease_id"]

    def renewed() -> dict | None:
        try:
            return call(others[0], "/v1/renew", {"lease_id": lease_id})
        except OSError:
            return None

    answer = until("the others to go on", renewed)
    assert answer is not None
    assert answer["lease"]["token"] == granted["lease"]["token"]
    # It stays dead as long as anybody cares to look; its last pid stays in cluster.json.
    assert dev.cluster_json() == before
    with pytest.raises(OSError):
        call(dev.node(victim)["http"], "/livez")

    by_hand = dev.start_by_hand(victim)
    dev.wait_for("runs_again", node=victim, pid=by_hand.pid)
    assert dev.node(victim)["pid"] == by_hand.pid
    others_now = [node for node in dev.cluster_json()["nodes"] if node["id"] != victim]
    assert others_now == [node for node in before["nodes"] if node["id"] != victim]

    def serves() -> bool:
        try:
            return call(dev.node(victim)["http"], "/readyz") is not None
        except OSError:
            return False

    until("the node to serve again", serves)
    assert sum(event["event"] == "died" and event["node"] == victim for event in dev.events) == 1

    # And once more, now that it is not a child of tenured dev.
    dev.kill(victim)
    by_hand.wait()
    dev.wait_for("died", node=victim, pid=by_hand.pid)
    again = dev.start_by_hand(victim)
    dev.wait_for("runs_again", node=victim, pid=again.pid)
    until("the node to serve again", serves)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_ends_every_node_also_one_started_by_hand_and_the_next_start_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    with DevProcess(tmp_path, "--nodes", "3") as dev:
        granted = call(dev.urls[0], "/v1/acquire", {"key": "k", "owner": "o", "ttl_ms": 60_000})
        dev.kill("n3")
        dev.wait_for("died", node="n3")
        by_hand = dev.start_by_hand("n3")
        dev.wait_for("runs_again", node="n3")
        pids = [node["pid"] for node in dev.cluster_json()["nodes"]]
        addresses = [(node["http"], node["peer"]) for node in dev.cluster_json()["nodes"]]
        assert dev.stop(number) == 0
        assert by_hand.returncode == 0
        assert not any(is_alive(pid) for pid in pids)
        assert dev.events[-1] == {"event": "stopped"}
        assert dev.count("died") == 1
    with DevProcess(tmp_path, ports=False) as again:
        assert again.events[0]["resumed"] is True
        assert [(node["http"], node["peer"]) for node in again.cluster_json()["nodes"]] == addresses
        renewed = call(again.urls[1], "/v1/renew", {"lease_id": granted["lease"]["lease_id"]})
        assert renewed["lease"]["token"] == granted["lease"]["token"]


def test_ctrl_c_in_a_terminal_reaches_all_in_order(tmp_path: Path) -> None:
    """A terminal signals the whole process group. The nodes have sessions of their own, so none dies before
    its time."""
    dev = DevProcess(tmp_path, "--nodes", "1")
    dev.start()
    dev.wait_for("serving")
    pid = dev.node("n1")["pid"]
    assert os.getsid(pid) == pid != os.getsid(dev.process.pid)
    assert dev.stop(signal.SIGINT) == 0
    assert dev.count("died") == 0


def test_a_port_in_use_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    http = free_block(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", http + 1))
        taken.listen()
        dev = DevProcess(
            tmp_path / "d", "--http-port", str(http), "--peer-port", str(free_block(3)), ports=False
        ).start()
        assert dev.process.wait(10) == 3
        dev.stop()
    assert f"port {http + 1} (HTTP port of n2) is in use" in dev.errors
    assert "--http-port" in dev.errors
    assert not (tmp_path / "d" / "cluster.json").exists()


def test_a_node_that_cannot_start_ends_the_whole_start_with_its_last_words(tmp_path: Path) -> None:
    with DevProcess(tmp_path, "--nodes", "3"):
        pass
    config = tmp_path / "n2" / "tenured.toml"
    config.write_text(config.read_text() + '\n[log]\nlevel = "info"\n')
    (tmp_path / "n2" / "data").rename(tmp_path / "n2" / "kept")
    (tmp_path / "n2" / "data").write_text("not a directory")
    dev = DevProcess(tmp_path, ports=False).start()
    assert dev.process.wait(20) == 3
    dev.stop()
    assert "n2 ended with code 3 at its start: data_dir = " in dev.errors
    assert "can't be used" in dev.errors
    assert not any(is_alive(node["pid"]) for node in dev.cluster_json()["nodes"])


def test_a_node_that_is_killed_while_the_others_start_is_a_death_like_any_later_one(tmp_path: Path) -> None:
    dev = DevProcess(tmp_path, "--nodes", "3").start()
    try:
        until("the processes", lambda: (tmp_path / "cluster.json").exists())
        pid = dev.kill("n2")
        dev.wait_for("died", node="n2", pid=pid)
        dev.wait_for("serving")
        granted = call(dev.urls[0], "/v1/acquire", {"key": "k", "owner": "o", "ttl_ms": 3000})
        assert granted["status"] == "granted"
    finally:
        code = dev.stop()
    assert code == 0


def test_nobody_reading_its_output_does_not_end_the_cluster(tmp_path: Path) -> None:
    http, peer = free_block(1), free_block(1) + 1
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure_cluster.cli", "dev", "--nodes", "1", "--data-dir", str(tmp_path)]
        + ["--http-port", str(http), "--peer-port", str(peer)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    process.stdout.close()
    try:

        def serves() -> bool:
            assert process.poll() is None
            try:
                return call(f"http://127.0.0.1:{http}", "/readyz") is not None
            except OSError:
                return False

        until("the cluster to serve", serves)
        pid = json.loads((tmp_path / "cluster.json").read_text())["nodes"][0]["pid"]
        os.kill(pid, signal.SIGKILL)
        until("the node's end", lambda: not is_alive(pid) or None)
        deadline = time.monotonic() + 0.5  # the death is reported into the closed pipe within this time
        while time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.terminate()
        assert process.wait(20) == 0
