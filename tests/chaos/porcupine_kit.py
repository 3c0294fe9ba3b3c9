"""Porcupine's verdicts on generated histories: the recorded ones, and those of a run of its own.

python tests/chaos/porcupine_kit.py        record them anew
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tenure_chaos.checkers.generated import lines

COUNT = 3_000
RECORD = Path(__file__).with_name("porcupine_verdicts.json")
PROGRAM = Path(__file__).parents[2] / "chaos" / "porcupine"


def histories() -> str:
    return "\n".join(lines(range(COUNT)))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def recorded() -> tuple[str, list[bool]]:
    """The digest of the histories that were judged, and whether each is linearizable."""
    record = json.loads(RECORD.read_text())
    bits = bin(int(record["linearizable"], 16))[2:].zfill(COUNT)
    return record["sha256"], [bit == "1" for bit in bits]


def has_go() -> bool:
    return shutil.which("go") is not None


def judge(text: str, folder: Path) -> list[bool]:
    """Build the Go program in this folder and run it. Fetches the module if it is not in Go's cache."""
    binary = folder / "porcupine"
    build = ["go", "build", "-mod=readonly", "-o", str(binary), "."]
    subprocess.run(build, cwd=PROGRAM, check=True, env={**os.environ, "GOFLAGS": "-buildvcs=false"})
    ran = subprocess.run([binary], input=text, capture_output=True, text=True, check=True)
    verdicts = ran.stdout.strip()
    assert len(verdicts) == len(text.splitlines())
    assert set(verdicts) <= set("01"), f"{verdicts.count('?')} histories were not decided in time"
    return [verdict == "1" for verdict in verdicts]


def main() -> None:
    text = histories()
    with tempfile.TemporaryDirectory() as folder:
        bits = "".join("1" if good else "0" for good in judge(text, Path(folder)))
    record = {
        "histories": COUNT,
        "sha256": digest(text),
        "linearizable": f"{int(bits, 2):0{(COUNT + 3) // 4}x}",
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
