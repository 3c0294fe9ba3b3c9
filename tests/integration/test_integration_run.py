"""``tenure run`` as a process, against a real cluster."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess, environment, is_alive, until

pytestmark = pytest.mark.process

TENURE = [sys.executable, "-m", "tenure.cli"]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("run")) as running:
        yield running


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"run/{request.node.name}"


def started(dev: DevProcess, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*TENURE, "run", "--endpoints", dev.endpoints, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def finished(dev: DevProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    process = started(dev, *arguments)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def get(dev: DevProcess, key: str) -> dict:
    command = [*TENURE, "get", key, "-o", "json", "--endpoints", dev.endpoints]
    return json.loads(subprocess.run(command, capture_output=True, text=True, env=environment()).stdout)


def test_a_command_runs_under_the_lease_and_its_code_is_passed_on(dev: DevProcess, key: str) -> None:
    program = "import os; print(os.environ['TENURE_KEY'], os.environ['TENURE_TOKEN']); raise SystemExit(7)"
    done = finished(dev, key, "--", sys.executable, "-c", program)
    assert done.returncode == 7, done.stderr
    name, token = done.stdout.split()
    assert name == key
    assert int(token) > 0
    assert get(dev, key)["code"] == "not_held"


def test_a_key_that_is_held_is_refused_or_waited_for(dev: DevProcess, key: str) -> None:
    first = started(dev, key, "--", "cat", "/dev/zero")
    try:
        until("the lease", lambda: "token" in get(dev, key))
        refused = finished(dev, key, "--", "true")
        assert refused.returncode == 1
        assert "held" in refused.stderr
        second = started(dev, key, "--wait", "30s", "--", "echo", "ran")
        first.terminate()
        out, _ = second.communicate(timeout=30)
        assert (second.returncode, out) == (0, "ran\n")
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 128 + signal.SIGTERM


def test_nobody_there_is_an_exit_code_of_its_own(dev: DevProcess, key: str) -> None:
    command = [*TENURE, "run", key, "--endpoints", "http://127.0.0.1:9", "--timeout", "1s", "--", "true"]
    assert subprocess.run(command, capture_output=True, env=environment()).returncode == 3


def test_t28_a_broken_lease_stops_the_command(dev: DevProcess, key: str) -> None:
    """T28."""
    running = started(dev, key, "--ttl", "3s", "--", "sleep", "600")
    until("the lease", lambda: "token" in get(dev, key))
    broken = [*TENURE, "break", key, "--reason", "test", "--endpoints", dev.endpoints]
    subprocess.run(broken, check=True, capture_output=True, env=environment())
    _, said = running.communicate(timeout=30)
    assert running.returncode == 4
    assert "is lost (broken)" in said


def test_a_command_does_not_outlive_a_killed_parent(dev: DevProcess, key: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    running = started(dev, key, "--", "sh", "-c", f"echo $$ > {pid_file}; exec sleep 600")
    until("the command", lambda: pid_file.exists() and pid_file.read_text().strip())
    pid = int(pid_file.read_text())
    running.kill()
    running.communicate()
    until("its end", lambda: not is_alive(pid))


def test_ctrl_c_on_a_terminal_reaches_the_command(dev: DevProcess, key: str) -> None:
    """The command has the terminal: it can read from it, and is what Ctrl-C ends."""
    controller, terminal = pty.openpty()
    running = subprocess.Popen(
        [
            *TENURE,
            "run",
            "--endpoints",
            dev.endpoints,
            key,
            "--",
            "sh",
            "-c",
            "read line; echo got $line; exec cat",
        ],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=environment(),
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(terminal)
    try:
        until("the lease", lambda: "token" in get(dev, key))
        os.write(controller, b"hello\n")
        said = b""
        deadline = time.monotonic() + 20
        while b"got hello" not in said and time.monotonic() < deadline:
            said += os.read(controller, 1024)
        assert b"got hello" in said
        # Typed and said again by `cat`: before it runs, Ctrl-C might reach the shell alone, which would wait.
        os.write(controller, b"again\n")
        while said.count(b"again") < 2 and time.monotonic() < deadline:
            said += os.read(controller, 1024)
        os.write(controller, b"\x03")
        assert running.wait(20) == 128 + signal.SIGINT
    finally:
        running.kill()
        running.wait()
        os.close(controller)
    until("the release", lambda: get(dev, key)["code"] == "not_held")
