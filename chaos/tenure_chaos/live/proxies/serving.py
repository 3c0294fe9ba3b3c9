"""Finds a Toxiproxy server, or starts one, or else the stand-in; and says which one it is.

In this order: the server at ``TOXIPROXY_URL``; ``toxiproxy-server`` beside this Python (where ``make
toxiproxy`` puts it) or on PATH, started on a free port; the stand-in.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.proxies.toxiproxy import ProxyError, Server

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0

Choice = Literal["any", "real", "standin"]


class NoServer(Exception):
    """What was asked for can't be had. The message says what to do."""


@dataclass(frozen=True)
class Serving:
    """A server that runs, and what it is, for the report."""

    server: Server
    what: str
    real: bool


def installed() -> str | None:
    """The path of a Toxiproxy server that can be started."""
    beside = Path(sys.executable).parent / "toxiproxy-server"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("toxiproxy-server")


def real_is_available() -> bool:
    return bool(os.environ.get("TOXIPROXY_URL")) or installed() is not None


@contextmanager
def proxy_server(log: Path, choice: Choice = "any") -> Iterator[Serving]:
    """A server for as long as the block runs; what it says goes to ``log``. Raises NoServer."""
    url, program = os.environ.get("TOXIPROXY_URL"), installed()
    if choice != "standin" and url:
        try:
            server = Server(url)
            version = server.version()
        except (ProxyError, ValueError, KeyError, TypeError) as error:
            raise NoServer(f"TOXIPROXY_URL={url} does not answer as a Toxiproxy server: {error}") from error
        yield Serving(server, f"Toxiproxy {version} at {url}", version != "stand-in")
        return
    if choice == "real" and program is None:
        raise NoServer("there is no toxiproxy-server: make toxiproxy, or set TOXIPROXY_URL")
    if choice == "standin" or program is None:
        command = [sys.executable, "-m", "tenure_chaos.live.proxies.standin"]
        what = "the stand-in for Toxiproxy"
    else:
        command, what = [program], f"Toxiproxy, {program}"
    with _started(command, log) as server:
        version = server.version()
        yield Serving(server, f"{what} (version {version})", version != "stand-in")


@contextmanager
def _started(command: list[str], log: Path) -> Iterator[Server]:
    [port] = free_ports(1)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "-host", "127.0.0.1", "-port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LOG_LEVEL": "fatal"},
            start_new_session=True,
        )
    try:
        server = Server(f"http://127.0.0.1:{port}")
        _wait_until_it_answers(server, process, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            server.version()
            return
        except ProxyError as error:
            if process.poll() is not None:
                raise NoServer(f"{process.args!r} ended with {process.returncode}: see {log}") from error
            if time.monotonic() > deadline:
                raise NoServer(f"{process.args!r} does not answer: {error}") from error
        time.sleep(0.05)
