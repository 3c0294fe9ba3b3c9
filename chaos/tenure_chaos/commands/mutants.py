"""``tenure-chaos mutants``: does the harness notice what it should?"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from tenure_chaos.commands.options import option_option
from tenure_chaos.mutants.catalogue import BY_NAME, MUTANTS
from tenure_chaos.mutants.hunt import Catch, Hunt, hunt_all
from tenure_chaos.mutants.report import summary, table, write_between
from tenure_chaos.report import commit

README = Path(__file__).resolve().parents[2] / "README.md"

START_GAP = 10_000
"""Between the first seeds of two hunts of one mutant."""


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Hunt only this mutant. Repeatable.")
@click.option("--seeds-max", default=500, show_default=True, help="Seeds after which a hunt is given up.")
@click.option("--repeat", default=5, show_default=True, help="Hunts of each mutant, each with its own seeds.")
@click.option("--first-seed", default=1, show_default=True, help="Where the first hunt begins.")
@click.option("--profile", is_flag=True, help="Draw the options that the mutant names, where it names some.")
@option_option
@click.option("--jobs", default=1, show_default=True, help="Hunts at a time.")
@click.option("--list", "only_list", is_flag=True, help="Say which mutants there are.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each hunt as a line of JSON, and do not repeat those that are there.",
)
@click.option("--write-readme", is_flag=True, help="Put the table into chaos/README.md.")
def mutants(
    only: tuple[str, ...],
    seeds_max: int,
    repeat: int,
    first_seed: int,
    profile: bool,
    overrides: dict[str, str],
    jobs: int,
    only_list: bool,
    record: Path | None,
    write_readme: bool,
) -> None:
    """Break one promise on purpose, and run seed after seed until a rule is broken. Exit code 1 if a mutant
    was not caught.
    """
    if unknown := [name for name in only if name not in BY_NAME]:
        raise click.BadParameter(f"there is no mutant {unknown[0]!r}; see --list", param_hint="--only")
    chosen = [mutant for mutant in MUTANTS if not only or mutant.name in only]
    if only_list:
        for mutant in chosen:
            click.echo(f"{mutant.name}: {mutant.what}")
        return
    hunts = [
        Hunt(
            mutant.name,
            first_seed + START_GAP * number,
            seeds_max,
            {**(mutant.profile if profile else {}), **overrides},
        )
        for mutant in chosen
        for number in range(repeat)
    ]
    catches: list[Catch] = list(_recorded(record)) if record is not None else []
    done = {(catch.name, catch.first_seed) for catch in catches}
    for catch in hunt_all([hunt for hunt in hunts if (hunt.name, hunt.first_seed) not in done], jobs):
        catches.append(catch)
        _say(catch)
        if record is not None:
            with record.open("a") as file:
                file.write(json.dumps(asdict(catch)) + "\n")
    wanted = {(hunt.name, hunt.first_seed) for hunt in hunts}
    catches = [catch for catch in catches if (catch.name, catch.first_seed) in wanted]
    click.echo()
    click.echo(table(catches))
    click.echo()
    click.echo(summary(catches))
    if write_readme:
        said = f"{summary(catches)} At commit {commit()}.\n\n{table(catches)}"
        write_between(README, "mutants", said)
    sys.exit(0 if all(catch.caught for catch in catches) else 1)


def _recorded(record: Path) -> Iterator[Catch]:
    if record.exists():
        for line in record.read_text().splitlines():
            yield Catch.from_plain(json.loads(line))


def _say(catch: Catch) -> None:
    how = f"caught by seed {catch.seed} ({catch.rules[0]})" if catch.caught else "NOT CAUGHT"
    click.echo(f"{catch.name}: {how}, {catch.seeds} seeds from {catch.first_seed} on")
    if not any(catch.entered.values()):
        click.echo("  what it changes was never entered", err=True)
    for failure in catch.failed[:1]:
        click.echo(f"  the harness failed {len(catch.failed)} times, first {failure}", err=True)
