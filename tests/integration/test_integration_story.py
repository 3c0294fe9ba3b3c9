"""What `make run` starts: the story comes true, and what it then offers to try works as printed."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from dev_process import PATIENCE_S, environment, is_alive, until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments: str, tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "story.py"), "--ttl", "3", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment() | {"TMPDIR": str(tmp_path)},
    )


def test_every_step_is_as_told_and_nothing_is_left(tmp_path: Path) -> None:
    process = start("--exit", tmp_path=tmp_path)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0, told
    tokens = [int(token) for token in re.findall(r"granted, (?:fencing )?token (\d+)", told)]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 2
    for words in (
        "is held by 'agent-a'",
        "killed by SIGKILL",
        f"renewed by the next leader, same token {tokens[0]}",
        f"refused: stale_token, the floor is {tokens[1]}",
        "accepted, revision",
        "written with token",
        "has applied entry",
    ):
        assert words in told, told
    assert list(tmp_path.iterdir()) == []


def answer_to_curl(command: str) -> dict:
    """What a printed curl command gets, without the need for curl."""
    words = shlex.split(command)
    assert words[:2] == ["curl", "-s"]
    url, options = words[2], words[3:]
    headers = {}
    data = None
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option == "-H":
            name, _, content = value.partition(":")
            headers[name] = content.strip()
        else:
            assert option == "-d"
            data = value.encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def test_the_cluster_is_left_running_with_commands_that_work_until_ctrl_c(tmp_path: Path) -> None:
    process = start(tmp_path=tmp_path)
    told: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: told.extend(process.stdout or ()))
    reader.start()
    try:

        def offered() -> bool:
            assert process.poll() is None, "".join(told)
            return any("Ctrl-C stops the cluster" in line for line in told)

        until("the offer to try it", offered, 60.0)
        [directory] = tmp_path.iterdir()
        pids = [node["pid"] for node in json.loads((directory / "cluster.json").read_text())["nodes"]]
        assert all(is_alive(pid) for pid in pids)

        curls = [line.strip() for line in told if line.strip().startswith("curl ")]
        answers = [answer_to_curl(command) for command in curls]
        assert answers[0]["status"] == "granted"
        assert answers[1]["key"] == answers[0]["lease"]["key"]
        assert answers[2]["value"] == "B's result"
        assert answers[3]["leader"] in ("n1", "n2", "n3")

        commands = [line.strip() for line in told if re.match(r"\S*/tenure ", line.strip())]
        assert len(commands) == 3
        for command in commands:
            done = subprocess.run(
                shlex.split(command), capture_output=True, text=True, timeout=30, cwd=ROOT, env=environment()
            )
            assert done.returncode == 0, done.stderr
        assert all(f"n{number}" in done.stdout for number in (1, 2, 3))
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
        reader.join()
        process.stdout.close()
    assert code == 0, "".join(told)
    assert not any(is_alive(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


def test_a_story_that_does_not_come_true_says_so_and_fails(tmp_path: Path) -> None:
    """A TTL that the cluster refuses: the story can't be told, its exit code says so, and nothing is left
    running."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "story.py"), "--exit", "--ttl", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment() | {"TMPDIR": str(tmp_path)},
    )
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "not as told: InvalidRequest" in told
    [directory] = tmp_path.iterdir()
    nodes = json.loads((directory / "cluster.json").read_text())["nodes"]
    assert not any(is_alive(node["pid"]) for node in nodes)
    assert str(directory) in told
    shutil.rmtree(directory)
