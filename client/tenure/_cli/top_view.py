"""What `tenure top` shows, as text: the same as the dashboard, in the same words. Pure; the moment is an
argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tenure._cli.console import printable
from tenure._durations import format_ms

if TYPE_CHECKING:
    from rich.console import Group

    from tenure.answers import Event, LeaseInfo, Nodes, NodeView

Level = Literal["unknown", "good", "warn", "bad"]

REFUSED_KEPT: Final = 50
REFUSED_SHOWN: Final = 5
BAR_WIDTH: Final = 16
COLOURS: Final[dict[Level, str]] = {"unknown": "", "good": "green", "warn": "yellow", "bad": "red"}


@dataclass
class Seen:
    """What is known of the cluster, and since when."""

    nodes: Nodes | None = None
    problem: str = ""
    """Why the last question was not answered, if it wasn't."""
    live: bool = False
    """Whether the events have begun to come in."""
    leases_problem: str = ""
    """The same of the leases."""
    leases: Sequence[LeaseInfo] = ()
    leases_at: float = 0.0
    """Moment at which the leases were asked for."""
    more: bool = False
    """Whether there are leases that were not listed."""
    refused: deque[Event] = field(default_factory=lambda: deque(maxlen=REFUSED_KEPT))

    def left_ms(self, lease: LeaseInfo, now: float) -> int:
        return max(0, lease.expires_in_ms - int((now - self.leases_at) * 1000))

    def counts(self) -> str:
        waiters = sum({lease.key: lease.waiters for lease in self.leases}.values())
        return f"{'more than ' if self.more else ''}{_count(len(self.leases), 'lease')}, {waiters} waiting"


def health(nodes: Nodes | None, problem: str, live: bool, counts: str | None) -> tuple[Level, str]:
    """One line: what an operator has to know first. ``health`` of the dashboard's nodes.js is its twin."""
    if problem:
        return "bad", problem
    if nodes is None:
        return "unknown", "Asking the node …"
    voters = [node for node in nodes.nodes if node.voter]
    learners = [node for node in nodes.nodes if not node.voter]
    size = len(voters)
    [here] = [node for node in nodes.nodes if node.id == nodes.node]
    ready = [node for node in voters if node.about is not None and node.about.ready]
    majority = size // 2 + 1
    if here.about is not None and not here.about.ready:
        return "bad", f"{nodes.node} doesn't serve: {here.about.reason}"
    if len(ready) < majority:
        return "bad", f"Only {len(ready)} of {_count(size, 'node')} serve"
    tail = " · ".join(
        [
            f"leader {nodes.leader}, term {nodes.term}",
            *([_not_voting(learners)] if learners else []),
            *([counts] if counts else []),
            "live" if live else "events are interrupted",
        ]
    )
    full = [node for node in nodes.nodes if _is_full(node)]
    if full:
        return "bad", f"Disk space is low on {_names(full)} · {tail}"
    if len(ready) < size:
        missing = [node for node in voters if node.about is None or not node.about.ready]
        spare = len(ready) - majority
        left = f"{spare} more may fail" if spare else "no other may fail"
        return "warn", f"{_names(missing)} {'is' if len(missing) == 1 else 'are'} missing, {left} · {tail}"
    if not live:
        return "warn", f"{_count(size, 'node')} serve · {tail}"
    versions = {node.about.version for node in nodes.nodes if node.about is not None}
    if len(versions) > 1:
        return "warn", f"Nodes of {len(versions)} versions · {tail}"
    return "good", f"{'The node serves' if size == 1 else f'All {size} nodes serve'} · {tail}"


def picture(seen: Seen, now: float, height: int | None) -> Group:
    """Everything, in so many lines of the terminal; all leases if ``height`` is None."""
    from rich.console import Group
    from rich.text import Text

    level, line = health(seen.nodes, seen.problem, seen.live, seen.counts())
    parts: list[object] = [Text(printable(line), style=f"bold {COLOURS[level]}".strip()), ""]
    members = [] if seen.nodes is None else seen.nodes.nodes
    parts += [_table([_node_row(node) for node in members], *NODE_COLUMNS), ""]
    refused = list(seen.refused)[-REFUSED_SHOWN:][::-1]
    room = None
    if height is not None:
        # The line, two empty ones, the heads with their rules, a note; what is refused has the same below it.
        room = max(1, height - len(members) - 8 - (len(refused) + 3 if refused else 0))
    ordered = sorted(seen.leases, key=lambda lease: (seen.left_ms(lease, now), lease.key))
    parts.append(
        _table([_lease_row(lease, seen.left_ms(lease, now)) for lease in ordered[:room]], *LEASE_COLUMNS)
    )
    if seen.leases_problem:
        parts.append(Text(printable(seen.leases_problem), style="red"))
    hidden = 0 if room is None else len(ordered) - room
    if hidden > 0:
        parts.append(Text(f"and {hidden} that expire later", style="dim"))
    elif not (ordered or seen.leases_problem):
        parts.append(Text("Nobody holds a lease.", style="dim"))
    if refused:
        parts += ["", _table([_refused_row(event) for event in refused], *REFUSED_COLUMNS)]
    return Group(*parts)  # type: ignore[arg-type]


NODE_COLUMNS: Final = ("NODE", "ROLE", ">LAG", ">DISK FREE", "VERSION", "STATE")
LEASE_COLUMNS: Final = ("KEY", "HOLDER", ">TOKEN", ">WAITING", ">EXPIRES IN", "")
REFUSED_COLUMNS: Final = ("REFUSED COMMIT", "BY", ">TOKEN", "CAUSE", "TIME")


def _table(rows: Sequence[Sequence[tuple[str, str]]], *heads: str) -> object:
    """Columns of (text, style); a head that begins with > is of figures."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", expand=False)
    for head in heads:
        justify: Literal["left", "right"] = "right" if head.startswith(">") else "left"
        table.add_column(head.removeprefix(">"), justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(printable(text).replace("\n", " "), style=style) for text, style in row))
    return table


def _node_row(node: NodeView) -> list[tuple[str, str]]:
    about = node.about
    if about is None:
        role = "unknown" if node.voter else "learner"
        return [(node.id, ""), (role, ""), ("-", ""), ("-", ""), ("-", ""), ("not reached", "red")]
    full = _is_full(node)
    return [
        (node.id, ""),
        (about.role if node.voter else "learner", "bold" if about.role == "leader" else ""),
        ("-" if node.lag is None else str(node.lag), ""),
        (bytes_text(about.disk_free_bytes) + (", low" if full else ""), "red" if full else ""),
        (about.version, ""),
        ("serves", "green") if about.ready else (about.reason, "yellow"),
    ]


def _lease_row(lease: LeaseInfo, left_ms: int) -> list[tuple[str, str]]:
    whole = max(left_ms, 1) if lease.state == "parked" else lease.ttl_ms
    low = left_ms * 4 < whole
    about = {"exclusive": "", "permit": f"  [slot {lease.slot}]"}.get(lease.mode, f"  [{lease.mode}]")
    return [
        (lease.key + about, ""),
        (lease.owner + (", parked" if lease.state == "parked" else ""), ""),
        (str(lease.token), ""),
        (str(lease.waiters) if lease.waiters else "-", ""),
        (format_ms(left_ms), "yellow" if low else ""),
        (bar(left_ms / whole), "yellow" if low else "blue"),
    ]


def _refused_row(event: Event) -> list[tuple[str, str]]:
    return [(event.key, ""), (event.owner, ""), (str(event.token), ""), (event.detail, "red"), (event.at, "")]


def bar(part: float) -> str:
    """A bar of BAR_WIDTH places, in eighths of one."""
    eighths = round(min(1.0, max(0.0, part)) * BAR_WIDTH * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip().ljust(BAR_WIDTH)


def bytes_text(number: float) -> str:
    unit = 0
    while number >= 1024 and unit < 4:
        number, unit = number / 1024, unit + 1
    name = ("B", "KiB", "MiB", "GiB", "TiB")[unit]
    return f"{number:.1f} {name}" if number < 10 and unit else f"{number:.0f} {name}"


def _is_full(node: NodeView) -> bool:
    return node.about is not None and node.about.disk_free_bytes < node.about.disk_reserve_bytes


def _names(nodes: Sequence[NodeView]) -> str:
    return ", ".join(node.id for node in nodes)


def _not_voting(learners: Sequence[NodeView]) -> str:
    return f"{_names(learners)} {'does' if len(learners) == 1 else 'do'} not vote yet"


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"
