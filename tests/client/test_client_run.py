"""A command under a lease: real processes, with the lease in memory."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_steps import until

from tenure import Client
from tenure._cli.supervise import KILL_BEFORE_V_S, LEASE_LOST, NOT_EXECUTABLE, NOT_FOUND, next_step, supervise
from tenure.testing import FakeCluster

KEY = "job/7"
GRACE_S = 1.0


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


async def run(client: Client, command: list[str], said: list[str] | None = None) -> int:
    async with client.lease(KEY, ttl=30) as held:
        return await supervise(
            held, command, kill_grace_s=GRACE_S, say=print if said is None else said.append
        )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("left_s", "expired", "told_s_ago", "step"),
    [
        (20.0, False, None, ("wait", 19.0)),
        (1.0, False, None, ("terminate", 0.0)),
        (None, False, None, ("terminate", 0.0)),
        (0.7, False, 0.3, ("wait", pytest.approx(0.7 - KILL_BEFORE_V_S))),
        (KILL_BEFORE_V_S, False, 0.5, ("kill", 0.0)),
        (20.0, False, 0.4, ("wait", pytest.approx(0.6))),
        (20.0, False, 1.0, ("kill", 0.0)),
        (None, False, 0.4, ("wait", pytest.approx(0.6))),
        (None, False, 1.0, ("kill", 0.0)),
        (None, True, 0.4, ("kill", 0.0)),
    ],
)
def test_t28_when_a_command_is_told_and_when_it_is_killed(
    left_s: float | None, expired: bool, told_s_ago: float | None, step: tuple[str, float]
) -> None:
    """T28: with a kill grace of one second. SIGKILL comes before V, also if a renewal came after SIGTERM."""
    done = next_step(left_s=left_s, expired=expired, told_s_ago=told_s_ago, kill_grace_s=GRACE_S)
    assert done == step


@pytest.mark.parametrize(
    ("program", "code"),
    [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
async def test_the_commands_own_exit_code_is_passed_on(client: Client, program: str, code: int) -> None:
    assert await run(client, python(program)) == code


async def test_a_command_that_cannot_be_started(client: Client, tmp_path: Path) -> None:
    said: list[str] = []
    assert await run(client, ["no-such-command-at-all"], said) == NOT_FOUND
    assert "not found" in said[0]
    assert await run(client, [str(tmp_path)], said) == NOT_EXECUTABLE


async def test_the_command_knows_its_key_its_token_and_its_lease(client: Client, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))"
    async with client.lease(KEY) as held:
        assert await supervise(held, python(program, str(out)), kill_grace_s=GRACE_S, say=print) == 0
        told = json.loads(out.read_text())
        assert told["TENURE_KEY"] == KEY
        assert told["TENURE_TOKEN"] == str(held.token)
        assert told["TENURE_LEASE_ID"] == held.lease_id


TELLS = """
import os, signal, sys, time
def told(number, frame):
    open(sys.argv[1], "a").write(signal.Signals(number).name + "\\n")
    if len(sys.argv) == 2:
        sys.exit(0)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGUSR1, told)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.01)
"""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("stubborn", [False, True])
async def test_t28_a_command_whose_lease_is_broken_is_stopped(
    cluster: FakeCluster, client: Client, tmp_path: Path, stubborn: bool
) -> None:
    """T28: by SIGTERM, and if that does not help by SIGKILL."""
    out = tmp_path / "out"
    said: list[str] = []
    command = python(TELLS, str(out), *(["stubborn"] if stubborn else []))
    held = await client.lease(KEY, ttl=30).acquire()
    running = asyncio.create_task(supervise(held, command, kill_grace_s=0.3, say=said.append))
    await until(lambda: len(lines(out)) == 1)
    await client.break_(KEY, reason="test")
    await cluster.pass_time(12)
    assert await running == LEASE_LOST
    assert lines(out)[1:] == ["SIGTERM"]
    assert not is_alive(int(lines(out)[0]))
    assert "broken" in said[0]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_t28_a_command_whose_lease_cannot_be_renewed_has_ended_before_its_validity_does(
    cluster: FakeCluster, client: Client, tmp_path: Path, stubborn: bool
) -> None:
    """T28."""
    out = tmp_path / "out"
    command = python(TELLS, str(out), *(["stubborn"] if stubborn else []))
    held = await client.lease(KEY, ttl=30).acquire()
    running = asyncio.create_task(supervise(held, command, kill_grace_s=GRACE_S, say=print))
    await until(lambda: len(lines(out)) == 1)
    with cluster.partition():
        cluster.clock.jump(held.expires_in - GRACE_S - 0.3)
        assert held.is_held
        assert await running == LEASE_LOST
        assert held.is_held, "there was validity left when it had ended"
    assert lines(out)[1:] == ["SIGTERM"]
    await held.release()


async def test_a_suspended_machine_finds_its_command_killed(
    cluster: FakeCluster, client: Client, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    held = await client.lease(KEY, ttl=30).acquire()
    command = python(TELLS, str(out), "stubborn")
    running = asyncio.create_task(supervise(held, command, kill_grace_s=10, say=print))
    await until(lambda: len(lines(out)) == 1)
    cluster.clock.jump(60)
    async with asyncio.timeout(5):
        assert await running == LEASE_LOST


async def test_what_the_command_leaves_behind_is_ended_before_the_release(
    client: Client, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    leaves = f"""
import subprocess, sys, time, os
subprocess.Popen([sys.executable, "-c", {TELLS!r}, sys.argv[1]])
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
    assert await run(client, python(leaves, str(out))) == 0
    assert lines(out)[1:] == ["SIGTERM"]
    assert not is_alive(int(lines(out)[0]))


async def test_signals_are_passed_on(client: Client, tmp_path: Path) -> None:
    out = tmp_path / "out"
    running = asyncio.create_task(run(client, python(TELLS, str(out), "stays")))
    await until(lambda: len(lines(out)) == 1)
    os.kill(os.getpid(), signal.SIGUSR1)
    await until(lambda: len(lines(out)) == 2)
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: len(lines(out)) == 3)
    assert lines(out)[1:] == ["SIGUSR1", "SIGTERM"]
    os.kill(int(lines(out)[0]), signal.SIGKILL)
    assert await running == 128 + signal.SIGKILL


async def test_cancelling_ends_the_command_first(
    cluster: FakeCluster, client: Client, tmp_path: Path
) -> None:
    """T20: then the lease is released."""
    out = tmp_path / "out"
    running = asyncio.create_task(run(client, python(TELLS, str(out), "stays")))
    await until(lambda: len(lines(out)) == 1)
    running.cancel()
    await asyncio.wait([running])
    assert not is_alive(int(lines(out)[0]))
    assert cluster.left() == ([], [])
