"""``tenure-chaos live``: a cluster of real processes, real faults, real clients; and a report."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

import click

from tenure_chaos.commands.told import run_until_told
from tenure_chaos.live import folder, scenarios, tables
from tenure_chaos.live.faults import BY_NAME, KINDS
from tenure_chaos.live.namespaces import NoNamespaces
from tenure_chaos.live.options import NODES
from tenure_chaos.live.proxies.serving import NoServer
from tenure_chaos.live.proxies.toxiproxy import ServerStuck
from tenure_chaos.live.run import LiveReport, run
from tenure_chaos.live.scenarios import NoScenario, Scenario
from tenure_chaos.live.work.processes import ClientFailed
from tenure_chaos.mutants.catalogue import BY_NAME as MUTANTS

FOLDER = Path(".tenure-chaos")
SHOWN_MAX = 20

CANNOT = (NoScenario, NoServer, NoNamespaces, ClientFailed, ServerStuck, TimeoutError)
"""Why a run could not be made."""


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="Say which scenarios and faults there are.")
@click.option("--nodes", type=click.Choice([str(count) for count in NODES]), help="[default: 3]")
@click.option("--clients", type=click.IntRange(1, 50), help="Client processes. [default: 3]")
@click.option("--programs", type=click.IntRange(1, 100), help="Programs of each of them. [default: 6]")
@click.option("--keys", type=click.IntRange(1, 1_000), help="Keys that all programs share. [default: 6]")
@click.option("--seconds", type=click.FloatRange(1.0), help="How long faults strike. [default: 40]")
@click.option("--seed", type=int, help="Of the schedule. [default: 1]")
@click.option("--fault", "faults", multiple=True, help="Only this one, at random; can be given again.")
@click.option("--once", help="Only this fault, at a fixed time, twice; for what it does by itself.")
@click.option("--each", is_flag=True, help="Every fault once, one after the other (five minutes).")
@click.option("--gap", "gap_s", type=click.FloatRange(0.05), help="Mean seconds between faults. [default: 3]")
@click.option("--proxies", type=click.Choice(["any", "real", "standin"]), help="Toxiproxy, or the stand-in.")
@click.option("--network", type=click.Choice(["proxies", "netns"]), help="What lines are cut by.")
@click.option("--mutant", help="Break a promise in the nodes' code: see tenure-chaos mutants --list.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="The report's folder.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def live(
    scenario: str | None,
    listing: bool,
    faults: tuple[str, ...],
    once: str | None,
    each: bool,
    out: Path | None,
    quiet: bool,
    **given: Any,
) -> None:
    """Run a cluster of real processes under real faults, check everything, and write a report.

    SCENARIO is a name (--list) or the path of a TOML file; without one, all faults strike at random. Exit
    code 1 if a promise was broken, 2 if the run could not be made.
    """
    if listing:
        _list()
        return
    ways = {"SCENARIO": scenario, "--fault": faults, "--once": once, "--each": each}
    if len(said := [name for name, value in ways.items() if value]) > 1:
        raise click.UsageError(f"{' and '.join(said)}: each says which faults strike; give one of them")
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("network") == "netns" and "proxies" in chosen:
        raise click.UsageError("--proxies is of no use with --network netns, which has none")
    if "nodes" in chosen:
        chosen["nodes"] = int(chosen["nodes"])
    try:
        for name in (*faults, *([once] if once else [])):
            if name not in BY_NAME:
                raise NoScenario(f"there is no fault {name!r}; there are: {', '.join(BY_NAME)}")
        perform(_chosen(scenario, faults, once, each), chosen, out, quiet)
    except CANNOT as error:
        click.echo(f"tenure-chaos live: {error}", err=True)
        sys.exit(2)


def _chosen(scenario: str | None, faults: tuple[str, ...], once: str | None, each: bool) -> Scenario:
    if each:
        return scenarios.each()
    if once:
        return scenarios.singly(once, sum(BY_NAME[once].lasts_s) / 2)
    if scenario is not None:
        return scenarios.load(scenario)
    if faults:
        return Scenario(", ".join(faults), faults=faults)
    return scenarios.everything(40.0)


def perform(scenario: Scenario, given: dict[str, Any], out: Path | None, quiet: bool) -> None:
    """Run it, write the report, say what it came to, and exit."""
    options = scenario.with_options(given)
    if options.mutant not in ("", *MUTANTS):
        raise NoScenario(f"there is no mutant {options.mutant!r}; there are: {', '.join(MUTANTS)}")
    if "gap_s" in given and not scenario.faults:
        raise NoScenario("--gap is of no use: nothing strikes at random here")
    directory = (out or FOLDER / f"live-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    if directory.exists() and any(directory.iterdir()):
        raise NoScenario(f"{directory} is not empty: name another folder by --out")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoScenario(f"{directory} can't be made ({error.strerror}): name another by --out") from error
    # What the bench itself hears from its connections is of no interest: the history has it.
    logging.disable(logging.CRITICAL)
    say = (lambda text: None) if quiet else click.echo
    report = run_until_told(run(options, directory, scenario.run, title=scenario.title, say=say))
    page = folder.write(report)
    if not quiet:
        singly = len(report.struck) <= len(KINDS)
        click.echo(tables.markdown((tables.strikes if singly else tables.kinds)(report)))
    _say(report)
    click.echo(f"report: {page}")
    sys.exit(1 if report.violations else 0)


def again(what: str) -> None:
    """A scenario by its name, or what happened in the run that left a folder. Exits."""
    try:
        path = Path(what)
        perform(folder.scenario_of(path) if path.is_dir() else scenarios.load(what), {}, None, quiet=False)
    except CANNOT as error:
        click.echo(f"tenure-chaos reproduce: {error}", err=True)
        sys.exit(2)


def _say(report: LiveReport) -> None:
    said = folder.summary(report)
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(said["outcomes"].items()))
    click.echo(f"{said['calls']:,} calls ({ended}), {len(said['strikes'])} strikes, ", nl=False)
    click.echo(f"{said['leader_changes']} changes of leader, {said['silent_s']:.1f} s without an answer")
    for violation in report.violations[:SHOWN_MAX]:
        click.echo(f"VIOLATION {violation}")
    if len(report.violations) > SHOWN_MAX:
        click.echo(f"and {len(report.violations) - SHOWN_MAX} more")
    undecided = sum(len(verdict.undecided) for verdict in report.verdicts)
    click.echo(
        f"{len(report.violations)} violations, {sum(verdict.looked_at for verdict in report.verdicts):,} "
        f"things looked at, {undecided} undecided"
    )


def _list() -> None:
    click.echo("scenarios:")
    for name in scenarios.names():
        click.echo(f"  {name:20}  {scenarios.load(name).title}")
    click.echo("faults:")
    for kind in KINDS:
        click.echo(f"  {kind.name:20}  {kind.what}")
