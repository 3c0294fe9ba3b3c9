"""The example programs do what they say, and pass the type checks that a careful user has."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_process import DevProcess, environment, is_alive, until

import tenure

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
    "celery_worker": ["which holds invoice", "says: charged with token", "says: was charged with token"],
    "langgraph_coordinator": [
        "asks with token",
        "another process: published with token",
        "is too late with token",
        "stale_token",
        "the suite is '3 tests by agent-",
    ],
}


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("examples")) as running:
        yield running


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment())
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
    if name == "celery_worker":
        assert said.count("a delivery says: ") == 2
    if name == "langgraph_coordinator":
        assert said.count("asks with token") == 1
        assert said.count("is at it") == 2


def test_a_celery_process_that_was_paused_past_its_lease_charges_nothing(
    dev: DevProcess, tmp_path: Path
) -> None:
    """The worker as the example's text says it is started. The paused process wakes up after the other one
    has charged, is refused, tries again, and finds the record."""
    key = "invoice/paused"
    queue = environment() | {"QUEUE_DIR": str(tmp_path), "TENURE_ENDPOINTS": dev.endpoints}
    sending = "import celery_worker as it; it.settle.delay('paused'); it.settle.delay('paused')"
    subprocess.run([sys.executable, "-c", sending], cwd=EXAMPLES, env=queue, check=True, timeout=120)
    log = tmp_path / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "celery_worker", "worker"]
    options = ["--concurrency", "2", "--loglevel", "info"]
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [*command, *options], cwd=EXAMPLES, env=queue, stdout=out, stderr=subprocess.STDOUT
        )

    def says(words: str) -> bool:
        assert worker.poll() is None, log.read_text()
        return words in log.read_text()

    def in_the_middle(client: tenure.SyncClient) -> tenure.LeaseInfo | None:
        lease = client.get(key)
        return lease if lease is not None and lease.progress is not None else None

    paused = 0
    try:
        with tenure.connect_sync(dev.endpoints) as client:
            first = until("a process asks the bank", lambda: in_the_middle(client), 120)
            assert first is not None
            paused = int(first.metadata["pid"])
            os.kill(paused, signal.SIGSTOP)
            (tmp_path / "the bank is open").touch()
            record = until("the other one has charged", lambda: client.record(key), 120)
            assert record is not None
            assert record.token > first.token
            until("that is a success", lambda: says(f"'charged with token {record.token}'"), 60)
            os.kill(paused, signal.SIGCONT)
            until("the paused one looks again", lambda: says(f"'was charged with token {record.token}'"), 120)
            assert client.record(key) == record
            # By its handle, or by what became of its commit: whichever it heard of first.
            assert "Retry in 5s" in log.read_text()
    finally:
        if paused and is_alive(paused):
            os.kill(paused, signal.SIGCONT)
        worker.terminate()
        try:
            worker.wait(60)
        finally:
            worker.kill()
            worker.wait()


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
