"""Fuzzes every target in turn, guided by coverage, and says what came of it.

    make fuzz ARGS='--seconds 600'            ten minutes for each target
    make fuzz ARGS='--seconds 60 journal_damage backup'

Each target begins with its seeds and with what earlier runs found worth keeping (.tenure-fuzz/corpus). What
made one fail is written to tests/fuzz/found, where the tests find it: commit it with what mends it.
"""

import argparse
import contextlib
import hashlib
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fuzz_kit import Target
from fuzz_targets import PLACES, target

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / ".tenure-fuzz"
FOUND = HERE / "found"
INPUT_TIMEOUT_S = 25
"""One input that takes longer hangs. A thousand times what any takes, also on a machine with other work."""
MEMORY_MB_MAX = 1024
"""The whole process: three times what it has when it begins."""


@dataclass
class Run:
    """What one target came to."""

    name: str
    seconds: float
    """Without the start."""
    cpu_seconds: float
    """With it: on a busy machine the seconds alone say little."""
    executions: int
    coverage: int
    features: int
    corpus: int
    found: list[Path]
    failed: str

    def line(self) -> str:
        reached = f"coverage {self.coverage:5}  features {self.features:6}  corpus {self.corpus:5}"
        return (
            f"{self.name:16} {self.seconds:5.0f} s, {self.cpu_seconds:4.0f} of CPU"
            f"  {self.executions:10,} executions  {reached}  {self.failed or 'no finding'}"
        )


def main() -> int:
    options = argparse.ArgumentParser(description="Fuzz the decoders.")
    options.add_argument("--seconds", type=int, default=60, help="for each target")
    options.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(PLACES)}")
    asked = options.parse_args()
    if unknown := set(asked.targets) - set(PLACES):
        options.error(f"there is no target {', '.join(sorted(unknown))}")
    runs = []
    for name in asked.targets or PLACES:
        runs.append(fuzz(target(name), asked.seconds))
        say(runs[-1].line())
    total_s = sum(run.seconds for run in runs)
    found = [path for run in runs for path in run.found]
    executions, cpu_s = sum(run.executions for run in runs), sum(run.cpu_seconds for run in runs)
    say(f"{len(runs)} targets, {total_s:.0f} s, {cpu_s:.0f} of CPU, {executions:,} executions")
    for path in found:
        say(f"kept: {path.relative_to(HERE.parents[1])}")
    failed = [run.name for run in runs if run.failed]
    say(f"findings in {', '.join(failed)}" if failed else "no crash, no hang, nothing beyond its memory")
    return 1 if failed else 0


def fuzz(under: Target, seconds: int) -> Run:
    corpus, crashes = WORK / "corpus" / under.name, WORK / "crashes" / under.name
    for folder in (corpus, crashes):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in under.seeds():
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    words = WORK / f"{under.name}.dict"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in under.words if len(word) <= 64), "ascii")
    before = set(crashes.iterdir())
    log = WORK / f"{under.name}.log"
    began, cpu_began = time.monotonic(), cpu_of_children_s()
    with log.open("w", encoding="utf-8") as output:
        ended = subprocess.run(
            [
                *(sys.executable, str(HERE / "fuzz_one.py"), under.name, str(corpus)),
                f"-max_total_time={seconds}",
                f"-max_len={under.bytes_max}",
                f"-timeout={INPUT_TIMEOUT_S}",
                f"-rss_limit_mb={MEMORY_MB_MAX}",
                f"-dict={words}",
                f"-artifact_prefix={crashes}/",
                "-print_final_stats=1",
                "-reload=0",
                "-keep_seed=1",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    spent_s = time.monotonic() - began
    said = log.read_text(encoding="utf-8", errors="replace")
    kept = [keep(under, path) for path in sorted(set(crashes.iterdir()) - before)]
    failed = "" if ended.returncode == 0 else f"{why(said)}; see {log.relative_to(HERE.parents[1])}"
    return Run(
        name=under.name,
        seconds=last(r"^Done \d+ runs in (\d+) second", said) or spent_s,
        cpu_seconds=cpu_of_children_s() - cpu_began,
        executions=last(r"number_of_executed_units:\s*(\d+)", said) or last(r"^#(\d+)", said),
        coverage=last(r" cov: (\d+)", said),
        features=last(r" ft: (\d+)", said),
        corpus=last(r" corp: (\d+)", said),
        found=kept,
        failed=failed,
    )


def keep(under: Target, path: Path) -> Path:
    """As text, for the tests: the target and the bytes in hexadecimal."""
    FOUND.mkdir(exist_ok=True)
    kept = FOUND / f"{under.name}-{path.name[-12:]}.hex"
    digits = path.read_bytes().hex()
    kept.write_text("\n".join(digits[at : at + 100] for at in range(0, len(digits), 100)) + "\n", "ascii")
    return kept


def cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def last(pattern: str, said: str) -> int:
    numbers = re.findall(pattern, said, re.MULTILINE)
    return int(numbers[-1]) if numbers else 0


def why(said: str) -> str:
    lines = re.findall(
        r"^(?:(?:\w+\.)*\w*(?:Error|Exception|Broken|Lost)\b.*|==\d+== ERROR: .*)$", said, re.MULTILINE
    )
    return lines[0][:160] if lines else "it ended"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
