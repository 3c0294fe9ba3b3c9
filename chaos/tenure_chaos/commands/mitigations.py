"""``tenure-chaos mitigations``: what does each of them prevent?"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from tenure_chaos.mutants.mitigations import ALL, BY_NAME
from tenure_chaos.mutants.report import mitigations_table, write_between
from tenure_chaos.mutants.survey import Survey, survey
from tenure_chaos.report import commit

README = Path(__file__).resolve().parents[2] / "README.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Leave out only this one. Repeatable.")
@click.option("--seeds", default=500, show_default=True, help="Seeds of each.")
@click.option("--first-seed", default=1, show_default=True)
@click.option("--broken-max", default=5, show_default=True, help="Stop when so many seeds broke a rule.")
@click.option("--jobs", default=1, show_default=True, help="Processes to run at a time.")
@click.option("--list", "only_list", is_flag=True, help="Say which there are.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each result as a line of JSON, and do not repeat those that are there.",
)
@click.option("--write-readme", is_flag=True, help="Put the table into chaos/README.md.")
def mitigations(
    only: tuple[str, ...],
    seeds: int,
    first_seed: int,
    broken_max: int,
    jobs: int,
    only_list: bool,
    record: Path | None,
    write_readme: bool,
) -> None:
    """Leave out one thing that closes a defect of PySyncObj, run seed after seed, and say what breaks."""
    if unknown := [name for name in only if name not in BY_NAME]:
        raise click.BadParameter(f"there is no mitigation {unknown[0]!r}; see --list", param_hint="--only")
    chosen = [off for off in ALL if not only or off.name in only]
    if only_list:
        for off in chosen:
            click.echo(f"{off.name} ({off.closes}): without it, {off.what}")
        return
    known = {found.name: found for found in _recorded(record)} if record is not None else {}
    surveys: list[Survey] = []
    for off in chosen:
        found = known.get(off.name)
        if found is None:
            found = survey(off.name, first_seed, seeds, broken_max=broken_max, jobs=jobs)
            _say(found)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
        surveys.append(found)
    click.echo()
    click.echo(mitigations_table(surveys))
    if write_readme:
        said = f"At commit {commit()}.\n\n{mitigations_table(surveys)}"
        write_between(README, "mitigations", said)


def _recorded(record: Path) -> Iterator[Survey]:
    """The last word on each comes last."""
    if record.exists():
        for line in record.read_text().splitlines():
            yield Survey.from_plain(json.loads(line))


def _say(found: Survey) -> None:
    without, with_it = found.without, found.with_it
    first = f", first {found.broken[0]}" if found.broken else ""
    click.echo(f"{found.name}: {without.seeds} seeds without it, {len(found.broken)} broke a rule{first}")
    if BY_NAME[found.name].disturbs:
        click.echo(
            f"  elections an hour {without.elections_an_hour:.0f}, with it {with_it.elections_an_hour:.0f}; "
            f"calls without an answer {without.unanswered_share:.1%}, with it {with_it.unanswered_share:.1%}"
        )
    for which, sums in (("without", without), ("with", with_it)):
        for failure in sums.failed[:1]:
            click.echo(f"  {which} it the harness failed {len(sums.failed)} times, first {failure}", err=True)
    for seed, rules in with_it.broken[:1]:
        click.echo(f"  with it seed {seed} broke a rule too: {rules[0]}", err=True)
