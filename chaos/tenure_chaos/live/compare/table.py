"""Two systems side by side, as a table for a terminal, a page and a file."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from statistics import median
from typing import Final

from tenure_chaos.live import tables
from tenure_chaos.live.compare.run import TTL_S, Result
from tenure_chaos.live.tables import machine

PAGE: Final = "compare.html"
DATA: Final = "compare.json"
TEXT: Final = "compare.md"

NOTES: Final = (
    f"TTL {TTL_S:.0f} s. Three holders write to a register under one lock; it has a guard that knows fencing "
    "tokens, and a twin that takes every write.",
    "Each round: the holder is paused, then cut off, each for longer than the TTL; killed; killed together "
    "with the leader; then the leader alone is killed.",
    "Takeover counts from the death of the holder. Unavailable is the longest time without a fresh lock "
    "granted around the kill of the leader, by a client that asks one node after another, up to 3 s each.",
    "etcd is driven over its JSON gateway by a session as its Go client has one; the token is the revision "
    "of the lock's key, which etcd offers and leaves to its users to check.",
)


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """What was measured, and a cell for each system."""

    def row(what: str, cells: Sequence[object]) -> tuple[str, ...]:
        return (what, *(str(cell) for cell in cells))

    return [
        row("", [result.what for result in results]),
        row("rounds of faults", [result.rounds for result in results]),
        row("times held / writes", [f"{result.holds} / {result.writes}" for result in results]),
        row("updates lost at the unguarded register", [result.lost_unguarded for result in results]),
        row("updates lost at the guarded register", [result.lost_guarded for result in results]),
        row("late writes that the guard refused", [result.refused_guarded for result in results]),
        *(
            row(f"two believers, {fault}, s", [_each(r.believed_s.get(fault, ())) for r in results])
            for fault in ("holder cut off", "holder paused")
        ),
        row("takeover after the holder's death, s", [_each(result.takeover_s) for result in results]),
        row(
            "takeover after the death of holder and leader, s",
            [_each(result.takeover_with_leader_s) for result in results],
        ),
        row("unavailable after the leader's death, s", [_each(result.unavailable_s) for result in results]),
    ]


def _each(values: Sequence[float]) -> str:
    """The median, and the greatest."""
    if not values:
        return "not measured"
    return f"{median(values):.2f} (max {max(values):.2f})"


def text(results: Sequence[Result]) -> str:
    """For a terminal."""
    table = rows(results)
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table)
    return "\n".join(line.rstrip() for line in lines)


def markdown(results: Sequence[Result]) -> str:
    """With what it ran on, and how it is meant."""
    head, *body = rows(results)
    notes = [f"On {machine()}; through {results[0].proxies}.", *NOTES]
    return (
        tables.markdown(tables.Table(head, body)) + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
    )


def page(results: Sequence[Result]) -> str:
    """One file, nothing from outside."""
    head, *body = rows(results)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in body)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Two locks under the same faults</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{padding:.2em 1.5em .2em 0;text-align:left;"
        "border-bottom:1px solid #ccc}</style><h1>Two locks under the same faults</h1><table><tr>"
        + "".join(f"<th>{escape(cell)}</th>" for cell in head)
        + f"</tr>{lines}</table><ul>"
        + "".join(f"<li>{escape(note)}</li>" for note in NOTES)
        + "</ul>\n"
    )


def write(results: Sequence[Result], directory: Path) -> Path:
    """All three files; returns the page's path."""
    (directory / TEXT).write_text(markdown(results), encoding="utf-8")
    (directory / DATA).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    path = directory / PAGE
    path.write_text(page(results), encoding="utf-8")
    return path
