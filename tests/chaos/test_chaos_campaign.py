"""Batches and campaigns: the record survives restarts and ends in good order, options can be set, a broken
seed says how to see it again, and a batch that is too tame fails.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenure_chaos import batch, marks
from tenure_chaos.batch import Verdict, run_batch, run_one
from tenure_chaos.cli import main
from tenure_chaos.report import Tally, read_record, total
from tenure_chaos.sim.options import InvalidOption, Options
from tenure_chaos.sim.run import Report, run_seed

SHORT = ("--option", "safety_s=5", "--option", "faults=")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tenure_chaos.cli", *words]


def begin_campaign(*words: str) -> subprocess.Popen[bytes]:
    arguments = command("campaign", "--record", "record.jsonl", "--jobs", "2", "--chunk", "3", *SHORT, *words)
    with Path("campaign.log").open("a") as log:
        return subprocess.Popen(arguments, stdout=log, stderr=log)


def said() -> str:
    return Path("campaign.log").read_text()


def record() -> list[dict[str, object]]:
    return read_record(Path("record.jsonl"))


def until_recorded(chunks: int) -> None:
    ends = time.monotonic() + 1200
    while len(record()) < chunks:
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
def test_a_campaign_ends_in_good_order_at_sigterm_and_goes_on_behind_the_last_seed() -> None:
    first = begin_campaign("--first-seed", "11")
    until_recorded(2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 0, said()
    before = record()
    with Path("record.jsonl").open("a") as file:
        file.write('{"first_seed": 99, "last_se')  # as if another had been killed while it wrote
    assert record() == before

    second = begin_campaign()
    until_recorded(len(before) + 2)
    second.send_signal(signal.SIGTERM)
    assert second.wait(300) == 0, said()
    chunks = record()
    assert chunks[: len(before)] == before
    ranges = [(chunk["first_seed"], chunk["last_seed"]) for chunk in chunks]
    assert ranges[0][0] == 11
    assert all(end + 1 == begin for (_, end), (begin, _) in itertools.pairwise(ranges))  # type: ignore[operator]
    assert all(chunk["commit"] for chunk in chunks)


@pytest.mark.slow
def test_a_campaign_ends_after_so_many_hours_and_sums_up() -> None:
    done = begin_campaign("--hours", "0.02")
    assert done.wait(300) == 0, said()
    sums = total(record())
    assert sums.simulated_s >= 0.02 * 3600
    assert sums.cpu_s > 0
    assert sums.counts["call acquire ok"] > 0

    report = CliRunner().invoke(main, ["campaign", "--record", "record.jsonl", "--report"])
    assert report.exit_code == 0
    assert f"{sums.seeds} seeds" in report.output
    assert "leader elected" in report.output
    assert "not reached: " in report.output


@pytest.mark.slow
def test_workers_end_with_the_process_that_began_them() -> None:
    began = begin_campaign()
    until_recorded(1)
    children = Path(f"/proc/{began.pid}/task/{began.pid}/children").read_text().split()
    began.kill()
    began.wait()
    ends = time.monotonic() + 120
    while any(Path(f"/proc/{child}/cmdline").exists() and _is_running(child) for child in children):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert children


def _is_running(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_batch_that_stops_has_run_the_beginning_of_its_seeds() -> None:
    done: list[int] = []
    for verdict in run_batch(
        range(1, 50), jobs=1, overrides={"safety_s": "2"}, stopping=lambda: len(done) >= 3
    ):
        done.append(verdict.seed)
    assert done == [1, 2, 3]


def test_an_option_that_is_set_changes_nothing_else() -> None:
    drawn = Options.for_seed(5)
    chosen = Options.for_seed(5, {"nodes": "5", "faults": "kill one,bit rot", "breaks": "false"})
    assert (chosen.nodes, chosen.faults, chosen.breaks) == (5, ("kill one", "bit rot"), False)
    assert chosen.override({"nodes": str(drawn.nodes)}).clients == drawn.clients
    assert chosen.safety_s == drawn.safety_s
    assert Options.for_seed(5) == drawn
    assert Options.for_seed(6) != drawn


@pytest.mark.parametrize(
    "texts", [{"noodles": "5"}, {"nodes": "many"}, {"breaks": "perhaps"}, {"faults": "kill nobody"}]
)
def test_an_option_that_does_not_exist_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        Options.for_seed(1, texts)
    [(name, value)] = texts.items()
    refused = CliRunner().invoke(main, ["sim", "--option", f"{name}={value}"])
    assert refused.exit_code == 2
    assert name in refused.output or value in refused.output


def test_a_seed_that_breaks_a_rule_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, options: Options) -> Report:
        report = run_seed(seed, options)
        report.violations.append("a rule: something that must never be")
        return report

    monkeypatch.setattr(batch, "run_seed", broken)
    result = CliRunner().invoke(main, ["sim", "--seeds", "7", *SHORT])
    assert result.exit_code == 1
    assert "something that must never be" in result.output
    assert "again: tenure-chaos reproduce 7 --option 'safety_s=5' --option 'faults='" in result.output
    kept = Path(".tenure-chaos/seed-7")
    verdict = json.loads((kept / "verdict.json").read_text())
    assert verdict["violations"] == ["a rule: something that must never be"]
    assert "acquire" in (kept / "trace.txt").read_text()
    assert (kept / "history.jsonl").stat().st_size > 0

    again = CliRunner().invoke(main, ["reproduce", "7", *SHORT, "--no-trace"])
    assert again.exit_code == 0
    assert f"trace {verdict['trace_hash']}" in again.output


def test_a_harness_that_fails_or_hangs_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seed: int, options: Options) -> Report:
        raise ZeroDivisionError("in the harness")

    monkeypatch.setattr(batch, "run_seed", fails)
    assert "ZeroDivisionError: in the harness" in run_one(1, {}, None).violations[0]

    def hangs(seed: int, options: Options) -> Report:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(batch, "run_seed", hangs)
    monkeypatch.setattr(batch, "SEED_WALL_S", 0.2)
    assert "Hangs" in run_one(1, {}, None).violations[0]


def test_a_batch_that_is_too_tame_fails() -> None:
    result = CliRunner().invoke(main, ["sim", "--seeds", "1:2", "--marks", *SHORT])
    assert result.exit_code == 1
    assert "too tame: 1 seeds did not reach leader changed" in result.output
    assert "fault kill one" in result.output


def test_marks_are_missed_until_they_are_counted() -> None:
    everything = Counter({count: 1 for mark in marks.MARKS for count in mark.counts})
    assert marks.missing(everything) == []
    for mark in marks.MARKS:
        assert marks.missing(everything - Counter(mark.counts)) == [mark.name]


def test_sums_are_sums() -> None:
    tally = Tally(wall_s=2.0)
    tally.add(Verdict(1, {}, [], Counter({"a": 2}), simulated_s=100.0, safety_s=90.0, cpu_s=1.0))
    tally.add(Verdict(2, {}, ["broken"], Counter({"a": 1, "b": 1}), simulated_s=50.0, cpu_s=0.5))
    twice = total([tally.plain(), json.loads(json.dumps(tally.plain()))])
    assert twice.seeds == 4
    assert twice.simulated_s == 300.0
    assert twice.counts == {"a": 6, "b": 2}
    assert [broken["seed"] for broken in twice.violations] == [2, 2]
    assert "4 seeds" in twice.line
    assert os.path.basename(twice.violations[0]["kept"]) == ""
