"""What tenured tells systemd, looked at from the other end of the socket."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_kit import free_port

from tenure_cluster.systemd import Systemd

PATIENCE_S = 60.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(PATIENCE_S)
        yield end


def told(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def test_without_the_variable_nothing_is_sent_and_nothing_fails() -> None:
    systemd = Systemd({})
    systemd.ready("leader")
    systemd.status("follower")
    systemd.stopping()


def test_a_socket_that_is_gone_does_not_harm_the_node(tmp_path: Path) -> None:
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("leader")


def test_an_abstract_address_is_understood() -> None:
    name = f"tenure-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        end.settimeout(PATIENCE_S)
        Systemd({"NOTIFY_SOCKET": "@" + name}).stopping()
        assert told(end)[0] == "STOPPING=1"


async def test_the_event_loop_gives_signs_of_life(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": str(manager.getsockname()), "WATCHDOG_USEC": "20000"}
    systemd = Systemd(environ)
    systemd.ready("leader, term 1")
    try:
        heard = []
        while heard.count("WATCHDOG=1") < 3:
            heard += await asyncio.to_thread(told, manager)
    finally:
        systemd.close()
    assert heard[:2] == ["READY=1", "STATUS=leader, term 1"]


async def test_a_watchdog_meant_for_another_process_is_not_served(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": str(manager.getsockname()), "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    systemd = Systemd(environ, pid=2)
    systemd.ready("leader")
    await asyncio.sleep(0)
    systemd.stopping()
    assert told(manager)[0] == "READY=1"
    assert told(manager)[0] == "STOPPING=1"
    systemd.close()


@pytest.mark.process
def test_a_real_node_says_that_it_is_ready_lives_and_stops(manager: socket.socket, tmp_path: Path) -> None:
    node = subprocess.Popen(
        [sys.executable, "-m", "tenure_cluster.cli", "run"],
        env={
            **os.environ,
            "NOTIFY_SOCKET": str(manager.getsockname()),
            "WATCHDOG_USEC": "200000",
            "TENURE_CLUSTER_ID": "notify",
            "TENURE_NODE_ID": "n1",
            "TENURE_DATA_DIR": str(tmp_path / "data"),
            "TENURE_HTTP_LISTEN": f"127.0.0.1:{free_port()}",
            "TENURE_PEER_LISTEN": f"127.0.0.1:{free_port()}",
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        heard = told(manager)
        assert heard[0] == "READY=1"
        while "STATUS=leader, term 1" not in heard or "WATCHDOG=1" not in heard:
            heard += told(manager)
        # As `systemctl reload` does. By default it would be an end, and for systemd one that was meant.
        node.send_signal(signal.SIGHUP)
        heard.clear()
        while heard.count("WATCHDOG=1") < 5:
            heard += told(manager)
        node.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in heard:
            heard += told(manager)
        assert node.wait(PATIENCE_S) == 0
    finally:
        node.kill()
        node.wait()
