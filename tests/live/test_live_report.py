"""What a run's history says about effects, and the page and file that tell it."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tenure_chaos.checkers.rules import judge
from tenure_chaos.history import CallRecord, Elected, Fault, History, Outcome
from tenure_chaos.live import folder
from tenure_chaos.live.analysis import costs, leader_changes, rates, role_spans, silences, sums
from tenure_chaos.live.effects import Told, effects
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.page import page
from tenure_chaos.live.run import LiveReport
from tenure_chaos.live.scenarios import NoScenario, Strike


def call(at: float, outcome: Outcome = "ok", name: str = "renew") -> CallRecord:
    return CallRecord(0, "c1", name, {}, at - 0.01, at, outcome)


@pytest.fixture
def history() -> History:
    """Answers every half second, save from 5 to 9 s and for a stretch after the end of the work."""
    answered = [at / 2 for at in range(2, 41) if not 5 < at / 2 < 9]
    calls = [call(at) for at in answered]
    calls += [call(7.0, "unknown"), call(7.5, "unavailable"), call(8.0, name="get"), call(3.2, "refused")]
    faults = [
        Fault("kill leader", "n1", 5.2, 7.2),
        Fault("latency", "all nodes", 12.0, 14.0),
        Fault("kill leader", "n2", 16.0),
    ]
    elected = [Elected("n1", 1, 0.5), Elected("n2", 2, 8.9)]
    return History(calls=calls, faults=faults, elected=elected, healed_at=20.0, duration_s=30.0)


def report(history: History, directory: Path, violations: list[str]) -> LiveReport:
    return LiveReport(
        title="a <test>",
        options=LiveOptions(seed=4, mutant=""),
        directory=directory,
        nodes=["n1", "n2"],
        proxies="the stand-in",
        real_proxies=False,
        work_began_at=1.0,
        history=history,
        verdicts=judge(History()),
        violations=violations,
        counts=Counter({"work hold": 3}),
        notes=[(1.0, "it <begins>")],
        roles=[(0.5, "n1", "leader", 1), (0.6, "n2", "follower", 1), (8.9, "n2", "leader", 2)],
        downs=[(0.0, "n1", True), (5.2, "n1", False), (7.2, "n1", True)],
        snapshots={"n1": 2},
        endings=[("n1", 1, -9)],
        struck=effects(Told(history, [(5.25, "n1", -9)], [(12.5, "n2")])),
    )


def test_a_stretch_without_an_answer_of_the_log_is_found(history: History) -> None:
    [silence] = silences(history)
    assert (silence.began_at, silence.ended_at) == (5.0, 9.0)


def test_each_strike_is_told_what_it_cost(history: History) -> None:
    killed, slow, last = costs(history)
    assert killed.silent_s == pytest.approx(9.0 - 5.2)
    assert killed.recovered_s == pytest.approx(9.0 - 7.2)
    assert slow.silent_s == 0
    assert slow.recovered_s == pytest.approx(0.5)
    assert (last.silent_s, last.recovered_s) == (0, None)


def test_silence_is_put_down_to_what_is_on_and_only_else_to_what_was() -> None:
    history = History(duration_s=100.0, healed_at=100.0)
    history.faults = [
        Fault("latency", "n1", 10.0, 14.0),
        Fault("kill majority", "n1 n2", 20.0, 24.0),
        Fault("pause node", "n1", 60.0, 62.0),
    ]
    answered = [*(at / 10 for at in range(205)), *(at / 10 for at in range(260, 640)), 70.0]
    history.calls = [call(at) for at in answered]
    slow, killed, paused = (round(cost.silent_s, 3) for cost in costs(history))
    assert (slow, killed) == (0, 5.6), "it began within ten seconds of the end of the first, but while"
    assert paused == pytest.approx(6.1 + 30.0), "in its aftermath, when nothing else was on"


def test_strikes_of_a_kind_are_summed(history: History) -> None:
    killed, slow = sums(costs(history), history.duration_s)
    assert (killed.name, killed.strikes, killed.worst_recovery_s) == ("kill leader", 2, None)
    assert killed.on_s == pytest.approx(2.0 + 14.0)
    assert (slow.name, slow.strikes, slow.worst_recovery_s) == ("latency", 1, pytest.approx(0.5))


def test_calls_are_counted_by_the_second_and_by_how_they_ended(history: History) -> None:
    by_second = rates(history, 1.0)
    assert by_second[3] == (2, 1, 0)
    assert by_second[7] == (0, 0, 2)


def test_changes_of_leader_are_counted_from_the_first_on(history: History) -> None:
    assert leader_changes(history) == 1
    assert leader_changes(History()) == 0


def test_a_node_is_down_until_it_says_something_again() -> None:
    roles = [(0.5, "n1", "leader", 1), (8.0, "n1", "follower", 2)]
    spans = role_spans(roles, [(0.0, "n1", True), (5.0, "n1", False), (7.0, "n1", True)], 10.0)
    told = [(span.began_at, span.ended_at, role) for span, role, _ in spans["n1"]]
    assert told == [
        (0.0, 0.5, "starting"),
        (0.5, 5.0, "leader"),
        (5.0, 7.0, "down"),
        (7.0, 8.0, "starting"),
        (8.0, 10.0, "follower"),
    ]


def test_the_page_shows_faults_leaders_and_violations_and_needs_nothing_else(
    history: History, tmp_path: Path
) -> None:
    text = page(report(history, tmp_path, ["property 4: <two> held"]))
    mended = "At the dashed line everything is mended"
    for shown in (
        "kill leader",
        "term 2",
        "1 violations",
        "property 4: &lt;two&gt; held",
        "a &lt;test&gt;",
        mended,
    ):
        assert shown in text
    assert "it &lt;begins&gt;" in text
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", text)
    assert "<script" not in text
    assert "@import" not in text


def test_a_page_without_violations_says_so(history: History, tmp_path: Path) -> None:
    assert "No violation." in page(report(history, tmp_path, []))


def test_many_violations_leave_the_picture_in_sight(history: History, tmp_path: Path) -> None:
    text = page(report(history, tmp_path, [f"property 4: number {number} held" for number in range(300)]))
    before, _, after = text.partition("<details>")
    assert "300 violations" in before
    assert "number 9 held" in before
    assert "number 10 held" not in before
    assert "number 199 held" in after
    assert "and 100 more in run.json" in after


def test_what_struck_can_be_struck_again_at_the_same_times(history: History, tmp_path: Path) -> None:
    path = folder.write(report(history, tmp_path, []))
    assert path.read_text().startswith("<!doctype html>")
    said = json.loads((tmp_path / "run.json").read_text())
    assert said["leader_changes"] == 1
    assert said["by_fault"][0]["name"] == "kill leader"
    assert said["by_fault"][0]["silent_s"] == pytest.approx(9.0 - 5.2)
    assert said["strikes"][0]["effects"][0] == "n1 killed"
    again = folder.scenario_of(tmp_path)
    assert again.title == "a <test>, again"
    assert again.with_options({}) == LiveOptions(seed=4, seconds=19.0)
    assert again.strikes[0] == Strike("kill leader", pytest.approx(4.2), pytest.approx(2.0))
    assert again.strikes[2].for_s == pytest.approx(14.0)


def test_a_folder_that_is_of_no_run_is_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(NoScenario, match=r"run\.json is not of a run"):
        folder.scenario_of(tmp_path)
