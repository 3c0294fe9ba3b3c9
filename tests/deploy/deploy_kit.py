"""What the tests of deploy/ share: where things are, and running a checker that must be there."""

import contextlib
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus/tenure.rules.yml"
BIN = Path(sys.executable).parent

CHECKER_TIMEOUT_S = 300


def free_port() -> int:
    """A port that is free now, outside the range of outgoing connections: or a client could take it while its
    node is down."""
    for port in random.sample(range(10_000, 21_000), 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def tool(name: str) -> str:
    """A checker's path. A missing one fails the test: .ci/services and make install all of them."""
    found = shutil.which(str(BIN / name)) or shutil.which(name)
    assert found is not None, f"{name} is not installed: run .ci/services and make (see CONTRIBUTING.md)"
    return found


def run(
    *command: str | Path, cwd: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a checker to its end."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=CHECKER_TIMEOUT_S,
        check=False,
    )


def passes(*command: str | Path, cwd: Path | None = None, stdin: str | None = None) -> str:
    """Run a checker, which must find nothing; what it printed."""
    ended = run(*command, cwd=cwd, stdin=stdin)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def rules() -> list[dict[str, Any]]:
    """The rules of Prometheus."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[str]:
    """The names of the alerts."""
    return [rule["alert"] for rule in rules() if "alert" in rule]
