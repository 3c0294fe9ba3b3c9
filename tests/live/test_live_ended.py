"""A run that is told to stop leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure_chaos.commands.told import STOPPED

PATIENCE_S = 120.0


def processes_of(directory: Path) -> dict[int, str]:
    """Those that name the run's folder, by pid."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if str(directory) in command:
            found[int(path.parent.name)] = command
    return found


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A live run, ended with its nodes whatever happens."""
    with subprocess.Popen(
        [sys.executable, "-m", "tenure_chaos.cli", "live", "--out", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            for pid in processes_of(directory):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_run_that_is_told_to_stop_ends_its_processes_first(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with running(directory, "--proxies", "standin", "--once", "kill all", "--seconds", "600") as process:
        assert process.stdout is not None
        # The nodes are dead then, and the fault's healing would start them.
        for line in process.stdout:
            if "fault kill all" in line:
                break
        process.terminate()
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == STOPPED, rest
        assert "told to stop" in rest
        deadline = time.monotonic() + PATIENCE_S
        while processes_of(directory):
            assert time.monotonic() < deadline, processes_of(directory)
            time.sleep(0.1)
