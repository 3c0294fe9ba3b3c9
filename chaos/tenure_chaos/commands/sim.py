"""``tenure-chaos sim``: a batch of seeds."""

import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import click

from tenure_chaos.sim.run import Report, run_seed

TRACE_TAIL_LINES = 40


@click.command()
@click.option(
    "--seeds", default="1:20", show_default=True, help="First seed and the one after the last, A:B."
)
@click.option("--jobs", default=1, show_default=True, help="Processes to run at a time.")
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def sim(seeds: str, jobs: int, output: str) -> None:
    """Simulate one cluster a seed, and check every rule. Exit code 1 if one is broken."""
    first, _, end = seeds.partition(":")
    began = time.perf_counter()
    total: Counter[str] = Counter()
    simulated_s = 0.0
    count = 0
    broken: list[tuple[int, list[str]]] = []
    for report in _reports(range(int(first), int(end)), jobs):
        count += 1
        total.update(report.counts)
        simulated_s += report.simulated_s
        if report.violations:
            broken.append((report.seed, report.violations))
            _say_broken(report)
    wall_s = time.perf_counter() - began
    if output == "json":
        click.echo(
            json.dumps(
                {
                    "seeds": count,
                    "simulated_hours": simulated_s / 3600,
                    "wall_s": wall_s,
                    "broken": broken,
                    "counts": dict(sorted(total.items())),
                }
            )
        )
    else:
        for what, number in sorted(total.items()):
            click.echo(f"{number:>9}  {what}")
        speed = simulated_s / wall_s
        click.echo(
            f"{count} seeds, {simulated_s / 3600:.2f} simulated hours in {wall_s:.0f} s ({speed:.0f} x), "
            f"{len(broken)} broken"
        )
    sys.exit(1 if broken else 0)


def _reports(seeds: Iterable[int], jobs: int) -> Iterator[Report]:
    if jobs <= 1:
        yield from map(_run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_quiet) as pool:
        yield from pool.imap_unordered(_run, seeds)


def _run(seed: int) -> Report:
    report = run_seed(seed)
    if not report.violations:
        report.trace = []
    report.history.effects.clear()
    report.history.calls.clear()
    return report


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


def _say_broken(report: Report) -> None:
    click.echo(f"seed {report.seed} broke {len(report.violations)} rules", err=True)
    for violation in report.violations[:10]:
        click.echo(f"  {violation}", err=True)
    for line in report.trace[-TRACE_TAIL_LINES:]:
        click.echo(f"    {line}", err=True)
    click.echo(f"  again: tenure-chaos reproduce {report.seed}", err=True)
