"""`tenure top` against a real cluster: once, as a document, and on a terminal as it changes."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Tenure
from dev_process import DevProcess, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("top")) as running:
        yield running


@pytest.fixture
def tenure(dev: DevProcess) -> Tenure:
    return Tenure(dev.endpoints)


class Terminal:
    """`tenure top` on a terminal of its own; everything that it has written."""

    def __init__(self, tenure: Tenure, *arguments: str) -> None:
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tenure.cli", "top", *arguments],
            env=tenure.environment | {"TERM": "xterm-256color"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.written = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._side, 65_536)
            except OSError:  # the other side is closed
                return
            self.written += data.decode(errors="replace")

    def shows(self, pattern: str) -> bool:
        """Whether the present picture, which begins where the cursor was last brought home, has it."""
        last = self.written.rpartition("\x1b[H")[2]
        return re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last)) is not None

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self._reader.join()
        os.close(self._side)
        return code


def test_once_prints_nodes_and_leases(tenure: Tenure) -> None:
    tenure.ok("acquire", "top/once", "--owner", "agent-once", "--ttl", "1m")
    text = tenure.text("top", "--once")
    assert text.startswith("All 3 nodes serve · leader n")
    assert re.search(r"top/once +agent-once +\d+ +- +\d\d\.\ds", text)
    assert len(re.findall(r"^n\d +(?:leader|follower) .* serves$", text, re.MULTILINE)) == 3
    assert "top/once" not in tenure.text("top", "other/", "--once")


def test_a_document_for_programs(tenure: Tenure) -> None:
    tenure.ok("acquire", "top/json", "--owner", "agent-json", "--ttl", "1m")
    document = tenure.ok("top", "top/json")
    assert document["health"]["level"] == "good"
    assert [node["about"]["ready"] for node in document["nodes"]["nodes"]] == [True] * 3
    assert [lease["key"] for lease in document["leases"]] == ["top/json"]
    assert document["more"] is False


def test_a_cluster_that_is_not_there(tenure: Tenure) -> None:
    nowhere = Tenure("http://127.0.0.1:1")
    done = nowhere("top", "--once", "--timeout", "500ms")
    assert done.returncode == 3
    assert b"http://127.0.0.1:1" in done.stdout + done.stderr


def test_a_cluster_without_a_quorum_says_so(tmp_path: Path) -> None:
    with DevProcess(tmp_path / "dev") as dev:
        tenure = Tenure(dev.urls[0])
        dev.kill("n2")
        dev.kill("n3")

        def told() -> bool:
            document = json.loads(tenure("top", "--timeout", "2s", "-o", "json").stdout)
            if document["nodes"] is None or document["health"]["level"] != "bad":
                return False
            reached = [node["reached"] for node in document["nodes"]["nodes"]]
            return reached == [True, False, False] and document["health"]["text"].startswith(
                "n1 doesn't serve"
            )

        until("the loss of the quorum to be told", told)
        assert tenure("top", "--once", "--timeout", "2s").returncode == 3


def test_a_terminal_shows_what_happens_until_it_is_left(tenure: Tenure) -> None:
    terminal = Terminal(tenure, "live/", "--interval", "1s")
    try:
        until("the first picture", lambda: terminal.shows("All 3 nodes serve .* live"))
        lease = tenure.ok("acquire", "live/1", "--owner", "agent-live", "--ttl", "1m")["lease"]
        until("the grant", lambda: terminal.shows(r"live/1 +agent-live"))
        tenure.ok("release", lease["lease_id"])
        until("the release", lambda: terminal.shows("Nobody holds a lease"))
        tenure.refused(
            1,
            "commit",
            "live/1",
            "--lease-id",
            lease["lease_id"],
            "--token",
            str(lease["token"]),
            "--value",
            "x",
        )
        until("the refusal", lambda: terminal.shows(r"live/1 +agent-live +\d+ +not_live"))
    finally:
        code = terminal.end()
    assert code == 0
    assert terminal.written.rstrip().endswith(("\x1b[?1049l", "\x1b[?25h")), "the terminal is as it was"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_signs_ends_nothing_in_a_traceback(tenure: Tenure, encoding: str) -> None:
    """A command that has done its work must not end as if it had been refused."""
    key, owner = f"encoded/{encoding}", "Zoë 東京"
    tenure.environment["PYTHONIOENCODING"] = encoding
    said = {}
    for words in (
        ("acquire", key, "--owner", owner, "--ttl", "60s"),
        ("get", key),
        ("list", "encoded/"),
        ("top", "encoded/", "--once"),
        ("status",),
        ("get", key, "-o", "json"),
        ("top", "encoded/", "--once", "-o", "json"),
    ):
        running = tenure.process(*words)
        out, err = running.communicate(timeout=60)
        assert (running.returncode, err) == (0, b""), words
        # click takes ASCII for a mistake and writes UTF-8.
        said[words[0], "json" in words] = out.decode("utf-8" if encoding == "ascii" else encoding)
    assert ("東" if encoding == "ascii" else "Zoë \\u6771") in said["get", False]
    assert json.loads(said["get", True])["owner"] == owner
    assert json.loads(said["top", True])["leases"][0]["owner"] == owner
    watched = tenure.process("watch", "encoded/", "--from", "0", "-o", "json")
    assert watched.stdout is not None
    try:
        line = watched.stdout.readline().decode(encoding)
    finally:
        watched.kill()
        watched.communicate()
    assert json.loads(line)["owner"] == owner
