"""The example programs do what they say, and pass the type checks that a careful user has."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess, environment

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SAYS = {
    "paused_agent": ["agent A's lease has ended", "stale_token", "the report is 'by B'"],
    "cron_singleton": ["done with token"],
    "leader_election": ["a leads", "b leads", "c leads"],
    "worker_pool": ["12 of 12 tasks done"],
    "migration": ["instance-0", "instance-1", "instance-2", "migrated and starts"],
    "human_approval": ["paid $100 to 42", "not paid: "],
    "handover": [
        "worker-1 does step 3",
        "worker-1 is too late: ",
        "worker-2 does step 4",
        "worker-2 is done",
    ],
}


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("examples")) as running:
        yield running


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_an_example_does_what_it_says(dev: DevProcess, name: str) -> None:
    said = run(name, dev.endpoints)
    for words in SAYS[name]:
        assert words in said
    if name == "cron_singleton":
        assert "done already" in run(name, dev.endpoints)
    if name == "migration":
        assert said.count("migrated and starts") - said.count("found it") == 1


@pytest.mark.slow
def test_t1_updates_are_lost_without_the_guard_and_with_it_none(dev: DevProcess) -> None:
    """T1: the program itself compares. Whether a pause hits at the wrong moment is chance, so it may try
    again to lose something; what the guard keeps is exact every time."""
    for seed in range(1, 6):
        command = [sys.executable, str(EXAMPLES / "lost_update.py"), "--runs", "2", "--workers", "4"]
        options = ["--pauses", "4", "--seed", str(seed), "--endpoints", dev.endpoints]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=180, env=environment()
        )
        assert "with the guard: 0 of 2 balances are wrong" in done.stdout, done.stdout + done.stderr
        if done.returncode == 0:
            assert "lost" in done.stdout
            return
    pytest.fail("nothing was ever lost without the guard")


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAYS, "lost_update", "story"}


def test_the_examples_pass_strict_type_checks() -> None:
    files = [str(path) for path in sorted(EXAMPLES.glob("*.py"))]
    root = EXAMPLES.parent
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        ".mypy_cache/examples",
    ]
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout
