"""``tenure-chaos reproduce``: one seed again, line by line."""

import sys

import click

from tenure_chaos.commands.options import option_option
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed


@click.command()
@click.argument("seed", type=int)
@option_option
@click.option("--trace/--no-trace", default=True, help="Print what happened, line by line.")
def reproduce(seed: int, overrides: dict[str, str], trace: bool) -> None:
    """Run one seed again and print its trace. Exit code 1 if a rule is broken."""
    report = run_seed(seed, Options.for_seed(seed, overrides))
    if trace:
        for line in report.trace:
            click.echo(line)
    click.echo(f"options {report.options}")
    click.echo(f"trace {report.trace_hash}")
    for violation in report.violations:
        click.echo(f"broken: {violation}")
    sys.exit(1 if report.violations else 0)
