"""``tenure-chaos live-mutants``: does the live bench notice a broken promise?"""

import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from tenure_chaos.commands.told import run_until_told
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.run import LiveReport, run
from tenure_chaos.live.scenarios import Scenario
from tenure_chaos.mutants.catalogue import BY_NAME

VISIBLE: Final = (
    "token reset on release",
    "grant while held",
    "lease that ends early",
    "last come, first served",
    "waiter that is forgotten",
    "commit that ignores the floor",
    "commit without a quorum",
    "release by key instead of lease_id",
)
"""What they break shows in answers and in the log within seconds of ordinary work."""

FAULTS: Final = ("isolate leader", "kill leader", "pause client", "lost replies")
OPTIONS: Final = LiveOptions(clients=3, programs=8, keys=3, ttl_ms=(3_000,), seconds=20.0, gap_s=1.0)


@click.command("live-mutants")
@click.option("--only", multiple=True, help="This one; can be given again.")
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Most runs for each.")
def live_mutants(only: Sequence[str], runs: int) -> None:
    """Break one promise after the other in the code of real processes, and see whether a property says so.

    Exit code 1 if one of them was not noticed.
    """
    for name in only:
        if name not in BY_NAME:
            raise click.UsageError(f"there is no mutant {name!r}; there are: {', '.join(BY_NAME)}")
    logging.disable(logging.CRITICAL)
    names = tuple(only) or VISIBLE
    caught = sum([_hunt(name, runs) for name in names])
    click.echo(f"caught {caught} of {len(names)}")
    sys.exit(0 if caught == len(names) else 1)


def _hunt(name: str, runs: int) -> bool:
    for seed in range(1, runs + 1):
        with tempfile.TemporaryDirectory(prefix="tenure-chaos-mutant-") as directory:
            options = replace(OPTIONS, mutant=name, seed=seed)
            scenario = Scenario(f"mutant {name}", faults=FAULTS)
            report = run_until_told(run(options, Path(directory), scenario.run, title=scenario.title))
        if (what := broken(report)) is not None:
            click.echo(f"caught in run {seed}: {name}: {what}")
            return True
    click.echo(f"not caught in {runs} runs: {name}")
    return False


def broken(report: LiveReport) -> str | None:
    """The first property that is broken, if one is."""
    for verdict in report.verdicts:
        if verdict.wrongs:
            return f"property {verdict.number}, {verdict.title}: {verdict.wrongs[0].what}"
    return None
