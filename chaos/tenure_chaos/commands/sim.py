"""``tenure-chaos sim``: a batch of seeds."""

import json
import math
import sys
import time
from pathlib import Path

import click

from tenure_chaos import marks
from tenure_chaos.batch import Verdict, run_batch
from tenure_chaos.commands.options import KEEP, again, option_option
from tenure_chaos.report import Tally, commit, counts_table


def _seeds(context: click.Context, parameter: click.Parameter, value: str) -> range:
    first, _, end = value.partition(":")
    if not first.isdecimal() or not (end or "1").isdecimal():
        raise click.BadParameter(f"{value!r} is neither A:B nor one seed")
    if context.params.get("hours") is not None:
        return range(int(first), sys.maxsize)
    return range(int(first), int(end) if end else int(first) + 1)


@click.command()
@click.option(
    "--seeds",
    default="1:20",
    show_default=True,
    callback=_seeds,
    help="First seed and the one after the last, A:B; or one seed.",
)
@click.option(
    "--hours",
    type=float,
    is_eager=True,
    help="Simulated hours in all: then the end of --seeds does not count.",
)
@click.option("--jobs", default=1, show_default=True, help="Processes to run at a time.")
@option_option
@click.option(
    "--record", type=click.Path(dir_okay=False, path_type=Path), help="Add the sums as a line of JSON."
)
@click.option(
    "--marks", "check_marks", is_flag=True, help="Fail if a coverage mark was not reached (see marks.py)."
)
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def sim(
    seeds: range,
    hours: float | None,
    jobs: int,
    overrides: dict[str, str],
    record: Path | None,
    check_marks: bool,
    output: str,
) -> None:
    """Simulate one cluster a seed, and check every rule. Exit code 1 if one is broken, or with --marks if the
    batch was too tame to prove anything.
    """
    began = time.perf_counter()
    sums = Tally()
    version = commit()
    enough_s = math.inf if hours is None else hours * 3600
    for verdict in run_batch(
        seeds, jobs=jobs, overrides=overrides, keep=KEEP, stopping=lambda: sums.simulated_s >= enough_s
    ):
        sums.add(verdict)
        if verdict.violations:
            _say_broken(verdict, version, overrides)
    sums.wall_s = time.perf_counter() - began
    summary = {
        "first_seed": seeds.start,
        "last_seed": seeds.start + sums.seeds - 1,
        "commit": version,
        **sums.plain(),
    }
    if record is not None:
        with record.open("a") as file:
            file.write(json.dumps(summary) + "\n")
    if output == "json":
        click.echo(json.dumps(summary))
    else:
        for line in marks.table(sums.counts) if check_marks else counts_table(sums.counts):
            click.echo(line)
        click.echo(sums.line)
    missed = marks.missing(sums.counts) if check_marks else []
    if missed:
        click.echo(f"too tame: {sums.seeds} seeds did not reach {', '.join(missed)}", err=True)
    sys.exit(1 if sums.violations or missed else 0)


def _say_broken(verdict: Verdict, version: str, overrides: dict[str, str]) -> None:
    click.echo(f"seed {verdict.seed} broke {len(verdict.violations)} rules at commit {version}", err=True)
    for violation in verdict.violations[:10]:
        click.echo(f"  {violation}", err=True)
    click.echo(f"  options {verdict.options}", err=True)
    for line in verdict.trace_tail:
        click.echo(f"    {line}", err=True)
    if verdict.kept:
        click.echo(f"  trace and history in {verdict.kept}", err=True)
    click.echo(f"  again: {again(verdict.seed, overrides)}", err=True)
