"""What a batch or a campaign came to: sums, and the tables that show them."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure_chaos.batch import Verdict

SOURCES = ("chaos", "client", "cluster")


@dataclass
class Tally:
    """The sum over seeds."""

    seeds: int = 0
    simulated_s: float = 0.0
    safety_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)
    """One for each seed that broke a rule: seed, rules, kept."""

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.simulated_s += verdict.simulated_s
        self.safety_s += verdict.safety_s
        self.cpu_s += verdict.cpu_s
        self.counts.update(verdict.counts)
        if verdict.violations:
            self.violations.append(
                {"seed": verdict.seed, "rules": verdict.violations[:20], "kept": verdict.kept}
            )

    def plain(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "simulated_s": round(self.simulated_s, 3),
            "safety_s": round(self.safety_s, 3),
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "counts": dict(sorted(self.counts.items())),
            "violations": self.violations,
        }

    def include(self, plain: dict[str, Any]) -> None:
        """Add what ``plain`` has given."""
        self.seeds += plain["seeds"]
        self.simulated_s += plain["simulated_s"]
        self.safety_s += plain["safety_s"]
        self.wall_s += plain["wall_s"]
        self.cpu_s += plain["cpu_s"]
        self.counts.update(plain["counts"])
        self.violations += plain["violations"]

    @property
    def line(self) -> str:
        """In one line."""
        hours = self.simulated_s / 3600
        speed = self.simulated_s / self.wall_s if self.wall_s else 0.0
        per_core = self.simulated_s / self.cpu_s if self.cpu_s else 0.0
        return (
            f"{self.seeds} seeds, {hours:.2f} simulated cluster-hours in {_duration(self.wall_s)} "
            f"of wall time ({speed:.0f} x, {per_core:.0f} x a core), {len(self.violations)} broke a rule"
        )


def counts_table(counts: Mapping[str, int], prefix: str = "") -> list[str]:
    """The counts whose names begin with ``prefix``, by name without it."""
    return [
        f"{number:>12,}  {name.removeprefix(prefix)}"
        for name, number in sorted(counts.items())
        if name.startswith(prefix)
    ]


def in_brief(tally: Tally) -> list[tuple[str, str]]:
    """What people ask first: names and values."""
    counts = tally.counts
    faults = sum(number for name, number in counts.items() if name.startswith("fault "))
    undecided = sum(number for name, number in counts.items() if name.startswith("unchecked for property "))
    return [
        ("simulated cluster-hours", f"{tally.simulated_s / 3600:,.1f}"),
        ("of them under faults", f"{tally.safety_s / 3600:,.1f}"),
        *(
            (f"of {name.removeprefix(SECONDS_OF)}", f"{number / 3600:,.1f}")
            for name, number in sorted(counts.items())
            if name.startswith(SECONDS_OF)
        ),
        ("hours of wall time", f"{tally.wall_s / 3600:,.1f}"),
        ("hours of CPU time", f"{tally.cpu_s / 3600:,.1f}"),
        ("faults", f"{faults:,}"),
        *((title, f"{counts[name]:,}") for title, name in IN_BRIEF),
        ("keys whose order the search could not decide", f"{undecided:,}"),
        ("seeds that broke a rule", f"{len(tally.violations):,}"),
    ]


SECONDS_OF: Final = "simulated seconds of "

IN_BRIEF: Final = (
    ("leaders elected", "leader elected"),
    ("changes of leader", "leader changed"),
    ("members added", "member added"),
    ("learners made voters", "member promoted"),
    ("members removed", "member removed"),
    ("members replaced, one for one", "member replaced"),
    ("addresses of members said", "member readdressed"),
    (
        "clusters of 3 that became 5 and 3 again, every member another",
        "every member replaced, from 3 to 5 to 3",
    ),
    (
        "clusters of 5 that became 7 and 5 again, every member another",
        "every member replaced, from 5 to 7 to 5",
    ),
    ("changes of members refused", "change of members refused"),
    ("names of removed members refused", "name of a removed member refused"),
    ("snapshots installed", "snapshot installed"),
    ("torn tails repaired", "torn tail repaired"),
    ("losses of power that lost something", "power loss that lost something"),
    ("damaged files refused at a start", "rot refused"),
    ("leases granted", "event granted"),
    ("leases renewed", "event renewed"),
    ("leases expired", "event expired"),
    ("commits accepted", "event committed"),
    ("commits refused", "event commit_refused"),
    ("updates lost at unguarded registers", "lost update at the unguarded register"),
    ("updates lost at guarded registers", "lost update at the guarded register"),
)


def read_record(path: Path) -> list[dict[str, Any]]:
    """The chunks of a campaign's record; a last line that was cut off does not count."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def total(chunks: Iterable[dict[str, Any]]) -> Tally:
    tally = Tally()
    for chunk in chunks:
        tally.include(chunk)
    return tally


def commit() -> str:
    """The commit of the source tree that this runs from, with a plus if its sources were changed since."""
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    return (head or "unknown") + ("+" if head and git("status", "--porcelain", *SOURCES) else "")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
