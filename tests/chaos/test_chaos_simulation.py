"""A slice of the simulation: whole clusters from a few seeds break no rule, and a seed is a run."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tenure_chaos.sim.options import FAULTS, Options
from tenure_chaos.sim.run import run_seed

SEEDS = range(1, 25)

REACHED = (
    "call acquire ok",
    "call acquire refused held",
    "call commit ok",
    "call commit refused stale_token",
    "call release ok",
    "call renew ok",
    "call renew refused lost",
    "event broken",
    "event expired",
    "event queue_joined",
    "files torn or lost",
    "leader elected",
    "result Claim Granted",
    "result Expire Done",
    "snapshot restored",
)


@pytest.mark.slow
def test_clusters_under_faults_break_no_rule() -> None:
    total: Counter[str] = Counter()
    for seed in SEEDS:
        report = run_seed(seed)
        assert report.violations == [], f"tenure-chaos reproduce {seed}"
        total.update(report.counts)
    assert [mark for mark in REACHED if not total[mark]] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_by_itself_breaks_no_rule(fault: str) -> None:
    options = Options(faults=(fault,), safety_s=20.0, fault_gap_s=2.0, snapshot_entries=20)
    report = run_seed(1_000 + FAULTS.index(fault), options)
    assert report.violations == []
    assert sum(number for what, number in report.counts.items() if what.startswith("fault ")) > 0


def test_one_seed_is_one_run_whatever_the_hash_seed() -> None:
    program = "from tenure_chaos.sim.run import run_seed; print(run_seed(5).trace_hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1
