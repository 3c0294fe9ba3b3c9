"""One target under atheris: `python fuzz_one.py TARGET CORPUS… [-flag=…]`, with libFuzzer's own flags.

The runner (fuzz_run.py) starts it, as libFuzzer ends the process in which it ran.
"""

import sys
from typing import Any

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["tenure_cluster"]):
    import fuzz_targets


def main() -> None:
    target = fuzz_targets.TARGETS[sys.argv.pop(1)]

    def one(data: bytes) -> Any:
        target.check(data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
