"""A run in tables: what it was, what each kind of fault cost, every strike; as rows and as Markdown."""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tenure_chaos.live.analysis import costs, leader_changes, outcomes, silences, sums
from tenure_chaos.live.run import LiveReport

Row = tuple[object, ...]

UNAVAILABLE_NOTE: Final = (
    "No answer: stretches of more than a second in which the log answered nobody, from the beginning of the "
    "fault until work went on. Faults that overlap share them. Recovery: from its end to the next answer."
)


class Table(NamedTuple):
    """Its head and its rows."""

    head: Sequence[str]
    rows: Sequence[Row]


def facts(report: LiveReport) -> Table:
    """What was run, and what it came to as a whole."""
    history, options = report.history, report.options
    ended, quiet = outcomes(history), silences(history)
    by_outcome = ", ".join(f"{ended[kind]:,} {kind}" for kind in sorted(ended))
    rows: list[Row] = [
        (
            "cluster",
            f"{options.nodes} nodes, {options.clients} client processes of {options.programs} programs, "
            f"{options.keys} keys",
        ),
        ("run", f"{report.title}, seed {options.seed}, {history.duration_s:.0f} s"),
        ("connections through", report.proxies),
        ("machine", machine()),
        ("calls", f"{len(history.calls):,}: {by_outcome}"),
        ("log", f"{len(history.effects):,} commands applied"),
        ("faults", f"{len(history.faults)} strikes"),
        ("changes of leader", leader_changes(history)),
        ("without any answer", f"{sum(span.seconds for span in quiet):.1f} s in {len(quiet)} stretches"),
        (
            "snapshots seen",
            ", ".join(f"{node} {n}" for node, n in sorted(report.snapshots.items())) or "none",
        ),
        ("violations", len(report.violations)),
    ]
    return Table(("", ""), rows)


def kinds(report: LiveReport) -> Table:
    """What each kind of fault cost."""
    history = report.history
    return Table(
        ("fault", "strikes", "on, s", "no answer, s", "worst recovery, s"),
        [
            (each.name, each.strikes, each.on_s, each.silent_s, each.worst_recovery_s)
            for each in sums(costs(history), history.duration_s)
        ],
    )


def strikes(report: LiveReport) -> Table:
    """Every strike, what was seen of it, and what it cost. Whose a violation is can't be told by its time, so
    it is the run's: each strike has none if the run has none."""
    broken = "0" if not report.violations else "see the run"
    return Table(
        ("fault", "who", "from, s", "on, s", "effect seen", "no answer, s", "recovery, s", "violations"),
        [
            (
                cost.fault.name,
                cost.fault.target,
                cost.fault.began_at,
                min(cost.fault.ended_at, report.history.duration_s) - cost.fault.began_at,
                "; ".join(effects) or "none outside",
                cost.silent_s,
                cost.recovered_s,
                broken,
            )
            for cost, effects in ((each.cost, each.effects) for each in report.struck)
        ],
    )


def said(cell: object) -> str:
    """One cell as text."""
    if isinstance(cell, float):
        return f"{cell:.1f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "" if cell is None else str(cell)


def markdown(table: Table) -> str:
    """One table; numbers are set to the right."""
    first = table.rows[0] if table.rows else ()
    rules = ["--:" if isinstance(cell, int | float) else "---" for cell in first] or ["---"] * len(table.head)
    return "\n".join(_line(row) for row in (table.head, rules, *table.rows))


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(said(cell).replace("|", "\\|") for cell in cells) + " |"


def text(report: LiveReport) -> str:
    """All of it as Markdown."""
    parts = (
        f"# {report.title}",
        markdown(facts(report)),
        "## What each kind of fault cost",
        markdown(kinds(report)),
        UNAVAILABLE_NOTE,
        "## Every strike",
        markdown(strikes(report)),
    )
    return "\n\n".join(parts) + "\n"


def machine() -> str:
    """What this ran on."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    busy = os.getloadavg()[1]
    return (
        f"{os.cpu_count()} CPUs ({model}), {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}, load average {busy:.1f} at the end"
    )
