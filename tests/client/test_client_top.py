"""What `tenure top` shows of a cluster, and the one line that says how it is."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console
from top_cases import HEALTH, THREE, nodes

from tenure._cli.top_view import BAR_WIDTH, Seen, bar, bytes_text, health, picture
from tenure.answers import Event, LeaseInfo


@pytest.mark.parametrize(("states", "level", "beginning"), HEALTH)
def test_the_one_line_says_what_is_first_to_know(states: dict[str, str], level: str, beginning: str) -> None:
    told, text = health(nodes(**states), "", True, "2 leases, 1 waiting")
    assert told == level
    assert text.startswith(beginning)


def test_a_learner_is_called_one() -> None:
    lines = shown(Seen(nodes=nodes(**THREE, n4="learner")))
    assert "learner" in line_of(lines, "n4  ")
    assert "follower" in line_of(lines, "n3  ")


def test_what_is_not_known_is_not_called_good() -> None:
    assert health(None, "", False, None)[0] == "unknown"
    assert health(nodes(**THREE), "nobody answers", True, None) == ("bad", "nobody answers")
    assert health(nodes(**THREE), "", False, None)[0] == "warn"


def lease(key: str, expires_in_ms: int, **more: Any) -> LeaseInfo:
    fields = {
        "key": key,
        "owner": "agent-a",
        "token": 7,
        "mode": "exclusive",
        "slot": 0,
        "ttl_ms": 10_000,
        "expires_in_ms": expires_in_ms,
        "granted_at": "",
        "renewed_at": "",
        "revision": 1,
    }
    return msgspec.convert({**fields, **more}, LeaseInfo)


def shown(seen: Seen, now: float = 0.0, height: int | None = None, width: int = 120) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(picture(seen, now, height))
    return out.getvalue().splitlines()


def line_of(lines: list[str], word: str) -> str:
    [line] = [line for line in lines if word in line]
    return line


def test_leases_stand_by_the_time_that_is_left() -> None:
    seen = Seen(
        leases=[lease("k/a", 9_000), lease("k/b", 1_000, waiters=3), lease("k/c", 5_000)], leases_at=100.0
    )
    lines = shown(seen, now=100.5)
    keys = [line.split()[0] for line in lines if "agent-a" in line]
    assert keys == ["k/b", "k/c", "k/a"]
    assert line_of(lines, "k/b").split()[1:5] == ["agent-a", "7", "3", "0.5s"]
    assert line_of(lines, "k/a").split()[4] == "8.5s"


def test_a_lease_that_is_over_counts_no_further() -> None:
    assert " 0.0s" in line_of(shown(Seen(leases=[lease("a", 1_000)]), now=60.0), "agent-a")


def test_modes_and_parking_are_told() -> None:
    leases = [
        lease("gpu", 1, mode="permit", slot=2),
        lease("doc", 2, mode="shared"),
        lease("pay", 86_400_000, state="parked"),
    ]
    lines = shown(Seen(leases=leases))
    assert "[slot 2]" in line_of(lines, "gpu")
    assert "[shared]" in line_of(lines, "doc")
    assert "parked" in line_of(lines, "pay")


def test_it_fits_the_terminal_and_says_what_it_leaves_out() -> None:
    seen = Seen(
        nodes=nodes(**THREE), leases=[lease(f"k{number:03}", 1_000 + number) for number in range(100)]
    )
    for number in range(9):
        seen.refused.append(Event(revision=number, kind="commit_refused", key="late", detail="not_live"))
    lines = shown(seen, height=30)
    assert len(lines) <= 30
    leases = sum("agent-a" in line for line in lines)
    assert leases >= 8
    assert line_of(lines, "that expire later").startswith(f"and {100 - leases} that")
    assert sum("not_live" in line for line in lines) == 5


def test_no_line_is_longer_than_the_terminal() -> None:
    seen = Seen(nodes=nodes(**THREE), leases=[lease("k" * 300, 1_000, owner="o" * 100)])
    assert max(map(len, shown(seen, width=60))) <= 60


def test_what_others_wrote_does_not_steer_the_terminal() -> None:
    seen = Seen(leases=[lease("k", 1_000, owner="\x1b[2J[red]x")])
    [line] = [line for line in shown(seen) if "[2J" in line]
    assert "\x1b" not in line
    assert "[red]x" in line


def test_a_bar_shows_eighths() -> None:
    assert bar(0) == " " * BAR_WIDTH
    assert bar(1) == bar(7) == "█" * BAR_WIDTH
    assert bar(0.5) == "█" * (BAR_WIDTH // 2) + " " * (BAR_WIDTH // 2)
    assert bar(1 / (8 * BAR_WIDTH)) == "▏" + " " * (BAR_WIDTH - 1)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (65 << 30, "65 GiB"), (1 << 60, "1048576 TiB")],
)
def test_space_is_told_in_units(number: int, text: str) -> None:
    assert bytes_text(number) == text
