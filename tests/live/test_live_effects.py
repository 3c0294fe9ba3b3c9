"""What is seen of each strike, and the tables that tell it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tenure_chaos.history import CallRecord, Elected, Fault, History, Outcome, RaftState
from tenure_chaos.live import tables
from tenure_chaos.live.effects import Told, effects
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.run import LiveReport
from tenure_chaos.live.tables import Table


def call(
    at: float, took_s: float = 0.01, outcome: Outcome = "ok", client: str = "c1.1", code: str = ""
) -> CallRecord:
    return CallRecord(0, client, "renew", {}, at - took_s, at, outcome, code)


def told(*calls: CallRecord, fault: Fault, elected: tuple[Elected, ...] = ()) -> History:
    """A run of 20 s in which both clients are answered four times a second, and these calls beside."""
    steady = [call(at / 4, client=f"{client}.1") for at in range(1, 80) for client in ("c1", "c2")]
    return History(calls=[*steady, *calls], faults=[fault], elected=list(elected), duration_s=20.0)


def seen(history: History, **more: Any) -> tuple[str, ...]:
    [struck] = effects(Told(history, **more))
    return struck.effects


FAULT = Fault("some fault", "n1", 5.0, 8.0)


def test_processes_that_ended_are_told_by_how_they_ended() -> None:
    endings = [(5.1, "n1", -9), (5.2, "n2", -9), (6.0, "n3", 70), (15.0, "n2", 4)]
    assert seen(told(fault=FAULT), endings=endings) == ("n1 n2 killed", "n3 stopped itself")


def test_who_became_leader_is_told_with_the_elections_it_took() -> None:
    elected = (Elected("n1", 1, 0.5), Elected("n2", 2, 6.0), Elected("n3", 3, 7.0))
    assert seen(told(fault=FAULT, elected=elected)) == ("n3 became leader after 2 elections",)


def test_calls_that_came_to_nothing_are_counted_with_their_reasons() -> None:
    lost = [call(6.0, outcome="unknown"), call(6.0, outcome="unavailable", code="no_leader"), call(7.0)]
    lost[2].doubtful = True
    assert seen(told(*lost, fault=FAULT)) == (
        "1 calls of unknown outcome",
        "1 calls not executed (1 no_leader)",
        "1 calls sent again in doubt",
    )


def test_answers_that_took_longer_than_without_a_fault_are_told() -> None:
    slow = [call(6.0 + number / 100, 0.5) for number in range(30)]
    assert seen(told(*slow, fault=FAULT)) == ("answers took up to 0.50 s (0.01 without a fault)",)


def test_a_process_that_stood_still_is_told_though_it_did_not_end() -> None:
    def said(node: str, at: float) -> RaftState:
        return RaftState(node, 1, at, 1, "", 0, 0)

    history = told(fault=FAULT)
    history.raft = [said(node, at / 2) for node in ("n1", "n2") for at in range(1, 40)]
    history.raft = [state for state in history.raft if state.node != "n1" or not 5 < state.at < 8]
    history.calls = [
        made for made in history.calls if made.client != "c2.1" or not 5.1 < made.returned_at < 8
    ]
    assert seen(history) == ("n1 stood still for 3.0 s", "c2 stood still for 3.0 s")


def test_what_comes_after_the_next_strike_began_is_not_the_first_ones() -> None:
    history = told(fault=FAULT, elected=(Elected("n2", 2, 9.5),))
    history.faults.append(Fault("another", "n2", 9.0, 12.0))
    first, second = effects(Told(history, snapshots=[(10.0, "n3")]))
    assert first.effects == ()
    assert second.effects == ("n2 became leader", "new snapshots at n3")


@pytest.fixture
def report(tmp_path: Path) -> LiveReport:
    history = told(fault=Fault("clock rate", "n1 | 1.0049", 5.0, 8.0))
    return LiveReport(
        title="a test",
        options=LiveOptions(),
        directory=tmp_path,
        nodes=["n1"],
        proxies="the stand-in",
        real_proxies=False,
        work_began_at=0.0,
        history=history,
        verdicts=[],
        violations=[],
        counts=Counter(),
        notes=[],
        roles=[],
        downs=[],
        snapshots={},
        struck=effects(Told(history)),
    )


def test_a_strike_that_nobody_noticed_says_so_and_has_no_violations(report: LiveReport) -> None:
    [row] = tables.strikes(report).rows
    assert row[0] == "clock rate"
    assert row[3:] == (3.0, "none outside", 0, pytest.approx(0.25, abs=0.26), "0")
    report.violations.append("property 4: two held")
    assert tables.strikes(report).rows[0][-1] == "see the run"


def test_the_tables_are_markdown_with_what_the_run_was(report: LiveReport) -> None:
    text = tables.text(report)
    assert "n1 \\| 1.0049" in text
    assert "| calls | 158: 158 ok |" in text
    assert "CPUs" in tables.machine()
    assert "Python" in tables.machine()


def test_numbers_are_set_to_the_right_and_what_is_not_known_is_left_empty() -> None:
    table = Table(("who", "s"), [("n1", 1.25), ("n2", None), ("n3", 1_000)])
    assert tables.markdown(table).splitlines() == [
        "| who | s |",
        "| --- | --: |",
        "| n1 | 1.2 |",
        "| n2 |  |",
        "| n3 | 1,000 |",
    ]
