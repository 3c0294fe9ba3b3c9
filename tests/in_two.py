"""Runs all tests in two processes side by side: those that choose ports, one after another, and the rest.

Who chooses a free port has it only once it is bound, so two such tests never run at the same time.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
WITHOUT_PORTS = ("architecture", "cases", "chaos", "lease", "raft")
"""What binds a port at all lets the system choose it."""


def main() -> int:
    folders = sorted(path.name for path in TESTS.iterdir() if any(path.glob("test_*.py")))
    others = [name for name in folders if name not in WITHOUT_PORTS]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        beside = subprocess.Popen(command(list(WITHOUT_PORTS)), stdout=said, stderr=subprocess.STDOUT)
        try:
            ended = subprocess.run(command(others)).returncode
            beside.wait()
        finally:
            beside.kill()
        said.seek(0)
        sys.stdout.write(said.read())
    sys.stdout.write(f"both halves of the tests took {time.monotonic() - began:.0f} s\n")
    return ended or beside.returncode


def command(folders: list[str]) -> list[str]:
    paths = [str(TESTS / folder) for folder in folders]
    return [sys.executable, "-m", "pytest", "--durations=15", *paths]


if __name__ == "__main__":
    sys.exit(main())
