"""Where a development cluster puts its nodes, and what it refuses before it writes anything."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure_cluster.config import load
from tenure_cluster.dev.layout import DevError, Layout, directory_lock, prepare
from tenure_cluster.dev.speaker import Speaker
from tenure_cluster.pid_file import NodeRuns, PidFile, running_pid


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def free_block(count: int) -> int:
    """The first of `count` ports in a row that are free now, below the range of outgoing connections."""
    for start in range(20_000 + os.getpid() % 1000 * 10, 32_000, 10):
        try:
            for port in range(start, start + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return start
    raise AssertionError("no free ports")


def lay_out(data_dir: Path, nodes: int | None = None) -> Layout:
    return prepare(data_dir, nodes, free_block(9), free_block(9) + 1000)


def test_a_new_cluster_has_a_configuration_per_node_that_the_server_reads(tmp_path: Path) -> None:
    http, peer = free_block(3), free_block(3) + 1000
    layout = prepare(tmp_path, 3, http, peer)
    assert not layout.resumed
    configs = [load(node.config_path, {}) for node in layout.nodes]
    assert [config.node_id for config in configs] == ["n1", "n2", "n3"]
    assert [config.http.listen for config in configs] == [f"127.0.0.1:{http + n}" for n in range(3)]
    assert [config.peer.listen for config in configs] == [f"127.0.0.1:{peer + n}" for n in range(3)]
    assert [config.data_dir for config in configs] == [tmp_path / f"n{n}" / "data" for n in (1, 2, 3)]
    assert len({config.cluster_id for config in configs}) == 1
    assert all(config.members == configs[0].members for config in configs)


def test_two_new_clusters_never_talk_to_each_other(tmp_path: Path) -> None:
    one, other = lay_out(tmp_path / "a", 1), lay_out(tmp_path / "b", 1)
    ids = [load(layout.nodes[0].config_path, {}).cluster_id for layout in (one, other)]
    assert ids[0] != ids[1]


def test_cluster_json_has_the_promised_shape_and_is_never_half_written(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 2)
    layout.write_cluster_json({"n1": 11, "n2": 12})
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert document == {
        "nodes": [
            {
                "id": node.node_id,
                "pid": pid,
                "http": f"http://127.0.0.1:{node.http_port}",
                "peer": f"127.0.0.1:{node.peer_port}",
                "config": f"{node.node_id}/tenured.toml",
            }
            for node, pid in zip(layout.nodes, (11, 12), strict=True)
        ]
    }
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_existing_cluster_goes_on_with_its_ports_and_the_settings_added_by_hand(tmp_path: Path) -> None:
    first = lay_out(tmp_path, 3)
    path = first.nodes[1].config_path
    text = path.read_text() + '\n[log]\nlevel = "debug"   # mine\n'
    path.write_text(text)
    again = prepare(tmp_path, None, None, None)
    assert again.resumed
    assert [(n.http_port, n.peer_port) for n in again.nodes] == [
        (n.http_port, n.peer_port) for n in first.nodes
    ]
    assert path.read_text() == text


def test_an_existing_cluster_moves_to_other_ports_when_asked_and_keeps_the_rest(tmp_path: Path) -> None:
    first = lay_out(tmp_path, 3)
    path = first.nodes[1].config_path
    path.write_text(path.read_text() + '\n[log]\nlevel = "debug"\n')
    http = free_block(3) + 2000
    moved = prepare(tmp_path, 3, http, None)
    configs = [load(node.config_path, {}) for node in moved.nodes]
    assert [config.http.listen for config in configs] == [f"127.0.0.1:{http + n}" for n in range(3)]
    assert [config.http.advertise for config in configs] == [f"http://127.0.0.1:{http + n}" for n in range(3)]
    assert [config.peer.listen for config in configs] == [node.peer for node in first.nodes]
    assert configs[1].log.level == "debug"
    assert configs[1].data_dir == tmp_path / "n2" / "data"


def test_another_number_of_nodes_than_the_directory_holds_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path, 3)
    with pytest.raises(DevError, match=r"a cluster of 3 nodes, not 5: choose another --data-dir"):
        lay_out(tmp_path, 5)


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 1)
    layout.nodes[0].config_path.write_text("cluster_id = ")
    with pytest.raises(DevError, match=r"n1/tenured\.toml is not TOML"):
        prepare(tmp_path, None, None, None)


@pytest.mark.parametrize("option", ["--http-port", "--peer-port"])
def test_a_port_in_use_is_named_with_the_option_that_chooses_another(tmp_path: Path, option: str) -> None:
    with taken_port() as port:
        ports = {"--http-port": (port, free_block(1)), "--peer-port": (free_block(1), port)}[option]
        with pytest.raises(DevError, match=rf"port {port} .* is in use by another process.*{option}"):
            prepare(tmp_path, 1, *ports)
    assert list(tmp_path.glob("n*")) == []


def test_ranges_of_ports_that_overlap_or_leave_the_possible_are_refused(tmp_path: Path) -> None:
    start = free_block(4)
    with pytest.raises(DevError, match=rf"port {start + 1} would be peer port of n1 and HTTP port of n2"):
        prepare(tmp_path, 3, start, start + 1)
    with pytest.raises(DevError, match="outside 1 to 65535"):
        prepare(tmp_path, 3, 65_535, start)


def test_a_directory_serves_one_development_cluster_at_a_time(tmp_path: Path) -> None:
    with (
        directory_lock(tmp_path),
        pytest.raises(DevError, match="another tenured dev"),
        directory_lock(tmp_path),
    ):
        pass
    with directory_lock(tmp_path):
        pass


def test_a_directory_in_which_no_cluster_came_to_be_is_left_as_it_was(tmp_path: Path) -> None:
    with directory_lock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").write_text("")
    with directory_lock(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with directory_lock(tmp_path / "c"):
        lay_out(tmp_path / "c", 1)
    assert (tmp_path / "c" / "dev.lock").exists()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DevError, match="file/x can't be used"), directory_lock(tmp_path / "file" / "x"):
        pass


# The pid file.


def test_the_pid_of_a_running_node_is_found_only_while_it_runs(tmp_path: Path) -> None:
    assert running_pid(tmp_path) is None
    pid_file = PidFile(tmp_path)
    assert running_pid(tmp_path) == os.getpid()
    with pytest.raises(
        NodeRuns, match=rf"in use by process {os.getpid()}: stop it first \(kill {os.getpid()}\)"
    ):
        PidFile(tmp_path)
    pid_file.release()
    assert running_pid(tmp_path) is None
    PidFile(tmp_path).release()


def test_a_killed_node_leaves_no_pid_behind_that_another_process_could_have(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path; from tenure_cluster.pid_file import PidFile\n"
        "kept = PidFile(Path(sys.argv[1])); print('holds', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "holds\n"
    assert (tmp_path / "tenured.pid").read_text().strip().isdigit()
    assert running_pid(tmp_path) is None


def test_a_running_node_is_named_before_its_ports_are_found_in_use(tmp_path: Path) -> None:
    with taken_port() as port:
        layout = lay_out(tmp_path, 1)
        node = layout.nodes[0]
        config = node.config_path.read_text().replace(str(node.http_port), str(port))
        node.config_path.write_text(config)
        node.data_dir.mkdir()
        pid_file = PidFile(node.data_dir)
        with pytest.raises(DevError, match=rf"n1 of .* still runs: stop it first \(kill {os.getpid()}\)"):
            prepare(tmp_path, None, None, None)
        pid_file.release()


def test_all_nodes_that_still_run_are_named_at_once(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 3)
    taken = []
    for node in layout.nodes[1:]:
        node.data_dir.mkdir()
        taken.append(PidFile(node.data_dir))
    pid = os.getpid()
    with pytest.raises(DevError, match=rf"n2, n3 of .* still run: stop them first \(kill {pid} {pid}\)"):
        prepare(tmp_path, None, None, None)
    for pid_file in taken:
        pid_file.release()


def test_a_death_is_told_with_what_it_means_for_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = lay_out(tmp_path, 3)
    speaker = Speaker(as_json=False)
    for others in (["n1", "n2"], ["n1"], []):
        speaker.died(layout.nodes[2], 7, "was ended by SIGKILL", others, 3)
    one, two, three = capsys.readouterr().out.splitlines()
    assert "the others go on (n1, n2)" in one
    assert "no majority is left (n1 of 3): nothing is granted until 1 more runs" in two
    assert "none is left" in three
