"""Runs all tests in three processes side by side: most of them wait, for elections and for leases to end.

Who chooses a free port has it only once it is bound, so the groups choose from ports of their own as far as
they can: development clusters from 21,000 on, what is in the second group below. Clusters of real nodes
choose from all, of which they take few.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parent
GROUPS = (
    ("integration/test_integration_[!a]*.py",),
    ("api", "auth", "cli", "client", "dashboard", "deploy", "live", "service"),
    ("architecture", "cases", "chaos", "fuzz", "lease", "raft", "integration/test_integration_a*.py"),
)
"""Folders, or files of one, that take about as long as the others."""


def paths(group: tuple[str, ...]) -> list[Path]:
    return [path for part in group for path in sorted(TESTS.glob(part))]


def files(group: tuple[str, ...]) -> list[Path]:
    return [file for path in paths(group) for file in (path.glob("test_*.py") if path.is_dir() else [path])]


def main() -> int:
    met = Counter(file for group in GROUPS for file in files(group))
    wrong = [str(file.relative_to(TESTS)) for file in TESTS.glob("*/test_*.py") if met[file] != 1]
    if wrong:
        sys.exit(f"in none of GROUPS, or in two: {', '.join(sorted(wrong))}")
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
    asked = [str(path) for path in paths(group)]
    return [sys.executable, "-m", "pytest", "-q", "--durations=15", "-p", "no:cacheprovider", *asked]


if __name__ == "__main__":
    sys.exit(main())
