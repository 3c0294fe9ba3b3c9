"""``tenure-chaos check``: a recorded history, property by property."""

import json
import sys
from itertools import groupby
from pathlib import Path

import click

from tenure_chaos.checkers.rules import TITLES, Unjudgeable, Verdict, judge
from tenure_chaos.history import History
from tenure_chaos.history_file import Unreadable

SHOWN_MAX = 20
"""Most things that are wrong with one property that are printed."""

UNCHECKED = "unchecked: nothing of the kind"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="One line for each check, not only for each property.")
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(file: Path, verbose: bool, output: str) -> None:
    """Check a recorded history, and say of every property how many things were looked at.

    Exit code 1 if a property is broken, 2 if the file is not a history.
    """
    try:
        verdicts = judge(History.load(file))
    except (Unreadable, Unjudgeable) as error:
        where = "" if isinstance(error, Unreadable) else f"{file}: "
        click.echo(f"tenure-chaos check: {where}{error}", err=True)
        sys.exit(2)
    if output == "json":
        click.echo(json.dumps([_plain(verdict) for verdict in verdicts]))
    else:
        _say(verdicts, verbose)
    sys.exit(1 if any(verdict.wrongs for verdict in verdicts) else 0)


def _plain(verdict: Verdict) -> dict[str, object]:
    return {
        "property": verdict.number,
        "check": verdict.name,
        "looked_at": verdict.looked_at,
        "wrong": [wrong.what for wrong in verdict.wrongs],
        "undecided": list(verdict.undecided),
    }


def _say(verdicts: list[Verdict], verbose: bool) -> None:
    for number, group in groupby(verdicts, key=lambda verdict: verdict.number):
        checks = list(group)
        click.echo(f"{number:>2}  {TITLES[number]}: {_state(checks)}")
        for verdict in checks:
            if verbose or verdict.wrongs or verdict.undecided:
                click.echo(f"      {verdict.title}: {_state([verdict])}")
            for wrong in verdict.wrongs[:SHOWN_MAX]:
                click.echo(f"        {wrong.what}")
            if len(verdict.wrongs) > SHOWN_MAX:
                click.echo(f"        and {len(verdict.wrongs) - SHOWN_MAX} more")
            for what in verdict.undecided:
                click.echo(f"        undecided: {what}")


def _state(verdicts: list[Verdict]) -> str:
    looked_at = sum(verdict.looked_at for verdict in verdicts)
    wrongs = sum(len(verdict.wrongs) for verdict in verdicts)
    undecided = sum(len(verdict.undecided) for verdict in verdicts)
    if wrongs:
        state = f"BROKEN {wrongs} times, {looked_at:,} looked at"
    elif looked_at:
        state = f"holds, {looked_at:,} looked at"
    else:
        state = UNCHECKED if not undecided else "unchecked"
    return f"{state}, {undecided} undecided" if undecided else state
