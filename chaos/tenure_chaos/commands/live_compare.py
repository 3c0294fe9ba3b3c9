"""``tenure-chaos compare``: Tenure and etcd's lock under the same faults, side by side."""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tenure_chaos.commands.told import run_until_told
from tenure_chaos.live.compare import table
from tenure_chaos.live.compare.run import compare_one
from tenure_chaos.live.compare.targets import NoTarget, etcd_program
from tenure_chaos.live.proxies.serving import Choice, NoServer
from tenure_chaos.live.proxies.toxiproxy import ServerStuck

FOLDER = Path(".tenure-chaos")


@click.command()
@click.option(
    "--target",
    "targets",
    type=click.Choice(["tenure", "etcd"]),
    multiple=True,
    default=("tenure", "etcd"),
    show_default=True,
    help="Can be given again.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="About 45 s each for each system.",
)
@click.option("--proxies", type=click.Choice(["any", "real", "standin"]), default="any", show_default=True)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="The folder for the table and the logs."
)
def compare(targets: Sequence[str], rounds: int, proxies: Choice, out: Path | None) -> None:
    """Have holders of one lock paused, cut off and killed, and leaders killed; put what came out side by
    side. etcd's server must be on PATH (Debian: etcd-server)."""
    directory = (out or FOLDER / f"compare-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    logging.disable(logging.CRITICAL)
    try:
        if directory.exists() and any(directory.iterdir()):
            raise NoTarget(f"{directory} is not empty: name another folder by --out")
        if "etcd" in targets:
            etcd_program()  # before minutes are spent on the other one
        directory.mkdir(parents=True, exist_ok=True)
        results = [
            run_until_told(compare_one(target, directory, rounds=rounds, proxies=proxies, say=click.echo))
            for target in targets
        ]
    except (NoTarget, NoServer, ServerStuck, TimeoutError) as error:
        click.echo(f"tenure-chaos compare: {error}", err=True)
        sys.exit(2)
    click.echo(table.text(results))
    click.echo(f"report: {table.write(results, directory)}")
