"""`tenured run` that can't start: one line that names the fault and the remedy, and an exit code that says
which kind."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tenure_cluster.pid_file import PidFile

CONFIG = 'cluster_id = "c"\nnode_id = "n1"\n'


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return subprocess.run(
        [sys.executable, "-m", "tenure_cluster.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment | variables,
        timeout=30,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The fault. Only what the node logged before it met the fault may stand above it."""
    assert done.stdout == ""
    *logged, told = done.stderr.splitlines()
    assert [line for line in logged if "[warning" not in line] == [], done.stderr
    assert told.startswith("tenured: ")
    return told


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cluster_id = ", "node.toml is not TOML"),
        ('cluster_id = "c"\n', "node_id is missing"),
        (CONFIG + "durablity = 1\n", "did you mean durability"),
        (CONFIG + 'http.listen = "0.0.0.0:7601"\n', "insecure = true"),
        (CONFIG + "leases.ttl_min_ms = 5\n", "leases.ttl_min_ms = 5 is below"),
    ],
)
def test_a_faulty_configuration_is_one_line_and_code_2(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    done = run("run", "--config", "node.toml", cwd=tmp_path)
    assert named in one_line(done)
    assert done.returncode == 2


@pytest.mark.process
def test_a_missing_file_and_no_settings_at_all_are_told(tmp_path: Path) -> None:
    assert "absent.toml: No such file" in one_line(run("run", "--config", "absent.toml", cwd=tmp_path))
    told = one_line(run("run", cwd=tmp_path))
    assert "TENURE_CLUSTER_ID" in told
    assert "--config" in told
    assert "unknown variable TENURE_HTTP_LISTN" in one_line(
        run("run", cwd=tmp_path, TENURE_CLUSTER_ID="c", TENURE_NODE_ID="n", TENURE_HTTP_LISTN="x")
    )


@pytest.mark.process
def test_a_data_directory_that_another_node_uses_is_told_with_its_pid(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(CONFIG)
    (tmp_path / "data").mkdir()
    pid_file = PidFile(tmp_path / "data")
    done = run("run", "--config", "node.toml", cwd=tmp_path)
    pid_file.release()
    assert f"in use by process {os.getpid()}: stop it first" in one_line(done)
    assert done.returncode == 3


@pytest.mark.process
@pytest.mark.parametrize("section", ["http", "peer"])
def test_an_address_in_use_is_told_with_its_setting(tmp_path: Path, section: str) -> None:
    with socket.socket() as taken, socket.socket() as other:
        for one in (taken, other):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        listen = {name: f"127.0.0.1:{other.getsockname()[1]}" for name in ("http", "peer")}
        listen[section] = f"127.0.0.1:{taken.getsockname()[1]}"
        other.close()
        settings = "".join(f'{name}.listen = "{address}"\n' for name, address in listen.items())
        (tmp_path / "node.toml").write_text(CONFIG + settings)
        done = run("run", "--config", "node.toml", cwd=tmp_path)
    told = one_line(done)
    assert f"{section}.listen = '{listen[section]}'" in told
    assert "free it, or set another" in told
    assert done.returncode == 3


@pytest.mark.process
def test_another_node_s_data_directory_is_refused_untouched(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as other:
        for port in (one, other):
            port.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in (one, other)]
    settings = f'http.listen = "{addresses[0]}"\npeer.listen = "{addresses[1]}"\n'
    (tmp_path / "node.toml").write_text(CONFIG + settings)
    node = subprocess.Popen(
        [sys.executable, "-m", "tenure_cluster.cli", "run", "--config", "node.toml"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert node.stderr is not None
    for line in node.stderr:
        if "serves at" in line:
            break
    node.terminate()
    node.stderr.read()
    node.stderr.close()
    assert node.wait(20) == 0
    (tmp_path / "node.toml").write_text(CONFIG.replace("n1", "n2") + settings)
    done = run("run", "--config", "node.toml", cwd=tmp_path)
    told = one_line(done)
    assert "'n1'" in told
    assert "'n2'" in told
    assert "its own, undamaged data_dir" in told
    assert done.returncode == 4


@pytest.mark.process
def test_a_data_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(CONFIG)
    (tmp_path / "data").write_text("a file")
    done = run("run", "--config", "node.toml", cwd=tmp_path)
    assert "can't be used: File exists; set another data_dir" in one_line(done)
    assert done.returncode == 3


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [["run", "--nonsense"], ["dev", "--nodes", "0"], ["dev", "--http-port", "0"], ["x"]]
)
def test_usage_faults_have_code_2(tmp_path: Path, arguments: list[str]) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Error: " in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("command", [[], ["run"], ["dev"]])
def test_every_command_has_help_with_what_it_needs(tmp_path: Path, command: list[str]) -> None:
    done = run(*command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage: tenured" in done.stdout
    assert not command or "Examples:" in done.stdout
