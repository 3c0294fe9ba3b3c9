"""``tenure-chaos reproduce``: one seed again, line by line; or a live scenario; or a live run."""

import sys

import click

from tenure_chaos.commands.live import again
from tenure_chaos.commands.options import option_option
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed


@click.command()
@click.argument("what", metavar="SEED|NAME|FOLDER")
@option_option
@click.option("--trace/--no-trace", default=True, help="Print what happened, line by line.")
def reproduce(what: str, overrides: dict[str, str], trace: bool) -> None:
    """Run one seed again and print its trace; or a live scenario by its NAME; or strike again at the times
    of the live run that left FOLDER. Exit code 1 if a rule is broken.
    """
    if not what.isdecimal():
        if overrides:
            raise click.UsageError("--option is for a seed; a live run has its options in its scenario")
        again(what)
        return
    seed = int(what)
    report = run_seed(seed, Options.for_seed(seed, overrides))
    if trace:
        for line in report.trace:
            click.echo(line)
    click.echo(f"options {report.options}")
    click.echo(f"trace {report.trace_hash}")
    for violation in report.violations:
        click.echo(f"broken: {violation}")
    sys.exit(1 if report.violations else 0)
