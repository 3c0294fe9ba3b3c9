"""What a live run leaves: a folder with the history, the nodes' logs and data, the page, and run.json."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tenure_chaos.live import tables
from tenure_chaos.live.analysis import costs, leader_changes, outcomes, silences, sums
from tenure_chaos.live.page import page
from tenure_chaos.live.run import LiveReport
from tenure_chaos.live.scenarios import NoScenario, Scenario, Strike, read_options

PAGE: Final = "report.html"
RUN: Final = "run.json"
TEXT: Final = "report.md"


def summary(report: LiveReport) -> dict[str, Any]:
    """What run.json says: enough to strike again at the same times."""
    history = report.history
    return {
        "title": report.title,
        "options": asdict(report.options),
        "proxies": report.proxies,
        "real_proxies": report.real_proxies,
        "duration_s": round(history.duration_s, 3),
        "calls": len(history.calls),
        "outcomes": dict(outcomes(history)),
        "commands": len(history.effects),
        "leader_changes": leader_changes(history),
        "silent_s": round(sum(span.seconds for span in silences(history)), 3),
        "strikes": [
            {
                "fault": cost.fault.name,
                "target": cost.fault.target,
                "began_at": round(cost.fault.began_at, 3),
                "ended_at": round(min(cost.fault.ended_at, history.duration_s), 3),
                "silent_s": round(cost.silent_s, 3),
                "recovered_s": cost.recovered_s,
                "effects": effects,
            }
            for cost, effects in ((each.cost, each.effects) for each in report.struck)
        ],
        "by_fault": [asdict(each) for each in sums(costs(history), history.duration_s)],
        "work_began_at": round(report.work_began_at, 3),
        "worked_s": round(min(history.healed_at, history.duration_s) - report.work_began_at, 3),
        "properties": [
            {
                "property": verdict.number,
                "check": verdict.name,
                "looked_at": verdict.looked_at,
                "wrong": len(verdict.wrongs),
                "undecided": len(verdict.undecided),
            }
            for verdict in report.verdicts
        ],
        "violations": report.violations,
        "endings": report.endings,
    }


def write(report: LiveReport) -> Path:
    """Write the page, its tables as text, and run.json beside the rest; returns the path of the page."""
    (report.directory / RUN).write_text(json.dumps(summary(report), indent=1) + "\n", encoding="utf-8")
    (report.directory / TEXT).write_text(tables.text(report), encoding="utf-8")
    path = report.directory / PAGE
    path.write_text(page(report), encoding="utf-8")
    return path


def scenario_of(directory: Path) -> Scenario:
    """What happened in a run, as a scenario: the same strikes at the same times. Raises NoScenario."""
    path = directory / RUN
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        strikes = tuple(
            Strike(
                strike["fault"],
                # One that came with the end comes again a little before it.
                max(0.0, min(strike["began_at"] - said["work_began_at"], said["worked_s"] - 0.01)),
                strike["ended_at"] - strike["began_at"],
            )
            for strike in said["strikes"]
        )
        options = {**said["options"], "seconds": said["worked_s"]}
        read_options(options)
        return Scenario(f"{said['title']}, again", strikes, (), options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoScenario(f"{path} is not of a run: {type(error).__name__}: {error}") from error
