"""The report of a run as a page that a person can read: one file, nothing from outside."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Final

from tenure_chaos.checkers.rules import TITLES
from tenure_chaos.live import tables
from tenure_chaos.live.run import LiveReport
from tenure_chaos.live.timeline import ROLES, draw

SHOWN_FIRST: Final = 10
SHOWN_MAX: Final = 200
"""Most violations, and most notes, that the page shows; the files have all."""
FEW: Final = 100
"""So many strikes are shown at once."""

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2330; --paper: #fff; --quiet: #667; --line: #d9dce3;
  --leader: #2557a7; --follower: #b9cdea; --candidate: #e8a33d; --down: #555; --starting: #ddd;
  --fault: #c2453b; --silence: #e7b8b4; --ok: #4c9a5f; --refused: #b7c98b; --lost: #c2453b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7ec; --paper: #15181e; --quiet: #99a;
  --line: #333944; --follower: #34496b; --starting: #444; --down: #888; --silence: #5b2f2c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1220px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2em; }
.verdict { font-size: 1.2em; font-weight: 600; } .good { color: var(--ok); } .bad { color: var(--fault); }
table { border-collapse: collapse; } td, th { padding: 0.15em 0.9em 0.15em 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .name { text-anchor: end; } svg .tick { text-anchor: middle; fill: var(--quiet); }
svg .grid { stroke: var(--line); } svg .healed { stroke: var(--ok); stroke-width: 2; stroke-dasharray: 4 3; }
rect.leader, i.leader { fill: var(--leader); background: var(--leader); }
rect.follower, i.follower { fill: var(--follower); background: var(--follower); }
rect.candidate, i.candidate { fill: var(--candidate); background: var(--candidate); }
rect.starting, i.starting { fill: var(--starting); background: var(--starting); }
rect.down, i.down { fill: var(--down); background: var(--down); }
rect.fault { fill: var(--fault); opacity: 0.85; stroke: var(--paper); } rect.silence { fill: var(--silence); }
rect.ok, i.ok { fill: var(--ok); background: var(--ok); }
rect.refused, i.refused { fill: var(--refused); background: var(--refused); }
rect.lost, i.lost { fill: var(--lost); background: var(--lost); }
svg text.on { fill: #fff; } i { display: inline-block; width: 0.9em; height: 0.9em; margin: 0 0.3em 0 1em; }
pre, code { font: 13px/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; }
details { margin-top: 1em; } summary { cursor: pointer; }
"""


def page(report: LiveReport) -> str:
    """The whole page."""
    title = "Tenure under faults" + (f": mutant “{report.options.mutant}”" if report.options.mutant else "")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>",
        _verdict(report),
        _shown(tables.facts(report), numbers=()),
        "<h2>Timeline</h2>",
        "<p>" + "".join(f"<i class={role}></i>{role}" for role in ROLES),
        "<i class=ok></i>answered<i class=refused></i>refused with a reason",
        "<i class=lost></i>no answer, or no leader. At the dashed line everything is mended.",
        "What a shape is stands under the pointer.</p>",
        draw(report),
        "<h2>What each kind of fault cost</h2>",
        _shown(tables.kinds(report)),
        f"<p>{escape(tables.UNAVAILABLE_NOTE)}</p>",
        "<h2>Properties</h2>",
        _table(("", "property", "looked at", "broken", "undecided"), _properties(report)),
        _details("Every strike", _shown(tables.strikes(report)), open_=len(report.struck) <= FEW),
        _details("What happened", _pre(f"{at:8.2f}  {text}" for at, text in report.notes)),
        _details("What the clients did", _table(("", "times"), sorted(report.counts.items()), numbers=(1,))),
        "<h2>Files</h2><p>",
        "<a href=history.jsonl>history.jsonl</a> (<code>tenure-chaos check history.jsonl</code>), ",
        ", ".join(f"<a href={node}/log>log of {node}</a>" for node in report.nodes),
        ", <a href=run.json>run.json</a></p>",
    ]
    return "\n".join(parts)


def _verdict(report: LiveReport) -> str:
    if not report.violations:
        return "<p class='verdict good'>No violation.</p>"
    count, others = len(report.violations), report.violations[SHOWN_FIRST:SHOWN_MAX]
    # What one mistake breaks is often broken hundreds of times; the picture must stay in sight.
    shown = _pre(report.violations[:SHOWN_FIRST])
    shown += _details(f"{len(others)} more", _pre(others)) if others else ""
    rest = f"<p>and {count - SHOWN_MAX} more in run.json</p>" if count > SHOWN_MAX else ""
    return f"<p class='verdict bad'>{count} violations.</p>{shown}{rest}"


def _properties(report: LiveReport) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for number, group in groupby(report.verdicts, key=lambda verdict: verdict.number):
        checks = list(group)
        rows.append(
            (
                number,
                TITLES[number],
                sum(check.looked_at for check in checks),
                sum(len(check.wrongs) for check in checks),
                sum(len(check.undecided) for check in checks),
            )
        )
    return rows


def _shown(table: tables.Table, *, numbers: Sequence[int] | None = None) -> str:
    return _table(table.head, table.rows, numbers=numbers)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] | None = None
) -> str:
    """``numbers``: the columns that are set to the right; by default all but texts."""
    rows = list(rows)
    right = (
        [place for place, cell in enumerate(rows[0]) if not isinstance(cell, str)]
        if numbers is None and rows
        else list(numbers or ())
    )

    def line(cells: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in right else ''}>{escape(tables.said(cell))}</{tag}>"
            for place, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(head, 'th')}</tr>{body}</table>"


def _pre(lines: Iterable[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _details(summary: str, body: str, *, open_: bool = False) -> str:
    return f"<details{' open' if open_ else ''}><summary>{escape(summary)}</summary>{body}</details>"
