"""One target under atheris: `python fuzz_one.py TARGET CORPUS… [-flag=…]`, with libFuzzer's own flags.

The runner (fuzz_run.py) starts it, as libFuzzer ends the process in which it ran.
"""

import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["tenure_cluster"]):
    from fuzz_targets import target

    TARGET = target(sys.argv.pop(1))


def one(data: bytes) -> Any:
    TARGET.check(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
