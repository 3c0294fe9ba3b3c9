"""Runs all tests in three processes side by side: most of them wait, for elections and for leases to end.

Who chooses a free port has it only once it is bound, so each group chooses from ports of its own: integration
from 21,000 on, the others below; the live bench, which chooses from all, has few clusters. What binds a port
in the last group lets the system choose it.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
GROUPS = (
    ("integration",),
    ("api", "auth", "cli", "client", "dashboard", "deploy", "live", "service"),
    ("architecture", "cases", "chaos", "fuzz", "lease", "raft"),
)


def main() -> int:
    folders = {path.name for path in TESTS.iterdir() if any(path.glob("test_*.py"))}
    if missed := folders ^ {name for group in GROUPS for name in group}:
        sys.exit(f"{', '.join(sorted(missed))}: in one of GROUPS and in tests, or in neither")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        running = []
        try:
            for number, group in enumerate(GROUPS):
                said = Path(directory, str(number))
                with said.open("w", encoding="utf-8") as output:
                    tests = subprocess.Popen(command(group), stdout=output, stderr=subprocess.STDOUT)
                running.append((said, tests))
            for said, tests in running:
                tests.wait()
                sys.stdout.write(said.read_text(encoding="utf-8"))
                sys.stdout.flush()
        finally:
            for _, tests in running:
                tests.kill()
    sys.stdout.write(f"all tests took {time.monotonic() - began:.0f} s\n")
    return max(tests.returncode for _, tests in running)


def command(group: tuple[str, ...]) -> list[str]:
    """Each has its own cache: they write it at their ends."""
    paths = [str(TESTS / folder) for folder in group]
    return [sys.executable, "-m", "pytest", "-q", "--durations=15", "-p", "no:cacheprovider", *paths]


if __name__ == "__main__":
    sys.exit(main())
