"""``tenure-chaos campaign``: seed after seed until so many hours, with a record that survives restarts."""

import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click

from tenure_chaos import marks
from tenure_chaos.batch import run_on, workers
from tenure_chaos.commands.options import KEEP, again, option_option
from tenure_chaos.report import Tally, commit, counts_table, in_brief, read_record, total

TABLES = (
    ("faults", "fault "),
    ("work", "work "),
    ("calls", "call "),
    ("events", "event "),
    ("results", "result "),
    ("things looked at, by property", "checked for property "),
    ("things not decided within the search's bounds, by property", "unchecked for property "),
)


@click.command()
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), required=True, help="JSON lines.")
@click.option("--hours", type=float, default=1000.0, show_default=True, help="Simulated hours in all.")
@click.option("--jobs", default=1, show_default=True, help="Processes to run at a time.")
@click.option("--first-seed", default=1, show_default=True, help="Where a new record begins.")
@click.option("--chunk", default=50, show_default=True, help="Seeds in a line of the record.")
@option_option
@click.option("--report", "only_report", is_flag=True, help="Sum up the record instead of going on with it.")
def campaign(
    record: Path,
    hours: float,
    jobs: int,
    first_seed: int,
    chunk: int,
    overrides: dict[str, str],
    only_report: bool,
) -> None:
    """Simulate seed after seed until so many hours are recorded. Exit code 1 if a rule was broken.

    A chunk of seeds becomes a line of the record when it is finished. Started again with the same record it
    goes on behind the last seed there. At SIGTERM or Ctrl-C it finishes the seeds under way and records
    them.
    """
    chunks = read_record(record)
    if only_report:
        _say(record, chunks)
        return
    sums = total(chunks)
    seed = chunks[-1]["last_seed"] + 1 if chunks else first_seed
    stop = _Stop()
    version = commit()
    record.parent.mkdir(parents=True, exist_ok=True)
    _cut_unfinished_line(record)
    with record.open("a") as file, workers(jobs) as pool:
        while sums.simulated_s < hours * 3600 and not stop.asked:
            began = time.perf_counter()
            part = Tally()
            for verdict in run_on(
                pool,
                range(seed, seed + chunk),
                jobs=jobs,
                overrides=overrides,
                keep=KEEP,
                stopping=lambda: stop.asked,
            ):
                part.add(verdict)
                for violation in verdict.violations[:1]:
                    click.echo(
                        f"seed {verdict.seed}: {violation}; again: {again(verdict.seed, overrides)}", err=True
                    )
            if not part.seeds:
                break
            part.wall_s = time.perf_counter() - began
            line = {
                "first_seed": seed,
                "last_seed": seed + part.seeds - 1,
                "commit": version,
                "jobs": jobs,
                "set": overrides,
                "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
                **part.plain(),
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            seed += part.seeds
            sums.include(part.plain())
            click.echo(sums.line)
    sys.exit(1 if sums.violations else 0)


class _Stop:
    """Whether somebody has asked this process to end."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def _cut_unfinished_line(record: Path) -> None:
    """A process that was killed while it wrote has left half a line."""
    if record.exists() and (data := record.read_bytes()) and not data.endswith(b"\n"):
        record.write_bytes(data[: data.rfind(b"\n") + 1])


def _say(record: Path, chunks: list[dict[str, object]]) -> None:
    sums = total(chunks)
    if not chunks:
        click.echo(f"{record} is empty")
        return
    commits = ", ".join(dict.fromkeys(str(chunk["commit"]) for chunk in chunks))
    click.echo(
        f"seeds {chunks[0]['first_seed']} to {chunks[-1]['last_seed']}, commits {commits}\n{sums.line}\n"
    )
    for name, value in in_brief(sums):
        click.echo(f"{value:>12}  {name}")
    shown: set[str] = set()
    for title, prefix in TABLES:
        rows = {name: number for name, number in sums.counts.items() if name.startswith(prefix)}
        shown |= rows.keys()
        _table(title, rows, prefix)
    _table("others", {name: number for name, number in sums.counts.items() if name not in shown})
    if missed := marks.missing(sums.counts):
        click.echo(f"\nnot reached: {', '.join(missed)}")
    for broken in sums.violations:
        click.echo(f"\nseed {broken['seed']} broke")
        for rule in broken["rules"]:
            click.echo(f"  {rule}")


def _table(title: str, counts: dict[str, int], prefix: str = "") -> None:
    if counts:
        click.echo(f"\n{title}")
        for row in counts_table(counts, prefix):
            click.echo(row)
