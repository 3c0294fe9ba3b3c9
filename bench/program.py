"""How a bench is run as a program: measure, say what came of it, and write the figures down if asked to."""

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from targets import install_uvloop

Figures = dict[str, Any]


def run_bench(
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], Coroutine[Any, Any, Figures]],
    report: Callable[[Figures], str],
) -> None:
    """`options.json`: the file for the figures, if any."""
    print(f"loop of the generator: {install_uvloop()}")
    figures = asyncio.run(run(options))
    print(report(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
